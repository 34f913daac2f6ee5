"""The state in which a run ends, without what differs between any two runs.

What is left out: uids, resourceVersions, generations, timestamps, managedFields, and the random part of generated
names. A uid is replaced by the object that it stands for, so that a reference to another object still is a difference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from opsdk.client.transport import HttpRequest, Transport
from opsdk.patches import describe_difference
from opsdk.testing._ignored import Ignored
from opsdk.testing.simulator import Target
from opsdk.testing.sweeps._calls import as_object, as_sequence, is_swept, parse_json, text_at
from opsdk.types import Json, JsonObject

__all__ = ["FOREIGN", "EndState", "changed_lines", "read_state"]

FOREIGN: Final = "sweeps.opsdk.dev/foreign"
"""The annotation by which a sweep edits objects in somebody else's name."""

_DROPPED: Final = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "deletionGracePeriodSeconds"}
)
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_UNCOMPARED: Final = ("apiextensions.k8s.io", "customresourcedefinitions")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EndState:
    """What is there at the end of a run.

    Args:
        objects: Normalised documents by `Kind namespace/name`.
        uids: The uids of all objects.
        deleting: Objects that are on their way out, each with the finalizers that hold it.
        foreign: For each uid, the sweep's own annotation, if it is still there.
        names: Which names there are by kind, namespace and owner, for finding names with a random part.
    """

    objects: Mapping[str, JsonObject]
    uids: frozenset[str]
    deleting: Mapping[str, str]
    foreign: Mapping[str, str]
    names: Mapping[tuple[str, str, str], frozenset[str]] = field(
        default_factory=dict[tuple[str, str, str], frozenset[str]]
    )

    def difference(self, other: EndState, ignored: Ignored) -> list[str]:
        """What is different in `other`, a line a field; Secret data is redacted."""
        lines: list[str] = []
        for key in sorted({*self.objects, *other.objects}):
            before, after = self.objects.get(key), other.objects.get(key)
            kind = key.partition(" ")[0]
            if ignored.kind(kind) or (before is not None and before == after):
                continue
            if before is None or after is None:
                lines.append(f"{key}: {'not there -> there' if before is None else 'there -> not there'}")
                continue
            lines += [f"{key}: {line}" for line in describe_difference(before, after) if not ignored.line(kind, line)]
        return lines


async def read_state(
    transport: Transport,
    targets: Iterable[Target],
    *,
    outside: Json,
    known_uids: Mapping[str, str],
    random_names: frozenset[tuple[str, str, str]],
) -> EndState:
    """Read all objects of the resources in `targets`.

    Args:
        transport: Where.
        targets: One target of each resource that was ever written.
        outside: The state of what the operator keeps outside of the cluster; None: nothing.
        known_uids: What other uids stand for: objects that are gone.
        random_names: Groups of objects whose names differ from run to run.
    """
    documents = [document for target in targets if _compared(target) for document in await _list(transport, target)]
    uids = {text_at(document, "metadata", "uid"): _key(document) for document in documents}
    words: dict[str, str] = {uid: f"uid of gone {what}" for uid, what in known_uids.items() if uid not in uids}
    aliases: dict[str, str] = {}
    for document in documents:
        name, prefix = text_at(document, "metadata", "name"), text_at(document, "metadata", "generateName")
        if prefix and name.startswith(prefix):
            aliases[name] = f"{prefix}*"
        elif _group(document) in random_names:
            aliases[name] = "*"
    for uid, key in uids.items():
        kind, _, place = key.partition(" ")
        namespace, slash, name = place.rpartition("/")
        words[uid] = f"uid of {kind} {namespace}{slash}{aliases.get(name, name)}"
    objects: dict[str, JsonObject] = {}
    found: dict[str, list[JsonObject]] = {}
    for document in documents:
        normal = as_object(_normal(document, words, aliases, _generation(document))) or {}
        found.setdefault(_key(normal), []).append(normal)
    for key, group in found.items():
        for number, normal in enumerate(sorted(group, key=repr), start=1):
            objects[key if number == 1 else f"{key} #{number}"] = normal
    if outside is not None:
        objects["outside"] = {"state": _normal(outside, words, {}, None)}
    return EndState(
        objects=objects,
        uids=frozenset(uids),
        deleting={
            _key(document): ", ".join(str(each) for each in as_sequence(_metadata(document).get("finalizers")))
            for document in documents
            if _metadata(document).get("deletionTimestamp")
        },
        foreign={
            text_at(document, "metadata", "uid"): text_at(document, "metadata", "annotations", FOREIGN)
            for document in documents
        },
        names={
            group: frozenset(
                text_at(document, "metadata", "name") for document in documents if _group(document) == group
            )
            for group in Counter(_group(document) for document in documents)
        },
    )


