"""POST, PUT, PATCH and DELETE: what a request asks for, handed to the `Writer`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, final

from opsdk.testing.apiserver._builtin_fields import unknown_fields
from opsdk.testing.apiserver._calls import Call, body_object
from opsdk.testing.apiserver._changes import Outcome, Writer, check_type
from opsdk.testing.apiserver._cluster import Cluster
from opsdk.testing.apiserver._deletion import DeleteOptions, delete_object
from opsdk.testing.apiserver._fields import FieldError, forbidden, required
from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text, decode, dig
from opsdk.testing.apiserver._managed_fields import Manager, apply
from opsdk.testing.apiserver._patch_strategic import strategic_merge
from opsdk.testing.apiserver._patches import json_patch, merge_patch
from opsdk.testing.apiserver._reads import select
from opsdk.testing.apiserver._reviews import REVIEWS, answer
from opsdk.testing.apiserver._scale import scale_of, scaled
from opsdk.testing.apiserver._status import (
    StatusError,
    bad_request,
    method_not_allowed,
    not_found,
    success,
    unsupported_media_type,
)
from opsdk.testing.apiserver._store import Stored
from opsdk.testing.apiserver._structure import builtin_structure
from opsdk.testing.apiserver._versions import from_storage

__all__ = ["Verbs"]

_JSON_PATCH: Final = "application/json-patch+json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_APPLY_PATCH: Final = "application/apply-patch+yaml"
_BODY_TYPES: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_STATUS_LIKE: Final = frozenset({"status", "finalize"})
_CREATE_OPTIONS: Final = "CreateOptions"

PatchKind: TypeAlias = Literal["json", "merge", "strategic", "apply"]


@final
class Verbs:
    """Writes to a cluster, as requests ask for them."""

    def __init__(self, cluster: Cluster, writer: Writer) -> None:
        self._cluster = cluster
        self._writer = writer

    # POST

    def create(self, call: Call) -> Outcome:
        """POST to a collection, or to a subresource that takes one."""
        _check_options(call, _CREATE_OPTIONS)
        _check_body_type(call)
        document = body_object(call)
        if call.subresource == "eviction":
            return self._evict(call, document)
        if call.name:
            raise method_not_allowed()
        if "create" not in call.info.verbs:
            raise method_not_allowed()
        check_type(call.info, document)
        if call.info.kind in REVIEWS:
            return Outcome(201, answer(call.info, document))
        if call.info.namespaced and not call.namespace:
            raise method_not_allowed()
        return self._writer.create(call, document, _updater(call))

    def _evict(self, call: Call, eviction: Document) -> Outcome:
        stored = self._existing(call)
        options = _delete_options(call, as_object(eviction.get("deleteOptions")))
        delete_object(self._cluster, call.info, stored, options)
        status: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return Outcome(201, status)

    # PUT

    def replace(self, call: Call) -> Outcome:
        """PUT to an object or one of its subresources."""
        _check_options(call, "UpdateOptions")
        _check_body_type(call)
        document = body_object(call)
        if call.subresource == "scale":
            return self._put_scale(call, document)
        check_type(call.info, document)
        name = as_text(dig(document, "metadata", "name"))
        if name and name != call.name:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")
        stored = self._cluster.find(call.info, call.namespace, call.name)
        if stored is None:
            if not call.info.created_by_put or call.subresource:
                raise not_found(call.info, call.name)
            metadata = document.get("metadata")
            if not isinstance(metadata, dict):
                metadata = document["metadata"] = {}
            metadata["name"] = call.name
            return self._writer.create(call, document, _updater(call))
        if call.subresource in _STATUS_LIKE:
            return self._writer.update_status(call, stored, document, _updater(call))
        return self._writer.update(call, stored, document, _updater(call), conditional=True)

    def get_scale(self, call: Call) -> Document:
        """GET of the scale subresource."""
        if call.info.scale is None:
            raise method_not_allowed()
        return scale_of(call.info.scale, from_storage(call.info, self._existing(call).document()))

    def _put_scale(self, call: Call, scale: Document) -> Outcome:
        if call.info.scale is None:
            raise method_not_allowed()
        stored = self._existing(call)
        document = scaled(call.info, call.info.scale, from_storage(call.info, stored.document()), scale)
        if not as_object(scale.get("metadata")).get("resourceVersion"):
            as_object(document["metadata"]).pop("resourceVersion", None)
        outcome = self._writer.update(call, stored, document, _updater(call))
        return Outcome(outcome.code, scale_of(call.info.scale, outcome.document))

    # PATCH

    def patch(self, call: Call) -> Outcome:
        """PATCH of an object or one of its subresources."""
        kind = _patch_kind(call)
        _check_options(call, "PatchOptions", apply=kind == "apply")
        stored = self._cluster.find(call.info, call.namespace, call.name)
        if kind == "apply":
            return self._apply(call, stored)
        if stored is None:
            raise not_found(call.info, call.name)
        patch = _parse(call)
        current = from_storage(call.info, stored.document())
        if call.subresource == "scale":
            if call.info.scale is None:
                raise method_not_allowed()
            scale = _patched(call, scale_of(call.info.scale, current), patch, "merge" if kind == "strategic" else kind)
            return self._put_scale(call, scale)
        document = _patched(call, current, patch, kind)
        if document.get("kind") != call.info.kind or document.get("apiVersion") != call.info.api_version:
            check_type(call.info, document)
        metadata = document.get("metadata")
        if isinstance(metadata, dict):
            name = as_text(metadata.get("name"))
            if name and name != call.name:
                raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")
            metadata["name"] = call.name
        if call.subresource in _STATUS_LIKE:
            return self._writer.update_status(call, stored, document, _updater(call))
        return self._writer.update(call, stored, document, _updater(call))

    def _apply(self, call: Call, stored: Stored | None) -> Outcome:
        config = as_object(_parse(call))
        if call.subresource == "scale":
            config = self._unscaled(call, config)
        _check_applied_type(call, config)
        metadata = config.get("metadata")
        if not isinstance(metadata, dict):
            metadata = config["metadata"] = {}
        if metadata.pop("managedFields", None):
            raise bad_request("metadata.managedFields must be nil")
        name = as_text(metadata.get("name"))
        if name and name != call.name:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")
        metadata["name"] = call.name
        self._check_typed(call, config)
        live = None if stored is None else from_storage(call.info, stored.document())
        manager = Manager(call.manager, "Apply", call.info.api_version, call.subresource)
        ignored: set[str] = set()
        if call.subresource in _STATUS_LIKE:
            ignored = set(config) - {"apiVersion", "kind", "metadata", "status"}
            config["metadata"] = {"name": call.name}
        elif "status" in call.info.subresources:
            ignored = {"status"}
        merged = apply(
            live,
            config,
            self._cluster.structure(call.info),
            manager,
            time=self._cluster.now_text(),
            force=call.query.get("force") in {"true", "1", "True"},
            ignored=frozenset(ignored),
        )
        if stored is None:
            if call.subresource:
                raise not_found(call.info, call.name)
            if call.info.namespaced:
                as_object(merged["metadata"])["namespace"] = call.namespace
            return self._writer.create(call, merged, None)
        sent_version = metadata.get("resourceVersion")
        if sent_version:
            as_object(merged["metadata"])["resourceVersion"] = sent_version
        if call.subresource in _STATUS_LIKE:
            return self._writer.update_status(call, stored, merged, None)
        outcome = self._writer.update(call, stored, merged, None)
        if call.subresource == "scale" and call.info.scale is not None:
            return Outcome(outcome.code, scale_of(call.info.scale, outcome.document))
        return outcome

    def _check_typed(self, call: Call, config: Document) -> None:
        """Refuse fields that the schema does not declare; an apply does so whatever `fieldValidation` says."""
        schema = self._cluster.schema(call.info)
        found = unknown_fields(call.info, config) if schema is None else schema.prune(copy.deepcopy(config))
        unknown = [f".{path}: field not declared in schema" for path in found]
        if not unknown:
            return
        said = unknown[0] if len(unknown) == 1 else "\n  ".join(("errors:", *unknown))
        namespace = as_text(dig(config, "metadata", "namespace"))
        kind = f"{call.info.group}/{call.info.version}, Kind={call.info.kind}"
        text = f"failed to create typed patch object ({namespace}/{call.name}; {kind}): {said}"
        raise StatusError(500, "", text)

    def _unscaled(self, call: Call, scale: Document) -> Document:
        """What an applied Scale says of the object itself; kube-apiserver finds the way back only for its own kinds."""
        api_version, kind = as_text(scale.get("apiVersion")), as_text(scale.get("kind"))
        namespace = as_text(dig(scale, "metadata", "namespace"))
        if not call.info.builtin:
            what = (
                f"failed to convert new object ({namespace}/{call.name}; {api_version}, Kind={kind}) to proper version"
            )
            raise StatusError(500, "", f"{what}: request to convert CR to an invalid group/version: {api_version}")
        if (api_version, kind) != ("autoscaling/v1", "Scale"):
            raise bad_request(f"invalid object type: {api_version}, Kind={kind}")
        metadata = dict(as_object(scale.get("metadata")))
        replicas = dig(scale, "spec", "replicas")
        spec: Document = {} if replicas is None else {"replicas": replicas}
        return {"apiVersion": call.info.api_version, "kind": call.info.kind, "metadata": metadata, "spec": spec}

    # DELETE

    def delete(self, call: Call) -> Outcome:
        """DELETE of an object."""
        if call.subresource:
            raise method_not_allowed()
        options = _delete_options(call, _optional_body(call))
        stored = self._existing(call)
        deletion = delete_object(self._cluster, call.info, stored, options)
        if deletion.gone and not call.info.answers_with_object:
            return Outcome(200, success(call.info, stored.name, stored.uid))
        return Outcome(200, from_storage(call.info, deletion.document))

    def delete_collection(self, call: Call, selectable: Mapping[str, str]) -> list[Stored]:
        """DELETE of a collection.

        Returns:
            The objects as they were.
        """
        if call.info.namespaced and not call.namespace:
            raise method_not_allowed()
        options = _delete_options(call, _optional_body(call))
        chosen = select(call, selectable)
        found = [
            stored for stored in self._cluster.store.listed(call.info.storage, call.prefix) if chosen.matches(stored)
        ]
        for stored in found:
            current = self._cluster.store.get(call.info.storage, stored.key)
            if current is not None:
                delete_object(self._cluster, call.info, current, options)
        return found

    def _existing(self, call: Call) -> Stored:
        stored = self._cluster.find(call.info, call.namespace, call.name)
        if stored is None:
            raise not_found(call.info, call.name)
        return stored


def _updater(call: Call) -> Manager:
    return Manager(call.manager, "Update", call.info.api_version, call.subresource)


def _options_error(kind: str, *errors: FieldError) -> StatusError:
    causes: list[Value] = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    details: Document = {"group": "meta.k8s.io", "kind": kind, "causes": causes}
    texts = [f"{error.field}: {error.message}" for error in errors]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return StatusError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {joined}', details=details)


def _check_applied_type(call: Call, config: Document) -> None:
    api_version, kind = as_text(config.get("apiVersion")), as_text(config.get("kind"))
    if (api_version, kind) != (call.info.api_version, call.info.kind):
        named = api_version if "/" in api_version else f"/{api_version}"
        raise bad_request(f"invalid object type: {named}, Kind={kind}")


def _check_options(call: Call, kind: str, *, apply: bool = False) -> None:
    errors: list[FieldError] = []
    dry_run = call.query.get("dryRun", "")
    if dry_run not in {"", "All"}:
        message = f'Unsupported value: ["{dry_run}"]: supported values: "All"'
        errors.append(FieldError("dryRun", "FieldValueNotSupported", message))
    if kind == "PatchOptions":
        if apply and not call.query.get("fieldManager"):
            errors.append(required("fieldManager", "is required for apply patch"))
        if not apply and call.query.get("force"):
            errors.append(forbidden("force", "may not be specified for non-apply patch"))
    validation = call.query.get("fieldValidation", "")
    if validation not in {"", "Ignore", "Warn", "Strict"}:
        message = f'Unsupported value: "{validation}": supported values: "", "Ignore", "Strict", "Warn"'
        errors.append(FieldError("fieldValidation", "FieldValueNotSupported", message))
    if errors:
        raise _options_error(kind, *errors)


def _check_body_type(call: Call) -> None:
    if call.content_type not in {"", "application/json"}:
        raise unsupported_media_type(_BODY_TYPES)


def _patch_kind(call: Call) -> PatchKind:
    accepted = (_JSON_PATCH, _MERGE_PATCH, _APPLY_PATCH)
    match call.content_type:
        case "application/json-patch+json":
            return "json"
        case "application/merge-patch+json":
            return "merge"
        case "application/apply-patch+yaml":
            return "apply"
        case "application/strategic-merge-patch+json" if call.info.builtin:
            return "strategic"
        case _:
            raise unsupported_media_type(() if call.info.builtin else accepted)


def _parse(call: Call) -> Value:
    try:
        return decode(call.body)
    except ValueError as error:
        if call.content_type == _APPLY_PATCH:
            return _parse_yaml(call.body)
        raise bad_request(f"error decoding patch: {error}") from error


def _parse_yaml(body: bytes) -> Value:
    try:
        import yaml  # an extra
    except ImportError as error:
        raise bad_request("YAML bodies need the extra opsdk[apiserver]; JSON is YAML too") from error
    try:
        value: Value = yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from error
    return value


def _patched(call: Call, document: Document, patch: Value, kind: PatchKind) -> Document:
    if kind == "json":
        result = json_patch(document, patch)
    elif not isinstance(patch, dict):
        found = "array" if isinstance(patch, list) else "value"
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )
    elif kind == "merge":
        result = merge_patch(document, patch)
    else:
        result = strategic_merge(document, patch, builtin_structure(call.info))
    if not isinstance(result, dict):
        raise bad_request("error decoding patch: the result is not an object")
    return result


def _optional_body(call: Call) -> Document:
    if not call.body.strip():
        return {}
    _check_body_type(call)
    return body_object(call)


_DELETE_OPTIONS: Final[Mapping[tuple[str, ...], tuple[type, str]]] = {
    ("gracePeriodSeconds",): (int, "int64"),
    ("orphanDependents",): (bool, "bool"),
    ("propagationPolicy",): (str, "v1.DeletionPropagation"),
    ("dryRun",): (list, "[]string"),
    ("preconditions",): (dict, "v1.Preconditions"),
    ("preconditions", "uid"): (str, "types.UID"),
    ("preconditions", "resourceVersion"): (str, "string"),
}
"""What they are in JSON, and in Go."""
_JSON_NAMES: Final[Mapping[type, str]] = {bool: "bool", str: "string", dict: "object", list: "array"}


def _check_delete_options(body: Document) -> None:
    """A precondition that cannot be read is none that was met."""
    for path, (wanted, go) in _DELETE_OPTIONS.items():
        found = dig(body, *path)
        if found is not None and type(found) is not wanted:
            what = _JSON_NAMES.get(type(found), "number")
            field = ".".join(path)
            raise bad_request(f"json: cannot unmarshal {what} into Go struct field DeleteOptions.{field} of type {go}")


def _delete_options(call: Call, body: Document) -> DeleteOptions:
    _check_delete_options(body)
    query = call.query
    grace: Value = body.get("gracePeriodSeconds")
    if grace is None and query.get("gracePeriodSeconds", "").lstrip("-").isdigit():
        grace = int(query["gracePeriodSeconds"])
    policy = as_text(body.get("propagationPolicy")) or query.get("propagationPolicy", "")
    orphan = body.get("orphanDependents")
    errors: list[FieldError] = []
    if policy not in {"", "Background", "Foreground", "Orphan"}:
        message = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan", "nil"'
        errors.append(FieldError("propagationPolicy", "FieldValueNotSupported", message))
    if errors:
        raise _options_error("DeleteOptions", *errors)
    if isinstance(orphan, bool) and not policy:
        policy = "Orphan" if orphan else "Background"
    uid, version = dig(body, "preconditions", "uid"), dig(body, "preconditions", "resourceVersion")
    return DeleteOptions(
        grace_period_seconds=grace if isinstance(grace, int) else None,
        propagation_policy=policy,
        uid=uid if isinstance(uid, str) else None,
        resource_version=version if isinstance(version, str) else None,
        dry_run="All" in as_list(body.get("dryRun")) or call.dry_run,
    )
