"""Answers that are errors, as exceptions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, timedelta

import msgspec

from opsdk import clock
from opsdk.errors import (
    AlreadyExistsError,
    ApiStatusError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    MethodNotAllowedError,
    NotFoundError,
    ServerError,
    ServerTimeoutError,
    StatusCause,
    TooManyRequestsError,
    UnauthorizedError,
    UnsupportedMediaTypeError,
)
from opsdk.types import Json

__all__ = ["conflict", "retry_after_of", "status_error"]

_BY_CODE: dict[int, type[ApiStatusError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    405: MethodNotAllowedError,
    409: ConflictError,
    410: GoneError,
    415: UnsupportedMediaTypeError,
    422: InvalidError,
    429: TooManyRequestsError,
    504: ServerTimeoutError,
}
_LONGEST_PAGE = 200
_NO_SUCH_PATH = "404 page not found"
"""What an API server says of a path that none of its kinds has."""
_PATH_OF_KIND = re.compile(
    r"/apis/(?P<group>[^/]+)/(?P<version>[^/]+)/(namespaces/[^/]+/(?=[^/]))?(?P<plural>[^/?]+)(/[^/]+)?"
)
_GROUP_OF_KUBERNETES = re.compile(
    r"[^.]+|(admissionregistration|apiextensions|apiregistration|authentication|(rbac\.)?authorization|certificates"
    r"|coordination|discovery|events|(flowcontrol|internal)\.apiserver|networking|node|resource|scheduling|storage"
    r"|storagemigration)\.k8s\.io"
)
_LONGEST_WAIT_SECONDS = 86_400.0


def _class_of(code: int, reason: str) -> type[ApiStatusError]:
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExistsError
    if reason == "Expired":
        return GoneError
    return _BY_CODE.get(code, ServerError if code >= 500 else ApiStatusError)


def _text(document: Mapping[str, Json], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _parse(body: bytes) -> Mapping[str, Json] | None:
    try:
        document: Json = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if not isinstance(document, Mapping) or document.get("kind") != "Status":
        return None
    return document


def _page_text(body: bytes) -> str:
    """The first words of a body that is no Status: a proxy's page, without its markup."""
    text = body[:16_384].decode("utf-8", errors="replace")
    text = re.sub(r"(?is)<(script|style)\b.*?(</\1>|$)|<[^>]*(>|$)", " ", text)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_PAGE else f"{text[: _LONGEST_PAGE - 1]}…"


def _seconds(value: float) -> timedelta | None:
    return timedelta(seconds=min(max(value, 0.0), _LONGEST_WAIT_SECONDS)) if math.isfinite(value) else None


def retry_after_of(headers: Mapping[str, str], details: Mapping[str, Json]) -> timedelta | None:
    """How long the server asks to wait, by its `Retry-After` (seconds or a date) or in the Status's details."""
    header = headers.get("retry-after", "").strip()
    if header:
        try:
            return _seconds(float(header))
        except ValueError:
            pass
        from email.utils import parsedate_to_datetime  # for a date instead of seconds, which hardly anybody sends

        try:
            until = parsedate_to_datetime(header)
        except ValueError:
            pass
        else:
            return _seconds(((until if until.tzinfo else until.replace(tzinfo=UTC)) - clock.now()).total_seconds())
    seconds = details.get("retryAfterSeconds")
    return _seconds(seconds) if isinstance(seconds, int | float) and seconds else None


def _hint(code: int, name: str, request: str) -> str:
    """What a 404 means that is not about one object: the server does not have the kind."""
    path = request.rpartition(" ")[2]
    found = _PATH_OF_KIND.fullmatch(path)
    if code != 404 or name or found is None:
        return ""
    group, version, plural = found["group"], found["version"], found["plural"]
    crd = "" if _GROUP_OF_KUBERNETES.fullmatch(group) else "; is the CRD installed?"
    return f"the server has no {plural}.{group}/{version}{crd}"


def status_error(
    code: int | None, body: bytes, *, headers: Mapping[str, str] | None = None, request: str = ""
) -> ApiStatusError:
    """The error that an answer stands for.

    Args:
        code: The HTTP status code; None: the one within the Status (an ERROR event of a watch has no other).
        body: A Status, or anything else.
        headers: The answer's, names in lower case.
        request: Verb and path, for the text.
    """
    headers = headers or {}
    status = _parse(body)
    if status is None:
        code = code or 500
        text = _page_text(body)
        return _class_of(code, "")(
            code,
            message=text,
            retry_after=retry_after_of(headers, {}),
            request=request,
            hint=_hint(code, "", request) if text.lower() == _NO_SUCH_PATH else "",
        )
    inner = status.get("code")
    code = code or (inner if isinstance(inner, int) and inner else 500)
    reason = _text(status, "reason")
    details = _object(status.get("details"))
    causes = details.get("causes")
    return _class_of(code, reason)(
        code,
        reason=reason,
        message=_text(status, "message"),
        kind=_text(details, "kind"),
        name=_text(details, "name"),
        causes=[
            StatusCause(_text(cause, "field"), _text(cause, "reason"), _text(cause, "message"))
            for cause in (causes if isinstance(causes, list) else ())
            if isinstance(cause, Mapping)
        ],
        retry_after=retry_after_of(headers, details),
        request=request,
        hint=_hint(code, _text(details, "name"), request),
    )


def conflict(kind: str, name: str, message: str) -> ConflictError:
    """A conflict that was seen before anything was sent."""
    return ConflictError(409, reason="Conflict", message=message, kind=kind, name=name)