def changed_lines(before: JsonObject | None, after: JsonObject | None, ignored: Ignored) -> list[str]:
    """What one write changed, without what the server keeps for itself and what is ignored."""
    kind = text_at(after or before, "kind")
    if ignored.kind(kind):
        return []
    if before is None or after is None:
        return [f"{_key(after or before or {})}: {'created' if before is None else 'deleted'}"]
    old, new = (as_object(_pruned(document)) or {} for document in (before, after))
    return [line for line in describe_difference(old, new) if not ignored.line(kind, line)]


def _pruned(document: JsonObject) -> Json:
    result = dict(document)
    result["metadata"] = {key: value for key, value in _metadata(document).items() if key not in _DROPPED}
    return result


def _compared(target: Target) -> bool:
    return is_swept(target) and (target.group, target.plural) != _UNCOMPARED


async def _list(transport: Transport, target: Target) -> list[JsonObject]:
    response = await transport.request(HttpRequest(method="GET", path=target.collection_path))
    if response.status == 404:
        return []  # a write to a kind that is not served
    answer = as_object(parse_json(response.body))
    if response.status != 200 or answer is None:
        raise RuntimeError(f"GET {target.collection_path} gives {response.status}")
    kind = text_at(answer, "kind").removesuffix("List")
    items = [as_object(item) for item in as_sequence(answer.get("items"))]
    return [{"apiVersion": target.api_version, "kind": kind, **item} for item in items if item is not None]


def _metadata(document: JsonObject) -> JsonObject:
    return as_object(document.get("metadata")) or {}


def _generation(document: JsonObject) -> int | None:
    generation = _metadata(document).get("generation")
    return generation if isinstance(generation, int) else None


def _key(document: JsonObject) -> str:
    place = [text_at(document, "metadata", "namespace"), text_at(document, "metadata", "name")]
    return f"{text_at(document, 'kind')} {'/'.join(part for part in place if part)}"


def _group(document: JsonObject) -> tuple[str, str, str]:
    """Objects that can stand for each other: of one kind, one namespace and one owner."""
    owners = [text_at(as_object(owner), "kind") for owner in as_sequence(_metadata(document).get("ownerReferences"))]
    return text_at(document, "kind"), text_at(document, "metadata", "namespace"), ",".join(owners)


def _normal(value: Json, words: Mapping[str, str], aliases: Mapping[str, str], generation: int | None) -> Json:
    if isinstance(value, str):
        if value in aliases:
            return aliases[value]
        if _TIME.fullmatch(value):
            return "(a time)"
        return _UID.sub(lambda match: words.get(match[0], match[0]), value)
    if isinstance(value, Mapping):
        normal: dict[str, Json] = {}
        for key, item in value.items():
            if key == "metadata" and (metadata := as_object(item)) is not None:
                normal[key] = _normal(_normal_metadata(metadata), words, aliases, generation)
            elif key == "observedGeneration" and isinstance(item, int) and generation is not None:
                normal[key] = "the newest" if item == generation else f"{generation - item} behind"
            else:
                normal[_UID.sub(lambda match: words.get(match[0], match[0]), key)] = _normal(
                    item, words, aliases, generation
                )
        return normal
    if isinstance(value, Sequence):
        return [_normal(item, words, aliases, generation) for item in value]
    return value


def _normal_metadata(metadata: JsonObject) -> JsonObject:
    normal = {key: value for key, value in metadata.items() if key not in _DROPPED}
    annotations = as_object(metadata.get("annotations"))
    if annotations is not None and FOREIGN in annotations:
        rest = {key: value for key, value in annotations.items() if key != FOREIGN}
        normal["annotations"] = rest
        if not rest:
            del normal["annotations"]
    return normal
