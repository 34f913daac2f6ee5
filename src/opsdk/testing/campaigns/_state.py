"""What is in a cluster, without what differs between any two ways to the same end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast, final

import msgspec

from opsdk.client.transport import HttpRequest
from opsdk.patches import describe_difference
from opsdk.testing._ignored import Ignored
from opsdk.testing.apiserver import ApiServer
from opsdk.testing.simulator import Target
from opsdk.types import Json, JsonObject

__all__ = ["Place", "State", "read_state"]

Place: TypeAlias = tuple[str, str]
"""An object's kind, and its namespace and name."""

_OUTSIDE: Final[Place] = ("outside", "of the cluster")
_DROPPED: Final = frozenset({"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"})
_ALLOCATED: Final = frozenset({"clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort"})
_HISTORY: Final = frozenset({"stateHistory"})
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LEASES: Final = ("coordination.k8s.io", "leases")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What was there at one moment.

    Args:
        objects: Comparable documents by kind and place.
        finalizers: Those of the objects that are being deleted.
    """

    objects: Mapping[Place, JsonObject]
    finalizers: Mapping[Place, str]

    def difference(self, other: State, ignored: Ignored) -> list[str]:
        """How `other` differs, a heading for each object and a line for each field; Secret data is not shown.

        Args:
            other: The state to compare with.
            ignored: What does not count.
        """
        found: list[str] = []
        for place in sorted({*self.objects, *other.objects}):
            kind, name = place
            old, new = self.objects.get(place), other.objects.get(place)
            if ignored.kind(kind):
                continue
            if old is None or new is None:
                found.append(f"{kind} {name}: {'there is one' if old is None else 'there is none'}")
                continue
            lines = [line for line in describe_difference(old, new) if not ignored.line(kind, line)]
            if lines:
                found.append(f"{kind} {name}:")
                found += [f"  {line}" for line in lines]
        return found

    def beyond(self, before: State) -> list[str]:
        """What is there and was not before."""
        found: list[str] = []
        for place in sorted(set(self.objects) - set(before.objects)):
            held = self.finalizers.get(place)
            found.append(f"{place[0]} {place[1]}{f' (waits for {held})' if held else ''}")
        if before.objects.get(_OUTSIDE) != self.objects.get(_OUTSIDE) and _OUTSIDE in before.objects:
            lines = describe_difference(before.objects[_OUTSIDE], self.objects.get(_OUTSIDE, {}))
            found += [f"{' '.join(_OUTSIDE)}: {line}" for line in lines]
        return found


def read_state(server: ApiServer, targets: Iterable[Target], outside: Json) -> State:
    """All objects of the resources in `targets`, events and Leases aside, and what is kept outside of the cluster."""
    documents: list[JsonObject] = []
    for target in targets:
        if target.plural != "events" and (target.group, target.plural) != _LEASES:
            documents += _list(server, target)
    names = {str(_metadata(document).get("uid")): "/".join(_place(document)) for document in documents}
    objects: dict[Place, JsonObject] = {}
    finalizers: dict[Place, str] = {}
    generated: dict[Place, list[JsonObject]] = {}
    for document in documents:
        metadata = _metadata(document)
        comparable = _comparable(document, names, metadata.get("generation"))
        assert isinstance(comparable, Mapping)
        if "status" in comparable:
            status = _without_blanks(comparable["status"])
            comparable = {**comparable, "status": status} if status else _without(comparable, "status")
        place = _place(document)
        if metadata.get("deletionTimestamp") is not None:
            held = metadata.get("finalizers")
            finalizers[place] = ", ".join(map(str, held)) if isinstance(held, list) else ""
        prefix = metadata.get("generateName")
        if isinstance(prefix, str):
            unnamed = _without(_metadata(comparable), "name")
            generated.setdefault((place[0], f"{prefix}*"), []).append({**comparable, "metadata": unnamed})
        else:
            objects[place] = comparable
    for (kind, prefix), alike in generated.items():
        for number, one in enumerate(sorted(alike, key=repr), start=1):
            objects[kind, f"{prefix} ({number})"] = one
    if outside is not None:
        objects[_OUTSIDE] = {"state": _comparable(outside, names, None)}
    return State(objects=objects, finalizers=finalizers)


def _list(server: ApiServer, target: Target) -> list[JsonObject]:
    response = server.handle(HttpRequest(method="GET", path=target.collection_path))
    answer = cast("Json", msgspec.json.decode(response.body)) if response.status == 200 else None
    if not isinstance(answer, Mapping):
        return []
    kind, items = str(answer.get("kind")).removesuffix("List"), answer.get("items")
    found = [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    return [{"apiVersion": target.api_version, "kind": kind, **item} for item in found]


def _metadata(document: JsonObject) -> JsonObject:
    found = document.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _place(document: JsonObject) -> Place:
    metadata = _metadata(document)
    parts = [str(part) for part in (metadata.get("namespace"), metadata.get("name")) if part]
    return str(document.get("kind")), "/".join(parts)


def _comparable(value: Json, names: Mapping[str, str], generation: Json, *, owner: str = "") -> Json:
    match value:
        case str():
            if _TIME.fullmatch(value):
                return "(a time)"
            return _UID.sub(lambda found: f"(uid of {names.get(found[0], 'what is gone')})", value)
        case Mapping():
            result: dict[str, Json] = {}
            for key, one in value.items():
                if (owner == "metadata" and key in _DROPPED) or key in _HISTORY or key in _ALLOCATED:
                    continue
                if key == "observedGeneration" and isinstance(one, int) and isinstance(generation, int):
                    result[key] = "newest" if one == generation else f"{generation - one} behind"
                    continue
                if owner == "ownerReferences" and key == "uid" and isinstance(one, str):
                    result[key] = f"(uid of {names.get(one, 'what is gone')})"
                    continue
                result[key] = _comparable(one, names, generation, owner=key)
            return result
        case list() | tuple():
            return [_comparable(one, names, generation, owner=owner) for one in value]
        case _:
            return value


def _without(document: JsonObject, name: str) -> JsonObject:
    return {key: value for key, value in document.items() if key != name}


def _without_blanks(value: Json) -> Json:
    """A count of zero that is written and one that is left out say the same."""
    match value:
        case Mapping():
            inner = {key: _without_blanks(one) for key, one in value.items()}
            return {key: one for key, one in inner.items() if one not in (None, "", 0, [], {})}
        case list() | tuple():
            return [_without_blanks(one) for one in value]
        case _:
            return value
