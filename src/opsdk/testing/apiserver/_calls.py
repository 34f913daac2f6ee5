"""A request, understood: which kind, which object, which options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, final
from urllib.parse import unquote

from opsdk.client.transport import HttpRequest
from opsdk.testing.apiserver._json import Document, decode
from opsdk.testing.apiserver._kinds import KindInfo, KindRegistry
from opsdk.testing.apiserver._status import StatusError, bad_request, not_acceptable
from opsdk.testing.apiserver._tables import IncludeObject

__all__ = ["Call", "Rendering", "body_object", "negotiate", "route"]

Form: TypeAlias = Literal["object", "partial", "table"]
"""What of objects the client asked for: all, metadata only, or rows of a table."""

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
_ACCEPTABLE = ("application/json",)


@final
@dataclass(frozen=True, slots=True)
class Rendering:
    """How objects are to be written.

    Args:
        include_object: How much of an object a table's row carries.
        headers: Whether a table has column definitions; in a watch only the first has.
        of_list: Whether metadata was asked for as a list's, which one object cannot be, nor the other way round.
    """

    form: Form = "object"
    include_object: IncludeObject = "Metadata"
    headers: bool = True
    of_list: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to one resource.

    Args:
        namespace: Empty for cluster-scoped kinds and for all namespaces.
        name: Empty for the collection.
    """

    method: str
    info: KindInfo
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    rendering: Rendering

    @property
    def dry_run(self) -> bool:
        """Whether nothing may change."""
        return self.query.get("dryRun") == "All"

    @property
    def manager(self) -> str:
        """The field manager: the one given, else what the User-Agent begins with."""
        given = self.query.get("fieldManager", "")
        if given:
            return given
        agent = self.headers.get("user-agent", "").split("/", 1)[0]
        return agent or "unknown"

    @property
    def content_type(self) -> str:
        """The body's media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def watch(self) -> bool:
        """Whether a list is to be a watch."""
        return self.method == "GET" and not self.name and self.query.get("watch", "") in {"true", "1", "True"}

    @property
    def prefix(self) -> str:
        """What the keys of the collection begin with."""
        return f"{self.namespace}/" if self.info.namespaced and self.namespace else ""


def route(registry: KindRegistry, request: HttpRequest) -> Call | None:
    """The resource at a path; None when there is none."""
    parts = [unquote(part) for part in request.path.strip("/").split("/")]
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    namespace = ""
    if (
        len(rest) >= 3
        and rest[0] == "namespaces"
        and not (len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES and not group)
    ):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or not all(rest):
        return None
    info = registry.find(group, version, rest[0])
    if info is None or (namespace and not info.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else ""
    if info.namespaced and name and not namespace:
        return None
    return Call(
        method=request.method,
        info=info,
        namespace=namespace,
        name=name,
        subresource=rest[2] if len(rest) > 2 else "",
        query=dict(request.query),
        headers=request.headers,
        body=request.body or b"",
        rendering=negotiate(request.headers.get("accept", ""), dict(request.query).get("includeObject", "")),
    )


def negotiate(accept: str, include_object: str = "") -> Rendering:
    """What an Accept header asks for.

    Args:
        include_object: The query parameter of that name.

    Raises:
        StatusError: 406, nothing that the server can write.
    """
    if not accept:
        return _OBJECT
    for choice in accept.split(","):
        media_type, *parameters = (part.strip() for part in choice.split(";"))
        if media_type not in {"application/json", "application/*", "*/*"}:
            continue
        options: dict[str, str] = {}
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            options[name] = value
        match options.get("as", ""):
            case "Table":
                if options.get("v") == "v1":
                    return Rendering("table", _include(include_object))
            case "PartialObjectMetadata" | "PartialObjectMetadataList" as form:
                return Rendering("partial", of_list=form == "PartialObjectMetadataList")
            case _:
                return _OBJECT
    raise not_acceptable(_ACCEPTABLE)


_OBJECT = Rendering()


def _include(text: str) -> IncludeObject:
    match text:
        case "None" | "Object":
            return text
        case _:
            return "Metadata"


def _unrecognized(call: Call, why: str) -> StatusError:
    kind = call.info.kind
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
        f"json parse error: {why}"
    )


def body_object(call: Call) -> Document:
    """The body as a JSON object.

    Raises:
        StatusError: 400, it is none.
    """
    try:
        document = decode(call.body)
    except ValueError as error:
        raise _unrecognized(call, str(error)) from error
    if not isinstance(document, dict):
        raise _unrecognized(call, "the body is not an object")
    return document
