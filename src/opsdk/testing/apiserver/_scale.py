"""The scale subresource: replicas of a kind in a form that is the same for all kinds."""

from __future__ import annotations

from dataclasses import replace

from opsdk.testing.apiserver._fields import invalid as invalid_value
from opsdk.testing.apiserver._json import Document, Value, as_object, as_text, dig
from opsdk.testing.apiserver._kinds import KindInfo, ScalePaths
from opsdk.testing.apiserver._status import bad_request, invalid

__all__ = ["scale_of", "scaled"]


def scale_of(paths: ScalePaths, document: Document) -> Document:
    """The Scale of an object."""
    metadata = as_object(document.get("metadata"))
    status: Document = {"replicas": _number(dig(document, *paths.status_replicas))}
    if paths.selector is not None:
        selector = _selector_text(dig(document, *paths.selector))
        if selector:
            status["selector"] = selector
    kept: Document = {
        name: metadata[name]
        for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if name in metadata
    }
    replicas = _number(dig(document, *paths.spec_replicas))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": kept,
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def scaled(info: KindInfo, paths: ScalePaths, document: Document, scale: Document) -> Document:
    """The object with the replicas that a Scale asks for; it is changed in place.

    Raises:
        StatusError: 422, the number is negative; 400, it is none.
    """
    replicas = dig(scale, "spec", "replicas")
    if replicas is None:
        replicas = 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request('Scale in version "v1" cannot be handled as a Scale: spec.replicas is not a number')
    if replicas < 0:
        name = as_text(dig(document, "metadata", "name"))
        error = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid(replace(info, group="autoscaling", kind="Scale"), name, [error])
    node = document
    for part in paths.spec_replicas[:-1]:
        child = node.get(part)
        if not isinstance(child, dict):
            child = node[part] = {}
        node = child
    node[paths.spec_replicas[-1]] = replicas
    metadata, sent = as_object(document.get("metadata")), as_object(scale.get("metadata"))
    for name in ("resourceVersion", "uid"):
        if sent.get(name):
            metadata[name] = sent[name]
    return document


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _selector_text(selector: Value) -> str:
    if isinstance(selector, str):
        return selector
    found = as_object(selector)
    labels = as_object(found.get("matchLabels")) if "matchLabels" in found or "matchExpressions" in found else found
    return ",".join(f"{key}={as_text(value)}" for key, value in sorted(labels.items()))
