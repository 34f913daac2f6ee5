"""From what a client sent to what is stored: the one way that creates and updates of every kind take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from opsdk.testing.apiserver._builtin_fields import fill_nulls, type_fault, unknown_fields
from opsdk.testing.apiserver._calls import Call
from opsdk.testing.apiserver._cluster import Cluster
from opsdk.testing.apiserver._crds import CRD
from opsdk.testing.apiserver._defaults import default_builtin, prepare_builtin, without_nulls
from opsdk.testing.apiserver._fields import FieldError, go_json
from opsdk.testing.apiserver._go_json import omit_empty
from opsdk.testing.apiserver._json import Document, Value, as_object, as_text
from opsdk.testing.apiserver._kinds import KindInfo
from opsdk.testing.apiserver._managed_fields import Manager, track, without_managed_fields
from opsdk.testing.apiserver._metadata import (
    clean_metadata,
    fill_in,
    generate_name,
    kept_on_update,
    validate_metadata,
    validate_update,
)
from opsdk.testing.apiserver._namespaces import admit
from opsdk.testing.apiserver._schema import default_crd, validate_crd
from opsdk.testing.apiserver._status import StatusError, already_exists, bad_request, conflict, invalid, invalid_patch
from opsdk.testing.apiserver._store import Stored
from opsdk.testing.apiserver._validation import check_times, validate_builtin
from opsdk.testing.apiserver._versions import from_storage, to_storage
from opsdk.testing.apiserver._warnings import finalizer_warnings

__all__ = ["Outcome", "Writer", "check_type"]

_NAME_TRIES: Final = 8
_NOT_IN_GENERATION: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """What a write came to.

    Args:
        code: The status code of the answer.
        document: The object, in the version of the request.
    """

    code: int
    document: Document


def check_type(info: KindInfo, document: Document) -> None:
    """Refuse a body that is of another kind or version than its path; fill both in where they are missing.

    Raises:
        StatusError: 400.
    """
    version, kind = document.get("apiVersion"), document.get("kind")
    if not version and not kind and info.builtin:
        document["apiVersion"], document["kind"] = info.api_version, info.kind
        return
    if not kind:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {info.kind}): couldn't get version/kind; "
            "Object 'Kind' is missing"
        )
    if kind != info.kind and not info.builtin and version == info.api_version:
        fault = FieldError("kind", "FieldValueInvalid", f'Invalid value: "{as_text(kind)}": must be {info.kind}')
        named = replace(info, kind=as_text(kind))
        raise invalid(named, as_text(as_object(document.get("metadata")).get("name")), [fault])
    if kind != info.kind:
        raise bad_request(
            f'{as_text(kind)} in version "{as_text(version).rpartition("/")[2]}" cannot be handled as a {info.kind}: '
            f'no kind "{as_text(kind)}" is registered for the path of {info.resource}'
        )
    if version != info.api_version:
        raise bad_request(
            f"the API version in the data ({as_text(version)}) does not match the expected API version "
            f"({info.api_version})"
        )


@final
class Writer:
    """Creates and updates objects of a cluster.

    Args:
        addresses: Gives free cluster IPs.
    """

    def __init__(self, cluster: Cluster, addresses: Callable[[], str]) -> None:
        self._cluster = cluster
        self._addresses = addresses

    def create(self, call: Call, document: Document, manager: Manager | None) -> Outcome:
        """Create an object.

        Args:
            document: What the client sent, in the request's version; changed in place.
            manager: Who owns its fields; None: `managedFields` is right already.

        Raises:
            StatusError: The object is refused.
        """
        info = call.info
        metadata = clean_metadata(document, info)
        self._settle_namespace(call, metadata)
        name = as_text(metadata.get("name"))
        if info.namespaced:
            admit(self._cluster, info, call.namespace, name)
        if metadata.pop("resourceVersion", None):
            raise bad_request("resourceVersion should not be set on objects to be created")
        generated = not name and bool(metadata.get("generateName"))
        if generated:
            self._generate(info, call.namespace, metadata)
        if manager is not None:
            metadata.pop("managedFields", None)
        fill_in(metadata, info, now=self._cluster.now_text())
        if "status" in info.subresources:
            document.pop("status", None)
        self._complete(call, document)
        if manager is not None:
            self._track(info, None, document, manager)
        self._prepare(info, document, None)
        errors = validate_metadata(metadata, info) + self._faults(info, document, None)
        if errors:
            raise invalid(info, as_text(metadata.get("name")), errors)
        there = self._cluster.find(info, call.namespace, as_text(metadata.get("name")))
        if there is not None:
            raise already_exists(info, there.name, deleting=there.deleting)
        if not call.dry_run:
            stored = self._cluster.put(info, to_storage(info, document))
            document = from_storage(info, stored.document())
        return Outcome(201, document)

    def update(
        self, call: Call, stored: Stored, document: Document, manager: Manager | None, *, conditional: bool = False
    ) -> Outcome:
        """Update an object through its main endpoint, or through one that writes the same fields.

        Args:
            stored: The object as it is.
            document: What it shall be, in the request's version; changed in place.
            conditional: The document is a whole one that was read: its uid is a precondition, and a kind may ask for
                its resourceVersion.

        Raises:
            StatusError: The update is refused.
        """
        info = call.info
        old = from_storage(info, stored.document())
        metadata = clean_metadata(document, info)
        self._settle_namespace(call, metadata)
        self._check_version(info, stored, metadata, conditional=conditional)
        if "status" in info.subresources:
            _take(document, old, "status")
        self._complete(call, document)
        old_metadata = as_object(old["metadata"])
        kept_on_update(metadata, old_metadata)
        if manager is not None:
            self._track(info, old, document, manager)
        self._prepare(info, document, old)
        if info.generation and _differs(info, old, document):
            generation = metadata.get("generation")
            metadata["generation"] = (generation if isinstance(generation, int) else 0) + 1
        errors = validate_update(metadata, old_metadata, info) + self._faults(info, document, old)
        if errors:
            raise invalid(info, stored.name, errors)
        return self._finish(call, stored, old, document)

    def update_status(self, call: Call, stored: Stored, document: Document, manager: Manager | None) -> Outcome:
        """Update an object's status and nothing else, whatever the document says.

        Raises:
            StatusError: The update is refused.
        """
        info = call.info
        old = from_storage(info, stored.document())
        sent = clean_metadata(document, info)
        self._settle_namespace(call, sent)
        self._check_version(info, stored, sent, conditional=False)
        metadata = dict(as_object(old["metadata"]))
        if manager is None:
            _take(metadata, sent, "managedFields")
        changed: Document = {**old, "metadata": metadata}
        _take(changed, document, "status")
        if call.subresource == "finalize":
            changed = {**old, "metadata": metadata, "spec": document.get("spec")}
        if info.builtin:
            without_nulls(changed.get("status"))
        self._complete(call, changed)
        if manager is not None:
            self._track(info, old, changed, manager)
        self._prepare(info, changed, old)
        schema = self._cluster.schema(info)
        errors = self._faults(info, changed, old) if schema is None else schema.validate(changed, old, status_only=True)
        if errors:
            raise invalid(info, stored.name, errors)
        return self._finish(call, stored, old, changed)

    # Steps

    def _finish(self, call: Call, stored: Stored, old: Document, document: Document) -> Outcome:
        info = call.info
        metadata = as_object(document["metadata"])
        metadata["resourceVersion"] = str(stored.revision)
        if _same(old, document):
            return Outcome(200, old)
        if not call.dry_run:
            after, gone = self._cluster.update(info, stored, to_storage(info, document))
            if not gone:
                document = from_storage(info, after.document())
        return Outcome(200, document)

    def _track(self, info: KindInfo, old: Document | None, document: Document, manager: Manager) -> None:
        structure = self._cluster.structure(info)
        track(old, document, structure, manager, time=self._cluster.now_text())

    def _settle_namespace(self, call: Call, metadata: Document) -> None:
        if not call.info.namespaced:
            return
        if metadata.get("namespace", call.namespace) != call.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = call.namespace

    def _generate(self, info: KindInfo, namespace: str, metadata: Document) -> None:
        prefix = as_text(metadata.get("generateName"))
        for _ in range(_NAME_TRIES):
            metadata["name"] = generate_name(prefix)
            if self._cluster.find(info, namespace, as_text(metadata["name"])) is None:
                return

    def _check_version(self, info: KindInfo, stored: Stored, metadata: Document, *, conditional: bool) -> None:
        uid = as_text(metadata.get("uid"))
        if uid and uid != stored.uid and conditional:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.uid}"
            raise conflict(info, stored.name, why)
        version = as_text(metadata.get("resourceVersion"))
        if version in {"", "0"}:
            if conditional and info.conditional_update:
                error = FieldError(
                    "metadata.resourceVersion",
                    "FieldValueInvalid",
                    "Invalid value: 0: must be specified for an update",
                )
                raise invalid(info, stored.name, [error], by_resource=True)
            return
        if not version.isdigit():
            raise invalid(
                info,
                stored.name,
                [
                    FieldError(
                        "metadata.resourceVersion",
                        "FieldValueInvalid",
                        f'Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax',
                    )
                ],
            )
        if version != str(stored.revision):
            raise conflict(info, stored.name)

    def _complete(self, call: Call, document: Document) -> None:
        """Defaults and pruning."""
        info = call.info
        schema = self._cluster.schema(info)
        if schema is not None:
            self._judge_unknown(call, schema.prune(document))
            for text in finalizer_warnings(document):
                self._cluster.warn(text)
            schema.default(document)
            return
        if not info.builtin:
            return
        fault = type_fault(info, document)
        if fault is not None:
            raise _undecodable(call, document, fault)
        fill_nulls(info, document)
        self._judge_unknown(call, unknown_fields(info, document))
        for name, value in document.items():
            if name != "metadata":
                without_nulls(value)
        omit_empty(info, document)
        check_times(info, document)
        for name in [name for name, value in document.items() if value is None]:
            del document[name]
        if info.resource == CRD.resource:
            default_crd(document)
        if "status" in info.subresources:
            document.setdefault("status", {})
        default_builtin(info, document)

    def _judge_unknown(self, call: Call, unknown: Sequence[str]) -> None:
        """Refuse, warn of or ignore unknown fields, as the client wishes."""
        match call.query.get("fieldValidation", ""):
            case "Ignore":
                return
            case "Strict":
                _refuse_unknown(call.info, unknown)
            case _:
                for path in unknown:
                    self._cluster.warn(f'unknown field "{path}"')

    def _prepare(self, info: KindInfo, document: Document, old: Document | None) -> None:
        """What the server sets by itself."""
        if info.builtin:
            prepare_builtin(info, document, old, self._addresses)

    def _faults(self, info: KindInfo, document: Document, old: Document | None) -> list[FieldError]:
        schema = self._cluster.schema(info)
        if schema is not None:
            return schema.validate(document, old)
        if info.resource == CRD.resource:
            return validate_crd(document, old, rules=self._cluster.rules)
        return validate_builtin(info, document, old) if info.builtin else []


def _take(target: Document, source: Document, name: str) -> None:
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


def _differs(info: KindInfo, old: Document, new: Document) -> bool:
    """Whether the desired state differs: what `generation` counts."""
    if info.builtin and ("spec" in old or "spec" in new):
        return old.get("spec") != new.get("spec")
    skipped = _NOT_IN_GENERATION if info.builtin or "status" in info.subresources else _NOT_IN_GENERATION - {"status"}
    names = (old.keys() | new.keys()) - skipped
    return any(old.get(name) != new.get(name) for name in names)


def _same(old: Document, new: Document) -> bool:
    """Whether a write would change nothing; the times of managers alone are nothing."""
    if without_managed_fields(old) != without_managed_fields(new):
        return False
    return _untimed(old) == _untimed(new)


def _untimed(document: Document) -> list[Value]:
    entries = as_object(document["metadata"]).get("managedFields")
    if not isinstance(entries, list):
        return []
    return [{name: value for name, value in as_object(entry).items() if name != "time"} for entry in entries]


def _refuse_unknown(info: KindInfo, unknown: Sequence[str]) -> None:
    if unknown:
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise _not_decodable(info, f"strict decoding error: {listed}")


def _undecodable(call: Call, document: Document, fault: str) -> StatusError:
    """What a server says of a value that does not fit its field: by the way that the object came."""
    if call.method != "PATCH":
        return _not_decodable(call.info, fault)
    info, converted = call.info, f"error decoding from json: {fault}"
    if call.content_type == "application/apply-patch+yaml":
        kind = f"{info.group}/{info.version}, Kind={info.kind}"
        text = f"failed to convert new object (/{call.name}; {kind}) to proper version"
        return StatusError(500, "", f"{text}: unable to convert unstructured object to {kind}: {converted}")
    strategic = call.content_type == "application/strategic-merge-patch+json"
    return invalid_patch(go_json(document), converted if strategic else fault)


def _not_decodable(info: KindInfo, why: str) -> StatusError:
    return bad_request(f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: {why}')
