"""The rules of built-in kinds that operators run into: what is required, what cannot change.

Not promised: all rules of Kubernetes; an object that is refused here is refused there, not the other way round.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from opsdk.testing.apiserver._fields import FieldError, forbidden, go_quote, invalid, required, too_long
from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text, dig
from opsdk.testing.apiserver._kinds import KindInfo
from opsdk.testing.apiserver._status import StatusError, bad_request

__all__ = ["check_times", "validate_builtin"]

_IMMUTABLE: Final = "field is immutable"
_MICRO_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d\.\d+([Zz]|[+-]\d\d:\d\d)$")
_CONFIG_KEY: Final = re.compile(r"^[-._a-zA-Z0-9]+$")
_NON_NEGATIVE: Final = "must be greater than or equal to 0"
_LONGEST_NAME: Final = 63
_LARGEST_DATA: Final = 1_048_576

Validator: TypeAlias = "Callable[[Document, Document | None], list[FieldError]]"


def validate_builtin(info: KindInfo, document: Document, old: Document | None) -> list[FieldError]:
    """The faults of a built-in object after defaults.

    Args:
        old: The object as it is; None for a new one.
    """
    validator = _VALIDATORS.get(info.resource)
    return validator(document, old) if validator is not None else []


def check_times(info: KindInfo, document: Document) -> None:
    """Refuse timestamps that the server cannot parse.

    Raises:
        StatusError: 400.
    """
    for path in _MICRO_TIMES.get(info.resource, ()):
        value = dig(document, *path)
        if isinstance(value, str) and not _MICRO_TIME.match(value):
            rest = re.sub(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d", "", value)
            raise _unparsable(info, value, rest)


_MICRO_TIMES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "leases.coordination.k8s.io": (("spec", "acquireTime"), ("spec", "renewTime")),
    "events": (("eventTime",), ("series", "lastObservedTime")),
    "events.events.k8s.io": (("eventTime",), ("series", "lastObservedTime")),
}


def _unparsable(info: KindInfo, value: str, rest: str) -> StatusError:
    return bad_request(
        f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: parsing time "{value}" as '
        f'"2006-01-02T15:04:05.000000Z07:00": cannot parse "{rest}" as ".000000"'
    )


# Pieces


def _non_negative(spec: Document, path: str, *names: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in names:
        value = spec.get(name)
        if isinstance(value, int) and value < 0:
            errors.append(invalid(f"{path}.{name}", value, _NON_NEGATIVE))
    return errors


def _unchanged(document: Document, old: Document | None, *path: str) -> list[FieldError]:
    if old is None or dig(document, *path) == dig(old, *path):
        return []
    return [invalid(".".join(path), dig(document, *path), _IMMUTABLE)]


def _containers(spec: Document, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    containers = as_list(spec.get("containers"))
    if not containers:
        errors.append(required(f"{path}.containers"))
    names: set[str] = set()
    volumes = {as_text(as_object(value).get("name")) for value in as_list(spec.get("volumes"))}
    for group in ("containers", "initContainers"):
        for index, value in enumerate(as_list(spec.get(group))):
            container = as_object(value)
            where = f"{path}.{group}[{index}]"
            name = as_text(container.get("name"))
            if not name:
                errors.append(required(f"{where}.name"))
            elif name in names:
                errors.append(FieldError(f"{where}.name", "FieldValueDuplicate", f"Duplicate value: {go_quote(name)}"))
            names.add(name)
            if not container.get("image"):
                errors.append(required(f"{where}.image"))
            for number, mount_value in enumerate(as_list(container.get("volumeMounts"))):
                mount = as_text(as_object(mount_value).get("name"))
                if mount not in volumes:
                    field = f"{where}.volumeMounts[{number}].name"
                    errors.append(FieldError(field, "FieldValueNotFound", f"Not found: {go_quote(mount)}"))
    return errors


def _template(spec: Document, *, policies: tuple[str, ...] = ("Always",)) -> list[FieldError]:
    pod = as_object(dig(spec, "template", "spec"))
    errors = _containers(pod, "spec.template.spec")
    policy = as_text(pod.get("restartPolicy"))
    if policy not in policies:
        path = "spec.template.spec.restartPolicy"
        shown = ", ".join(go_quote(choice) for choice in policies)
        if not policy:
            errors.append(required(path, f"valid values: {shown}"))
        else:
            message = f"Unsupported value: {go_quote(policy)}: supported values: {shown}"
            errors.append(FieldError(path, "FieldValueNotSupported", message))
    return errors


def _selected_template(document: Document, old: Document | None) -> list[FieldError]:
    """A workload that selects its Pods by labels which its template must have."""
    spec = as_object(document.get("spec"))
    errors: list[FieldError] = _non_negative(spec, "spec", "replicas", "minReadySeconds", "revisionHistoryLimit")
    selector = as_object(spec.get("selector"))
    if not selector:
        errors.append(required("spec.selector"))
    labels = as_object(dig(spec, "template", "metadata", "labels"))
    wanted = as_object(selector.get("matchLabels"))
    if selector and any(labels.get(key) != value for key, value in wanted.items()):
        text = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels, text))
    errors += _template(spec)
    errors += _unchanged(document, old, "spec", "selector")
    return errors


_STATEFUL_SET_FIXED: Final = ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")
_STATEFUL_SET_MUTABLE: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _stateful_set(document: Document, old: Document | None) -> list[FieldError]:
    errors = _selected_template(document, None)
    if old is not None:
        after, before = as_object(document.get("spec")), as_object(old.get("spec"))
        for name in _STATEFUL_SET_FIXED:
            errors += _unchanged(document, old, "spec", name)
        allowed = (*_STATEFUL_SET_MUTABLE, *_STATEFUL_SET_FIXED)
        if _without(after, *allowed) != _without(before, *allowed):
            *most, last = (f"'{name}'" for name in _STATEFUL_SET_MUTABLE)
            text = f"updates to statefulset spec for fields other than {', '.join(most)} and {last} are forbidden"
            errors.append(forbidden("spec", text))
    return errors


def _changed_claim(document: Document, old: Document) -> list[FieldError]:
    after, before = as_object(document.get("spec")), as_object(old.get("spec"))
    allowed = [name for name in ("storageClassName", "volumeName") if not before.get(name)]
    if as_object(old.get("status")).get("phase") == "Bound":
        allowed += ["resources", "volumeAttributesClassName"]
    if _without(after, *allowed) == _without(before, *allowed):
        return []
    text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return [forbidden("spec", text)]


def _without(document: Document, *names: str) -> Document:
    return {name: value for name, value in document.items() if name not in names}


def _replica_set(document: Document, old: Document | None) -> list[FieldError]:
    return _selected_template(document, old)


def _job(document: Document, old: Document | None) -> list[FieldError]:
    spec = as_object(document.get("spec"))
    errors = _non_negative(spec, "spec", "parallelism", "completions", "backoffLimit", "activeDeadlineSeconds")
    errors += _template(spec, policies=("OnFailure", "Never"))
    if old is not None:
        for name in ("completionMode", "selector", "template"):
            errors += _unchanged(document, old, "spec", name)
    return errors


def _cron_job(document: Document, _: Document | None) -> list[FieldError]:
    spec = as_object(document.get("spec"))
    errors: list[FieldError] = []
    if not spec.get("schedule"):
        errors.append(required("spec.schedule"))
    return errors


def _pod(document: Document, old: Document | None) -> list[FieldError]:
    spec = as_object(document.get("spec"))
    errors = _containers(spec, "spec")
    if old is not None and _fixed_pod_spec(spec) != _fixed_pod_spec(as_object(old.get("spec"))):
        text = (
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        errors.append(forbidden("spec", text))
    return errors


def _fixed_pod_spec(spec: Document) -> Document:
    fixed = _without(spec, "activeDeadlineSeconds", "tolerations", "nodeName", "schedulingGates")
    for group in ("containers", "initContainers"):
        images: list[Value] = [_without(as_object(value), "image") for value in as_list(spec.get(group))]
        fixed[group] = images
    return fixed


def _service(document: Document, old: Document | None) -> list[FieldError]:
    spec = as_object(document.get("spec"))
    errors: list[FieldError] = []
    ports = as_list(spec.get("ports"))
    kind = as_text(spec.get("type"))
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        errors.append(required("spec.ports"))
    if kind == "ExternalName" and not spec.get("externalName"):
        errors.append(required("spec.externalName"))
    for index, value in enumerate(ports):
        port = as_object(value)
        if len(ports) > 1 and not port.get("name"):
            errors.append(required(f"spec.ports[{index}].name"))
        number = port.get("port")
        if not isinstance(number, int) or not 1 <= number <= 65535:
            text = "must be between 1 and 65535, inclusive"
            errors.append(invalid(f"spec.ports[{index}].port", number or 0, text))
    if old is not None:
        before = as_text(dig(old, "spec", "clusterIP"))
        after = as_text(spec.get("clusterIP"))
        if before and after and before != after and dig(old, "spec", "type") != "ExternalName":
            errors.append(invalid("spec.clusterIPs[0]", as_list(spec.get("clusterIPs")), "may not change once set"))
    return errors


def _keys(document: Document, *fields: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in fields:
        for key in as_object(document.get(field)):
            if not _CONFIG_KEY.match(key) or key in {".", ".."}:
                text = (
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                )
                errors.append(invalid(f"{field}[{key}]", key, text))
    return errors


def _frozen(document: Document, old: Document | None, *fields: str) -> list[FieldError]:
    if old is None or old.get("immutable") is not True:
        return []
    text = "field is immutable when `immutable` is set"
    errors: list[FieldError] = []
    if document.get("immutable") is not True:
        errors.append(forbidden("immutable", text))
    errors += [forbidden(field, text) for field in fields if document.get(field) != old.get(field)]
    return errors


def _too_large(field: str, texts: Mapping[str, Value], encoded: Mapping[str, Value]) -> list[FieldError]:
    """What a ConfigMap or a Secret holds is limited as a whole, in bytes."""
    size = sum(len(as_text(text).encode()) for text in texts.values())
    size += sum(len(base64.b64decode(as_text(text))) for text in encoded.values())
    return [too_long(field, _LARGEST_DATA)] if size > _LARGEST_DATA else []


def _config_map(document: Document, old: Document | None) -> list[FieldError]:
    errors = _keys(document, "data", "binaryData")
    # The server names the field so.
    errors += _too_large("[]", as_object(document.get("data")), as_object(document.get("binaryData")))
    return errors + _frozen(document, old, "data", "binaryData")


def _secret(document: Document, old: Document | None) -> list[FieldError]:
    errors = _keys(document, "data") + _too_large("data", {}, as_object(document.get("data")))
    errors += _unchanged(document, old, "type")
    return errors + _frozen(document, old, "data")


def _lease(document: Document, _: Document | None) -> list[FieldError]:
    spec = as_object(document.get("spec"))
    errors: list[FieldError] = []
    duration = spec.get("leaseDurationSeconds")
    if isinstance(duration, int) and duration <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    errors += _non_negative(spec, "spec", "leaseTransitions")
    return errors


def _event(document: Document, _: Document | None) -> list[FieldError]:
    """A core/v1 Event as stored; `events.k8s.io` is stricter and checked before."""
    errors: list[FieldError] = []
    namespace = as_text(dig(document, "metadata", "namespace"))
    involved = as_text(dig(document, "involvedObject", "namespace"))
    if involved != namespace and not (not involved and namespace == "default"):
        errors.append(invalid("involvedObject.namespace", involved, "does not match event.namespace"))
    return errors


_ACTION_TYPES: Final = frozenset({"Normal", "Warning"})
_LONGEST_NOTE_BYTES: Final = 1024
_LONGEST_WORD: Final = 128


def _new_event(document: Document, old: Document | None) -> list[FieldError]:
    errors: list[FieldError] = []
    if old is not None:
        return errors
    if not document.get("eventTime"):
        errors.append(required("eventTime"))
    words = ("reportingController", "reportingInstance", "action", "reason")
    errors += [required(name) for name in words if not document.get(name)]
    errors += [
        invalid(name, "", f"can have at most {_LONGEST_WORD} characters")
        for name in words[1:]
        if len(as_text(document.get(name))) > _LONGEST_WORD
    ]
    if len(as_text(document.get("note")).encode()) > _LONGEST_NOTE_BYTES:
        errors.append(invalid("note", "", f"can have at most {_LONGEST_NOTE_BYTES} bytes"))
    if document.get("type") not in _ACTION_TYPES:
        errors.append(invalid("type", as_text(document.get("type")), "has invalid value: "))
    return errors


def _role_binding(document: Document, old: Document | None) -> list[FieldError]:
    if old is not None and document.get("roleRef") != old.get("roleRef"):
        reference = as_object(document.get("roleRef"))
        shown = {"APIGroup": reference.get("apiGroup"), "Kind": reference.get("kind"), "Name": reference.get("name")}
        return [invalid("roleRef", shown, _IMMUTABLE)]
    return []


def _claim(document: Document, old: Document | None) -> list[FieldError]:
    spec = as_object(document.get("spec"))
    errors: list[FieldError] = [] if old is None else _changed_claim(document, old)
    if not spec.get("accessModes"):
        errors.append(required("spec.accessModes", "at least 1 access mode is required"))
    if not dig(spec, "resources", "requests", "storage"):
        errors.append(required("spec.resources[storage]"))
    return errors


_VALIDATORS: Final[dict[str, Validator]] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _role_binding,
    "configmaps": _config_map,
    "cronjobs.batch": _cron_job,
    "daemonsets.apps": _selected_template,
    "deployments.apps": _selected_template,
    "events": _event,
    "events.events.k8s.io": _new_event,
    "jobs.batch": _job,
    "leases.coordination.k8s.io": _lease,
    "persistentvolumeclaims": _claim,
    "pods": _pod,
    "replicasets.apps": _replica_set,
    "rolebindings.rbac.authorization.k8s.io": _role_binding,
    "secrets": _secret,
    "services": _service,
    "statefulsets.apps": _stateful_set,
}
