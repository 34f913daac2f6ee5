"""Keeps silent about what a test does to an operator on purpose."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["quiet_logs"]


@contextmanager
def quiet_logs(*, wanted: bool = False) -> Generator[None]:
    """Unless they are wanted, drop all log lines of the body: what a test does on purpose is no news."""
    before = logging.root.manager.disable
    if not wanted:
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
