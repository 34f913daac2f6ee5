"""What the reconciler wrote, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast, final

import msgspec

from opsdk.patches import describe_difference
from opsdk.types import Json, JsonObject

__all__ = ["Action", "RecordedEvent", "Verb", "as_object", "parse_json", "text_at"]

Verb: TypeAlias = Literal["create", "replace", "patch", "apply", "delete", "delete_collection"]
"""How an object was written; `subresource` says where."""

_SHOWN_LINES = 15
_NOISE = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Action:
    """One write that the API server answered.

    Args:
        verb: What was asked for.
        group: API group; empty for the core group.
        version: Version of the API that was written through.
        plural: The resource's plural name.
        kind: The object's kind; its plural where no document told it.
        namespace: None for a cluster-scoped object.
        name: None for `delete_collection`, and for a refused create that left the name to the server.
        subresource: `status`, `scale` …; None for the object itself.
        body: What was sent: the object, the patch, or delete options.
        before: The object before the write; None when there was none.
        object: The object as stored after it; for a delete, as it was before.
        code: The HTTP status that the server answered.
        message: Why the server refused it; empty when it did not.
    """

    verb: Verb
    group: str
    version: str
    plural: str
    kind: str
    namespace: str | None
    name: str | None
    subresource: str | None
    body: Json = field(default=None)
    before: JsonObject | None = None
    object: JsonObject | None = None
    code: int = 200
    message: str = ""

    @property
    def resource(self) -> tuple[str, str, str]:
        """Group, version and plural."""
        return self.group, self.version, self.plural

    @property
    def refused(self) -> bool:
        """Whether the server refused it, so that nothing changed."""
        return self.code >= 400

    def __str__(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name) if part)
        what = f"{self.subresource} {self.verb}" if self.subresource else self.verb
        why = f" (refused with {self.code}: {self.message})" if self.refused else ""
        return f"{what} {self.kind}{f' {place}' if place else ''}{why}"

    def __repr__(self) -> str:
        return f"<Action {self}>"  # never the documents: they may be Secrets

    def difference(self) -> list[str]:
        """What the write changed, a line a field, without what the server keeps for itself; Secret data is redacted."""
        match self.verb:
            case "delete" | "delete_collection":
                return []
            case "create":
                kind: JsonObject = {"apiVersion": f"{self.group}/{self.version}".strip("/"), "kind": self.kind}
                sent = as_object(self.body) or self.object or {}
                return _cut(describe_difference(kind, {**_without_noise(sent), **kind}))
            case _ if self.object is None:
                return []
            case _:
                lines = describe_difference(_without_noise(self.before or {}), _without_noise(self.object))
                return _cut(lines) or ["(it changed nothing)"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """One Kubernetes event as it was written: the first time, or again with a higher count.

    Args:
        type: `Normal` or `Warning`.
        reason: Its CamelCase reason.
        message: Its text.
        kind: Kind of the object that it is about.
        namespace: That object's namespace; None for a cluster-scoped one.
        name: That object's name.
        count: How often it happened until then.
    """

    type: str
    reason: str
    message: str
    kind: str
    namespace: str | None
    name: str
    count: int = 1

    def __str__(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name) if part)
        times = f" (x{self.count})" if self.count > 1 else ""
        return f"{self.type} {self.reason} on {self.kind} {place}: {self.message}{times}"

    @classmethod
    def from_document(cls, document: JsonObject) -> RecordedEvent:
        """Read a core/v1 or events.k8s.io/v1 Event."""
        about = as_object(document.get("regarding")) or as_object(document.get("involvedObject")) or {}
        series = as_object(document.get("series")) or {}
        counts = [series.get("count"), document.get("count"), document.get("deprecatedCount")]
        return cls(
            type=text_at(document, "type") or "Normal",
            reason=text_at(document, "reason"),
            message=text_at(document, "note") or text_at(document, "message"),
            kind=text_at(about, "kind"),
            namespace=text_at(about, "namespace") or None,
            name=text_at(about, "name"),
            count=max((count for count in counts if isinstance(count, int)), default=1),
        )


def as_object(value: Json) -> JsonObject | None:
    """`value` if it is a JSON object."""
    return value if isinstance(value, Mapping) else None


def parse_json(raw: bytes | None) -> Json:
    """Decode `raw`; None when it is empty or not JSON."""
    if not raw:
        return None
    try:
        return cast("Json", msgspec.json.decode(raw))
    except msgspec.DecodeError:
        return None


def text_at(document: JsonObject | None, *path: str) -> str:
    """The string at `path`, else an empty one."""
    value: Json = document
    for part in path:
        if not isinstance(value, Mapping):
            return ""
        value = value.get(part)
    return value if isinstance(value, str) else ""


def _without_noise(document: JsonObject) -> JsonObject:
    result = dict(document)
    metadata = as_object(document.get("metadata"))
    if metadata is not None:
        result["metadata"] = {key: value for key, value in metadata.items() if key not in _NOISE}
    return result


def _cut(lines: Sequence[str]) -> list[str]:
    if len(lines) <= _SHOWN_LINES:
        return list(lines)
    return [*lines[: _SHOWN_LINES - 1], f"… and {len(lines) - _SHOWN_LINES + 1} more"]
