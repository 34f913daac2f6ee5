"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386), with the API server's errors."""

from __future__ import annotations

from opsdk.testing.apiserver._json import Document, Value, as_list, as_text, clone
from opsdk.testing.apiserver._status import StatusError, bad_request

__all__ = ["json_patch", "merge_patch"]


def merge_patch(target: Value, patch: Value) -> Value:
    """The target with the patch laid over it; objects of the target are changed in place."""
    if not isinstance(patch, dict):
        return patch
    result: Document = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Value, operations: Value) -> Value:
    """The target after all operations; it is changed in place.

    Raises:
        StatusError: 400 for what is no JSON patch, 422 for an operation that does not fit the target.
    """
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    for entry in as_list(operations):
        if not isinstance(entry, dict):
            raise bad_request("error decoding patch: an operation is not an object")
        try:
            target = _operate(target, entry)
        except _PatchError as error:
            # The server does not say which operation it was.
            text = "the server rejected our request due to an error in our request"
            raise StatusError(422, "Invalid", text, details={}) from error
    return target


class _PatchError(Exception):
    """An operation does not fit the document."""


def _operate(root: Value, operation: Document) -> Value:
    op = as_text(operation.get("op"))
    pointer = operation.get("path")
    if not isinstance(pointer, str):
        raise bad_request("error decoding patch: an operation has no path")
    if op in {"add", "replace", "test"} and "value" not in operation and op != "test":
        raise _PatchError(f"{op} operation does not have a value: missing value")
    match op:
        case "add":
            return _add(root, pointer, operation["value"])
        case "remove":
            return _remove(root, pointer, "remove")
        case "replace":
            if pointer == "":
                return operation["value"]
            _lookup(root, pointer, "replace")
            return _replace(root, pointer, operation["value"])
        case "move":
            source = as_text(operation.get("from"))
            value = _lookup(root, source, "move")
            return _add(_remove(root, source, "move"), pointer, value)
        case "copy":
            return _add(root, pointer, clone(_lookup(root, as_text(operation.get("from")), "copy")))
        case "test":
            try:
                found: Value = _lookup(root, pointer, "test")
            except _PatchError:
                if operation.get("value") is None:
                    return root
                raise
            if not _equal(found, operation.get("value")):
                raise _PatchError(f"testing value {pointer} failed: test failed")
            return root
        case _:
            raise _PatchError(f"Unexpected kind: {op or 'unknown'}")


def _equal(one: Value, other: Value) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other


def _parts(pointer: str, op: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise _PatchError(f"{op} operation does not apply: doc is missing path: {pointer}: missing value")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _missing(op: str, pointer: str) -> _PatchError:
    return _PatchError(f'{op} operation does not apply: doc is missing path: "{pointer}": missing value')


def _step(container: Value, part: str, op: str, pointer: str) -> Value:
    if isinstance(container, dict) and part in container:
        return container[part]
    if isinstance(container, list):
        return container[_index(container, part, op, pointer)]
    raise _missing(op, pointer)


def _index(container: list[Value], part: str, op: str, pointer: str) -> int:
    digits = part.removeprefix("-")
    if not digits.isdigit():
        raise _missing(op, pointer)
    index = int(part)
    if not -len(container) <= index < len(container):
        raise _PatchError(f'{op} operation does not apply: doc is missing path: "{pointer}": invalid index referenced')
    return index


def _lookup(root: Value, pointer: str, op: str) -> Value:
    value = root
    for part in _parts(pointer, op):
        value = _step(value, part, op, pointer)
    return value


def _container(root: Value, pointer: str, op: str) -> tuple[Value, str]:
    parts = _parts(pointer, op)
    value = root
    for part in parts[:-1]:
        value = _step(value, part, op, pointer)
    return value, parts[-1]


def _add(root: Value, pointer: str, value: Value) -> Value:
    if pointer == "":
        return value
    container, last = _container(root, pointer, "add")
    if isinstance(container, dict):
        container[last] = value
    elif isinstance(container, list):
        if last == "-":
            container.append(value)
        elif last.isdigit() and int(last) <= len(container):
            container.insert(int(last), value)
        else:
            raise _PatchError(
                f'add operation does not apply: doc is missing path: "{pointer}": invalid index referenced'
            )
    else:
        raise _missing("add", pointer)
    return root


def _replace(root: Value, pointer: str, value: Value) -> Value:
    container, last = _container(root, pointer, "replace")
    if isinstance(container, dict):
        container[last] = value
    elif isinstance(container, list):
        container[_index(container, last, "replace", pointer)] = value
    return root


def _remove(root: Value, pointer: str, op: str) -> Value:
    if pointer == "":
        raise _PatchError(f"{op} operation does not apply: the whole document cannot be removed")
    container, last = _container(root, pointer, op)
    if isinstance(container, dict):
        if last not in container:
            raise _missing(op, pointer)
        del container[last]
    elif isinstance(container, list):
        del container[_index(container, last, op, pointer)]
    else:
        raise _missing(op, pointer)
    return root
