"""Warnings: what kube-apiserver tells a client in `Warning` headers beside an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opsdk.client.transport import HttpResponse
from opsdk.testing.apiserver._json import Document, as_list, as_text, dig

__all__ = ["finalizer_warnings", "warned"]


def finalizer_warnings(document: Document) -> list[str]:
    """Of the finalizers of a custom resource, which may be called anything."""
    names = [as_text(each) for each in as_list(dig(document, "metadata", "finalizers"))]
    advice = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    return [f'metadata.finalizers: "{name}": {advice}' for name in names if "/" not in name]


def warned(response: HttpResponse, texts: Sequence[str]) -> HttpResponse:
    """The response with its warnings, a refusal, too."""
    if not texts:
        return response
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    header = ", ".join(f'299 - "{text}"' for text in quoted)
    return replace(response, headers={**response.headers, "warning": header})
