"""JSON patches, RFC 6902."""

from __future__ import annotations

from collections.abc import Sequence

from opsdk.patches._values import identities, identity_field, is_array, is_object, same
from opsdk.types import Json, JsonObject

__all__ = ["JsonPatchError", "apply_json_patch", "json_difference"]


class JsonPatchError(ValueError):
    """A JSON patch cannot be applied to this document.

    Attributes:
        operation: The position of the operation that failed, from zero.
        path: The path it is about.
    """

    def __init__(self, operation: int, path: str, why: str) -> None:
        self.operation = operation
        self.path = path
        super().__init__(f"operation {operation}, {path or 'the whole document'}: {why}")


def json_difference(before: JsonObject, after: JsonObject) -> list[JsonObject]:
    """The operations that turn `before` into `after`, leaf by leaf; empty when there is nothing to do.

    Guarantees: applied to `before` they give `after`, nulls included. Wherever an item of a list is changed or removed
    by its index, a `test` on that item goes first, so that the patch fails as a whole when the list has moved under it.
    """
    operations: list[JsonObject] = []
    _object(operations, "", before, after)
    return operations


def _join(path: str, name: str | int) -> str:
    return f"{path}/{str(name).replace('~', '~0').replace('/', '~1')}"


def _object(operations: list[JsonObject], path: str, before: JsonObject, after: JsonObject) -> None:
    operations.extend({"op": "remove", "path": _join(path, name)} for name in before if name not in after)
    for name, new in after.items():
        where = _join(path, name)
        if name in before:
            _value(operations, where, before[name], new)
        else:
            operations.append({"op": "add", "path": where, "value": new})


def _value(operations: list[JsonObject], path: str, before: Json, after: Json) -> None:
    if is_object(before) and is_object(after):
        _object(operations, path, before, after)
    elif is_array(before) and is_array(after):
        _array(operations, path, before, after)
    elif not same(before, after):
        operations.append({"op": "replace", "path": path, "value": after})


def _array(operations: list[JsonObject], path: str, before: Sequence[Json], after: Sequence[Json]) -> None:
    keys = identities(before, after)

    def alike(old: int, new: int) -> bool:
        return same(before[old], after[new]) if keys is None else keys(0)[old] == keys(1)[new]

    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and alike(start, start):
        start += 1
    end = 0
    while end < shorter - start and alike(len(before) - 1 - end, len(after) - 1 - end):
        end += 1

    # Items that stay are changed in place, then the middle, from the back so that no index moves before its turn.
    for old, new in (
        *((index, index) for index in range(start)),
        *((len(before) - end + index, len(after) - end + index) for index in range(end)),
    ):
        _item(operations, path, old, before[old], after[new])
    paired = shorter - start - end
    for index in range(start, start + paired):
        if keys is None or alike(index, index):
            _item(operations, path, index, before[index], after[index])
        else:
            _test(operations, path, index, before[index])
            operations.append({"op": "replace", "path": _join(path, index), "value": after[index]})
    for index in range(len(before) - end - 1, start + paired - 1, -1):
        _test(operations, path, index, before[index])
        operations.append({"op": "remove", "path": _join(path, index)})
    for index in range(start + paired, len(after) - end):
        where = _join(path, index if end else "-")
        operations.append({"op": "add", "path": where, "value": after[index]})


def _item(operations: list[JsonObject], path: str, index: int, before: Json, after: Json) -> None:
    changes: list[JsonObject] = []
    _value(changes, _join(path, index), before, after)
    if changes:
        _test(operations, path, index, before)
        operations.extend(changes)


def _test(operations: list[JsonObject], path: str, index: int, item: Json) -> None:
    """By its name where it has one: the server's item may hold more than `item` does."""
    named = identity_field(item)
    if named is None:
        operations.append({"op": "test", "path": _join(path, index), "value": item})
    else:
        operations.append({"op": "test", "path": _join(_join(path, index), named[0]), "value": named[1]})


def apply_json_patch(document: Json, operations: Sequence[JsonObject]) -> Json:
    """`document` with the operations applied in order, as RFC 6902 says.

    Raises:
        JsonPatchError: One of them cannot be applied, or a `test` fails; then none of them counts.
    """
    for number, operation in enumerate(operations):
        path = operation.get("path")
        if not isinstance(path, str):
            raise JsonPatchError(number, "", "it has no path")
        try:
            document = _apply(document, path, operation)
        except _FailureError as error:
            raise JsonPatchError(number, path, str(error)) from None
    return document


def _apply(document: Json, path: str, operation: JsonObject) -> Json:
    op = operation.get("op")
    if op == "remove":
        return _edit(document, _split(path), "remove", None)
    if op in {"add", "replace", "test"}:
        if "value" not in operation:
            raise _FailureError(f"{op} needs a value")
        return _edit(document, _split(path), str(op), operation["value"])
    if op not in {"move", "copy"}:
        raise _FailureError(f"unknown operation {op!r}")
    source = operation.get("from")
    if not isinstance(source, str):
        raise _FailureError(f"{op} needs a from")
    value = _read(document, _split(source))
    if op == "move":
        if path.startswith(f"{source}/"):
            raise _FailureError("a value cannot be moved into itself")
        document = _edit(document, _split(source), "remove", None)
    return _edit(document, _split(path), "add", value)


class _FailureError(Exception):
    pass


def _split(path: str) -> list[str]:
    if not path:
        return []
    if not path.startswith("/"):
        raise _FailureError("a path starts with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _position(items: Sequence[Json], part: str, *, end: bool = False) -> int:
    if part == "-" and end:
        return len(items)
    if not (part.isascii() and part.isdigit()) or (part != "0" and part.startswith("0")):
        raise _FailureError(f"{part!r} is no index")
    index = int(part)
    if index > len(items) - (0 if end else 1):
        raise _FailureError(f"the list has {len(items)} items")
    return index


def _read(document: Json, parts: Sequence[str]) -> Json:
    for part in parts:
        if is_object(document):
            if part not in document:
                raise _FailureError(f"there is no {part!r}")
            document = document[part]
        elif is_array(document):
            document = document[_position(document, part)]
        else:
            raise _FailureError(f"{part!r} is asked of what is neither object nor list")
    return document


def _edit(document: Json, parts: Sequence[str], op: str, value: Json) -> Json:
    """A copy of `document` along the path; what is not on it is shared."""
    if not parts:
        if op == "remove":
            return None
        if op == "test":
            if not same(document, value):
                raise _FailureError("the test failed")
            return document
        return value
    first, rest = parts[0], parts[1:]
    if is_object(document):
        if first not in document and (rest or op != "add"):
            raise _FailureError(f"there is no {first!r}")
        members = dict(document)
        if op == "remove" and not rest:
            del members[first]
        else:
            members[first] = _edit(document.get(first), rest, op, value)
        return members
    if is_array(document):
        items = list(document)
        index = _position(document, first, end=op == "add" and not rest)
        if op == "remove" and not rest:
            del items[index]
        elif op == "add" and not rest:
            items.insert(index, value)
        else:
            items[index] = _edit(items[index], rest, op, value)
        return items
    raise _FailureError(f"{first!r} is asked of what is neither object nor list")
