"""GET: one object, or a list in pages of one snapshot."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from opsdk.testing.apiserver._calls import Call
from opsdk.testing.apiserver._cluster import Cluster
from opsdk.testing.apiserver._fields import FieldError, forbidden, invalid
from opsdk.testing.apiserver._json import Document, as_object, decode, encode
from opsdk.testing.apiserver._render import render_list, render_object
from opsdk.testing.apiserver._selectors import Selection, selection
from opsdk.testing.apiserver._status import StatusError, bad_request, expired, not_found, too_large_version
from opsdk.testing.apiserver._store import Stored, TooOldError

__all__ = ["get_object", "list_objects", "list_options_error", "parse_version", "select"]

_EXPIRED_PAGE: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_EXPIRED_EXACT: Final = "The resourceVersion for the provided list is too old."


def get_object(cluster: Cluster, call: Call) -> bytes:
    """One object.

    Raises:
        StatusError: 404; 504, a version from the future was asked for.
    """
    _check_future(cluster, parse_version(call.query.get("resourceVersion", "")))
    stored = cluster.find(call.info, call.namespace, call.name)
    if stored is None:
        raise not_found(call.info, call.name)
    return render_object(call.info, stored, call.rendering)


def select(call: Call, selectable: Mapping[str, str]) -> Selection:
    """Which objects of the collection a request is about.

    Raises:
        StatusError: 400, a selector is not valid.
    """
    query = call.query
    return selection(call.info, query.get("labelSelector", ""), query.get("fieldSelector", ""), selectable)


def parse_version(text: str) -> int:
    """A resourceVersion as a number, 0 when none is given.

    Raises:
        StatusError: 400, it is none.
    """
    if not text:
        return 0
    if not text.isdigit():
        why = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"invalid resource version: resourceVersion: {why}")
    return int(text)


def list_options_error(*errors: FieldError) -> StatusError:
    """422: list options that contradict each other."""
    causes: Document = {
        "group": "meta.k8s.io",
        "kind": "ListOptions",
        "causes": [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors],
    }
    joined = ", ".join(f"{error.field}: {error.message}" for error in errors)
    joined = joined if len(errors) == 1 else f"[{joined}]"
    return StatusError(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {joined}', details=causes)


def list_objects(cluster: Cluster, call: Call, selectable: Mapping[str, str]) -> bytes:
    """The collection, or one page of it.

    Raises:
        StatusError: 400 for bad selectors and tokens, 410 for a snapshot that is forgotten, 422 for options that do
            not go together, 504 for a version from the future.
    """
    query = call.query
    chosen = select(call, selectable)
    limit = max(_integer(query.get("limit", "")), 0)
    _integer(query.get("timeoutSeconds", ""))
    token = query.get("continue", "")
    match = query.get("resourceVersionMatch", "")
    wanted_text = query.get("resourceVersion", "")
    _check_options(match, wanted_text, token, query.get("sendInitialEvents", ""))
    wanted = parse_version(wanted_text)
    start = ""
    if token:
        if wanted:
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, start = _read_token(token, call.prefix)
        if revision < 0:
            revision = cluster.store.revision
    else:
        _check_future(cluster, wanted)
        exact = match == "Exact" or (limit > 0 and wanted > 0 and not match)
        revision = wanted if exact else cluster.store.revision
    try:
        items, following = _page(cluster, call, chosen, revision, start, limit)
    except TooOldError as error:
        if not token:
            raise expired(_EXPIRED_EXACT) from error
        raise expired(_EXPIRED_PAGE, continue_token=_token(-1, start, call.prefix)) from error
    metadata: Document = {"resourceVersion": str(revision)}
    if following is not None:
        metadata["continue"] = _token(revision, f"{items[-1].key}\0", call.prefix)
        if chosen.everything:
            metadata["remainingItemCount"] = 1 + sum(1 for _ in following)
    return render_list(call.info, items, metadata, call.rendering)


def _page(
    cluster: Cluster, call: Call, chosen: Selection, revision: int, start: str, limit: int
) -> tuple[list[Stored], Iterator[Stored] | None]:
    if chosen.name and (call.namespace or not call.info.namespaced):
        source = _only(cluster, call, chosen, revision, start)
    else:
        source = cluster.store.listed_at(call.info.storage, revision, call.prefix, start)
    matching = source if chosen.everything else (stored for stored in source if chosen.matches(stored))
    if not limit:
        return list(matching), None
    items = list(islice(matching, limit))
    more = next(matching, None)
    return items, None if more is None else matching


def _only(cluster: Cluster, call: Call, chosen: Selection, revision: int, start: str) -> Iterator[Stored]:
    # The one object that a selector names, without a walk over the others.
    key = call.info.key(call.namespace, chosen.name)
    if key < start:
        return
    for stored in cluster.store.listed_at(call.info.storage, revision, key):
        if stored.key == key:
            yield stored
        return


def _integer(text: str) -> int:
    if not text:
        return 0
    if not text.lstrip("-").isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _check_options(match: str, version: str, token: str, initial_events: str) -> None:
    if initial_events:
        raise list_options_error(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if not match:
        return
    if not version:
        raise list_options_error(
            forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
        )
    if token:
        raise list_options_error(
            forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
        )
    if match not in {"Exact", "NotOlderThan"}:
        raise list_options_error(
            FieldError(
                "resourceVersionMatch",
                "FieldValueNotSupported",
                f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""',
            )
        )
    if match == "Exact" and version == "0":
        raise list_options_error(
            forbidden("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        )


def _check_future(cluster: Cluster, version: int) -> None:
    if version > cluster.store.revision:
        raise too_large_version(version, cluster.store.revision)


def _token(revision: int, start: str, prefix: str) -> str:
    content: Document = {"v": "meta.k8s.io/v1", "rv": revision, "start": start.removeprefix(prefix)}
    return base64.urlsafe_b64encode(encode(content)).rstrip(b"=").decode()


def _read_token(token: str, prefix: str) -> tuple[int, str]:
    try:
        content = as_object(decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))))
    except (ValueError, binascii.Error) as error:
        raise bad_request("invalid continue token: continue key is not valid: illegal base64 data") from error
    revision, start = content.get("rv"), content.get("start")
    if content.get("v") != "meta.k8s.io/v1" or not isinstance(revision, int) or not isinstance(start, str):
        raise bad_request("invalid continue token: continue key is not valid: incorrect encoded format")
    return revision, prefix + start


def invalid_option(field: str, value: str, why: str) -> StatusError:
    """422: one list option is not valid."""
    return list_options_error(invalid(field, value, why))
