"""Kubernetes events about objects, counted where they repeat."""

from opsdk.events.recorder import EventObserver, EventOutcome, Recorder

__all__ = ["EventObserver", "EventOutcome", "Recorder"]
