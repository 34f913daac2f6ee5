"""Error answers: the `Status` bodies that kube-apiserver sends, with its reasons, codes and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from opsdk.testing.apiserver._fields import FieldError, go_quote
from opsdk.testing.apiserver._json import Document, Value, encode
from opsdk.testing.apiserver._kinds import KindInfo

__all__ = [
    "StatusError",
    "already_exists",
    "apply_conflict",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "invalid",
    "invalid_patch",
    "method_not_allowed",
    "not_acceptable",
    "not_found",
    "not_that_form",
    "success",
    "too_large_version",
    "unknown_resource",
    "unsupported_media_type",
]

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@final
class StatusError(Exception):
    """An answer that is an error; carries the whole `Status`."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Document | None = None,
        continue_token: str = "",
        retry_after_seconds: int | None = None,
    ) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Document | None = None if details is None else dict(details)
        self.continue_token = continue_token
        self.retry_after_seconds = retry_after_seconds
        if retry_after_seconds is not None:
            self.details = {**(details or {}), "retryAfterSeconds": retry_after_seconds}
        super().__init__(f"{code} {reason}: {message}")

    def document(self) -> Document:
        """The `Status` object."""
        metadata: Document = {"continue": self.continue_token} if self.continue_token else {}
        status: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status

    def body(self) -> bytes:
        """The `Status` object as bytes."""
        return encode(self.document())


def _details(info: KindInfo, name: str, *, kind: str | None = None) -> Document:
    details: Document = {}
    if name:
        details["name"] = name
    if info.group:
        details["group"] = info.group
    details["kind"] = kind or info.plural
    return details


def not_found(info: KindInfo, name: str) -> StatusError:
    """404: no object of that name."""
    return StatusError(404, "NotFound", f'{info.resource} "{name}" not found', details=_details(info, name))


def already_exists(info: KindInfo, name: str, *, deleting: bool = False) -> StatusError:
    """409: the name is taken, perhaps by an object on its way out."""
    text = f'{info.resource} "{name}" already exists'
    if deleting:
        text = f"object is being deleted: {text}"
    return StatusError(409, "AlreadyExists", text, details=_details(info, name))


def conflict(info: KindInfo, name: str, why: str = _MODIFIED) -> StatusError:
    """409: written since it was read, or a precondition failed."""
    text = f'Operation cannot be fulfilled on {info.resource} "{name}": {why}'
    return StatusError(409, "Conflict", text, details=_details(info, name))


def invalid(info: KindInfo, name: str, errors: Sequence[FieldError], *, by_resource: bool = False) -> StatusError:
    """422: the object is not valid.

    Args:
        by_resource: Name the resource where the kind is named otherwise, as the server does in some places.
    """
    what = info.plural if by_resource else info.kind
    kind = f"{what}.{info.group}" if info.group else what
    details = _details(info, name, kind=what)
    causes: list[Value] = []
    texts: list[str] = []
    for error in errors:
        causes.append({"reason": error.reason, "message": error.message, "field": error.field})
        text = f"{error.field}: {error.message}"
        if text not in texts:
            texts.append(text)
    if causes:
        details["causes"] = causes
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {joined}', details=details)


def invalid_patch(patch: str, why: str) -> StatusError:
    """422: what a patch makes is no object of the kind."""
    message = f"Invalid value: {go_quote(patch)}: {why}"
    details: Document = {"causes": [{"reason": "FieldValueInvalid", "message": message, "field": "patch"}]}
    return StatusError(422, "Invalid", f' "" is invalid: patch: {message}', details=details)


def apply_conflict(conflicts: Sequence[tuple[str, str]]) -> StatusError:
    """409: other managers own fields that an apply wants to change.

    Args:
        conflicts: Pairs of a manager's description and a field path, in order.
    """
    by_manager: dict[str, list[str]] = {}
    for manager, path in conflicts:
        by_manager.setdefault(manager, []).append(path)
    causes: list[Value] = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for manager, path in conflicts
    ]
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        text = f"Apply failed with 1 conflict: conflict with {manager}: {path}"
    else:
        lines: list[str] = []
        for manager, paths in sorted(by_manager.items()):
            lines.append(f"conflicts with {manager}:")
            lines.extend(f"- {path}" for path in paths)
        text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", text, details={"causes": causes})


def bad_request(message: str) -> StatusError:
    """400: the request makes no sense."""
    return StatusError(400, "BadRequest", message)


def forbidden(info: KindInfo, name: str, why: str, *, causes: Sequence[FieldError] = ()) -> StatusError:
    """403: admission refuses it."""
    details = _details(info, name)
    if causes:
        found: list[Value] = [
            {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes
        ]
        details["causes"] = found
    return StatusError(403, "Forbidden", f'{info.resource} "{name}" is forbidden: {why}', details=details)


def method_not_allowed() -> StatusError:
    """405: the path does not have this method."""
    text = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", text, details={})


def unknown_resource() -> StatusError:
    """404: nothing is at the path."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    """406: the client accepts none of what the server can write."""
    text = f"only the following media types are accepted: {', '.join(accepted)}"
    return StatusError(406, "NotAcceptable", text)


def not_that_form(info: KindInfo, *, of_list: bool) -> StatusError:
    """406: metadata was asked for as a list's, of one object; or as one object's, of a list.

    Args:
        of_list: What was asked for.
    """
    package = info.group.partition(".")[0] or "core"
    kind = f"{package}.{info.kind}" if info.builtin else "unstructured.Unstructured"
    text = (
        f"you requested PartialObjectMetadataList, but the requested object is not a list (*{kind})"
        if of_list
        else f"you requested PartialObjectMetadata, but the requested object is a list (*{kind}List)"
    )
    return StatusError(406, "NotAcceptable", text)


def unsupported_media_type(accepted: Sequence[str] = ()) -> StatusError:
    """415: the body's content type is not one this request takes.

    Args:
        accepted: What it takes, where the server says so.
    """
    if not accepted:
        return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    text = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return StatusError(415, "UnsupportedMediaType", text)


def expired(message: str, *, continue_token: str = "") -> StatusError:
    """410: the version or token is older than what the server remembers."""
    return StatusError(410, "Expired", message, continue_token=continue_token)


def too_large_version(wanted: int, current: int) -> StatusError:
    """504: a version from the future."""
    causes: list[Value] = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={"causes": causes},
        retry_after_seconds=1,
    )


def success(info: KindInfo, name: str, uid: str) -> Document:
    """The `Status` that answers a delete whose object is gone."""
    details: Document = {"name": name}
    if info.group:
        details["group"] = info.group
    details["kind"] = info.plural
    details["uid"] = uid
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
