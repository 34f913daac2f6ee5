"""Every error that opsdk raises on purpose.

::

    OpsdkError
    ├── ApiError                          a request to the API server did not succeed
    │   ├── ApiStatusError                the server answered with an error status
    │   │   ├── BadRequestError           400
    │   │   ├── UnauthorizedError         401
    │   │   ├── ForbiddenError            403
    │   │   ├── NotFoundError             404
    │   │   ├── MethodNotAllowedError     405
    │   │   ├── AlreadyExistsError        409, reason AlreadyExists
    │   │   ├── ConflictError             409, any other reason
    │   │   ├── GoneError                 410 (also reason Expired)
    │   │   ├── UnsupportedMediaTypeError 415
    │   │   ├── InvalidError              422
    │   │   ├── TooManyRequestsError      429
    │   │   └── ServerError               5xx
    │   │       └── ServerTimeoutError    504
    │   ├── ApiConnectionError            no answer came
    │   │   └── ApiTimeoutError           none came in time
    │   └── ApiProtocolError              an answer that is not what the API promises
    ├── DecodeError                       a document does not fit its model (also a ValueError)
    ├── ResourceDefinitionError           a class says too little or wrong things about its kind (also a TypeError)
    ├── CrdSchemaError                    a model has no structural schema (also a TypeError)
    ├── CrdChangeError                    a change of a CRD may cost stored objects something; nothing was written
    ├── CrdNotEstablishedError            the server does not serve a CRD
    ├── ObjectError                       an object lacks what a call needs: a name, a namespace (also a ValueError)
    ├── ConfigurationError                no usable kubeconfig, credentials or option (also a ValueError)
    ├── InvalidStateMachineError          (also a ValueError)
    ├── InvalidOwnedResourcesError        (also a ValueError)
    ├── UndeclaredKindError               (also a LookupError)
    ├── ChildConflictError                a child's name is taken by an object that is not ours
    ├── FieldConflictError                fields of a child are applied by somebody else too, with other values
    ├── UnknownStateError                 status names a state that the graph lacks; a TerminalError
    ├── TerminalError                     a reconcile failed and must not be retried
    ├── RetryError                        a reconcile failed; retry after a stated time
    ├── NotReadyError                     a persisted resource cannot take effect yet
    ├── ReconcileTimeoutError             a reconcile ran past its timeout (also a TimeoutError)
    ├── CacheNotSyncedError               a read of a watched kind before its cache has synced
    ├── QueueClosedError                  the workqueue is closed
    ├── LeadershipLostError               another replica may be the leader now
    └── ManagerError                      a manager was used in the wrong order
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, Final, final

import msgspec

__all__ = [
    "AlreadyExistsError",
    "ApiConnectionError",
    "ApiError",
    "ApiProtocolError",
    "ApiStatusError",
    "ApiTimeoutError",
    "BadRequestError",
    "CacheNotSyncedError",
    "ChildConflictError",
    "ConfigurationError",
    "ConflictError",
    "CrdChangeError",
    "CrdNotEstablishedError",
    "CrdSchemaError",
    "DecodeError",
    "FieldConflictError",
    "ForbiddenError",
    "GoneError",
    "InvalidError",
    "InvalidOwnedResourcesError",
    "InvalidStateMachineError",
    "LeadershipLostError",
    "ManagerError",
    "MethodNotAllowedError",
    "NotFoundError",
    "NotReadyError",
    "ObjectError",
    "OpsdkError",
    "QueueClosedError",
    "ReconcileTimeoutError",
    "ResourceDefinitionError",
    "RetryError",
    "ServerError",
    "ServerTimeoutError",
    "StatusCause",
    "TerminalError",
    "TooManyRequestsError",
    "UnauthorizedError",
    "UndeclaredKindError",
    "UnknownStateError",
    "UnsupportedMediaTypeError",
]


class OpsdkError(Exception):
    """The root of the tree."""


class ApiError(OpsdkError):
    """A request to the API server did not succeed."""


@final
class StatusCause(msgspec.Struct, frozen=True):
    """One cause in a Status: which field, why, and the server's text."""

    field: str
    reason: str
    message: str


class ApiStatusError(ApiError):
    """The server answered with an error status.

    Attributes:
        code: The HTTP status code.
        reason: The machine-readable reason; empty when the body was no Status (a proxy's page).
        server_message: What the server said; for a body that is no Status, its first part.
        kind: The kind that the Status names, else empty.
        name: The object that the Status names, else empty.
        causes: Field errors and the like.
        retry_after: How long the server asked to wait, if it did.
        request: Verb and path, for the reader of a log.
        hint: What the answer most likely means, where that is known and the server does not say; else empty.
    """

    def __init__(
        self,
        code: int,
        *,
        reason: str = "",
        message: str = "",
        kind: str = "",
        name: str = "",
        causes: Sequence[StatusCause] = (),
        retry_after: timedelta | None = None,
        request: str = "",
        hint: str = "",
    ) -> None:
        self.code = code
        self.reason = reason
        self.server_message = message
        self.kind = kind
        self.name = name
        self.causes: tuple[StatusCause, ...] = tuple(causes)
        self.retry_after = retry_after
        self.request = request
        self.hint = hint
        where = f"{request}: " if request else ""
        super().__init__(f"{where}{code} {reason or 'error'}: {message or 'no message'}{f': {hint}' if hint else ''}")


class BadRequestError(ApiStatusError):
    """400: the request makes no sense to the server."""


class UnauthorizedError(ApiStatusError):
    """401: the credentials are missing, wrong or expired."""


class ForbiddenError(ApiStatusError):
    """403: the credentials are known and may not do this, or admission refuses it."""


class NotFoundError(ApiStatusError):
    """404: no such object, or no such kind on this server."""


class MethodNotAllowedError(ApiStatusError):
    """405: the resource does not have this verb."""


class AlreadyExistsError(ApiStatusError):
    """409 with reason AlreadyExists: the name is taken."""


class ConflictError(ApiStatusError):
    """409 with another reason: the object was written since it was read, or a precondition failed."""


class GoneError(ApiStatusError):
    """410: the resourceVersion or continue token is too old; list again."""


class UnsupportedMediaTypeError(ApiStatusError):
    """415: this resource does not take this kind of patch."""


class InvalidError(ApiStatusError):
    """422: the object is not valid; `causes` name the fields."""


class TooManyRequestsError(ApiStatusError):
    """429: slow down; `retry_after` says for how long."""


class ServerError(ApiStatusError):
    """5xx: the server could not answer."""


class ServerTimeoutError(ServerError):
    """504: the server gave up waiting."""


class ApiConnectionError(ApiError):
    """No answer came: the connection could not be made or broke. Whether a write took effect is unknown.

    Attributes:
        sent: Whether any of the request may have reached the server. False: certainly nothing did, so the request can
            be repeated whatever it is.
    """

    def __init__(self, message: str = "", *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(message)


class ApiTimeoutError(ApiConnectionError, TimeoutError):
    """No answer came in time. Whether a write took effect is unknown."""


class ApiProtocolError(ApiError):
    """The server's answer is not what the Kubernetes API promises."""


class DecodeError(OpsdkError, ValueError):
    """A document does not fit its model.

    Attributes:
        kind: The model's kind.
        field: Where in the document, in dots; empty when unknown.
        namespace: The object's namespace, None when unknown or cluster-scoped.
        name: The object's name, empty when unknown.
    """

    def __init__(
        self, message: str, *, kind: str, field: str = "", namespace: str | None = None, name: str = ""
    ) -> None:
        self.kind = kind
        self.field = field
        self.namespace = namespace
        self.name = name
        place = "/".join(part for part in (namespace, name) if part)
        super().__init__(f"{kind}{f' {place}' if place else ''}{f': {field}' if field else ''}: {message}")


class ResourceDefinitionError(OpsdkError, TypeError):
    """A class says too little, or wrong things, about the kind that it stands for."""


class CrdSchemaError(OpsdkError, TypeError):
    """A model has no structural schema; the text names the field and the way out."""


class CrdChangeError(OpsdkError):
    """A change of CRDs may cost objects that are stored something. Nothing was written.

    Attributes:
        losses: By CRD: what objects may lose, one line each.
        changes: By CRD: the whole difference, one line each.
    """

    def __init__(self, crds: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> None:
        self.losses: Mapping[str, tuple[str, ...]] = {name: tuple(losses) for name, (losses, _) in crds.items()}
        self.changes: Mapping[str, tuple[str, ...]] = {name: tuple(changes) for name, (_, changes) in crds.items()}
        lines: list[str] = []
        for name, (losses, changes) in crds.items():
            lines += [f"CustomResourceDefinition {name}: stored objects may lose data:", *(f"  - {x}" for x in losses)]
            lines += ["the whole difference:", *(f"  {change}" for change in changes)]
        lines.append("Nothing was written. Change the models so that they keep it, or allow data loss.")
        super().__init__("\n".join(lines))


class CrdNotEstablishedError(OpsdkError):
    """The server does not serve a CRD.

    Attributes:
        name: The CRD's name.
        why: What stands in the way.
    """

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why
        super().__init__(f"CustomResourceDefinition {name} is not served: {why}")


class ObjectError(OpsdkError, ValueError):
    """An object or a call lacks what the request needs: a name, a namespace, a resourceVersion."""


class ConfigurationError(OpsdkError, ValueError):
    """No usable kubeconfig, credentials or option."""


class InvalidStateMachineError(OpsdkError, ValueError):
    """A state graph is wrong.

    Attributes:
        faults: Every fault, each with the state and field it is in.
    """

    def __init__(self, kind: str, faults: Sequence[str]) -> None:
        self.kind = kind
        self.faults: tuple[str, ...] = tuple(faults)
        super().__init__(f"state machine of {kind}: " + "; ".join(self.faults))


class InvalidOwnedResourcesError(OpsdkError, ValueError):
    """A declaration of owned resources is wrong.

    Attributes:
        faults: Every fault, each with the kind it is about.
    """

    def __init__(self, kind: str, faults: Sequence[str]) -> None:
        self.kind = kind
        self.faults: tuple[str, ...] = tuple(faults)
        super().__init__(f"owned resources of {kind}: " + "; ".join(self.faults))


class UndeclaredKindError(OpsdkError, LookupError):
    """A question about a kind that no `For` declares.

    Attributes:
        kind: The kind asked for.
        declared: The kinds that are declared.
    """

    def __init__(self, kind: str, declared: Sequence[str]) -> None:
        self.kind = kind
        self.declared: tuple[str, ...] = tuple(declared)
        super().__init__(f"{kind} is not an owned kind here; declared are: {', '.join(declared) or 'none'}")


class ChildConflictError(OpsdkError):
    """A child's name is taken by an object that is not ours; it was not touched.

    Attributes:
        kind: The child's kind.
        namespace: The child's namespace; None for a cluster-scoped kind.
        name: The child's name.
        owner: Who owns the object that has the name; empty when nobody does.
    """

    def __init__(self, kind: str, namespace: str | None, name: str, owner: str = "") -> None:
        self.kind = kind
        self.namespace = namespace
        self.name = name
        self.owner = owner
        place = name if namespace is None else f"{namespace}/{name}"
        belongs = f"belongs to {owner}" if owner else "has no owner"
        super().__init__(
            f"{kind} {place} exists and {belongs}; rename the child, or delete the object if it is a leftover"
        )


class FieldConflictError(OpsdkError):
    """Somebody else applies fields of a child that we apply too, with other values; nothing of the child was changed.

    Attributes:
        kind: The child's kind.
        namespace: The child's namespace; None for a cluster-scoped kind.
        name: The child's name.
        managers: Who applies which fields: the fields by the name of their field manager.
    """

    def __init__(self, kind: str, namespace: str | None, name: str, managers: Mapping[str, Sequence[str]]) -> None:
        self.kind = kind
        self.namespace = namespace
        self.name = name
        self.managers: dict[str, tuple[str, ...]] = {manager: tuple(fields) for manager, fields in managers.items()}
        place = name if namespace is None else f"{namespace}/{name}"
        whose = "; ".join(f"{manager} applies {', '.join(fields)}" for manager, fields in self.managers.items())
        super().__init__(
            f"{kind} {place}: {whose}; let only one of the two have them, or take them over with For(..., force=True)"
        )


class TerminalError(OpsdkError):
    """A reconcile failed in a way that a retry cannot mend; it is tried again only when the object changes."""


_LONGEST_STATE: Final = 100


class UnknownStateError(TerminalError):
    """The object's status names a state that the graph does not know.

    Attributes:
        state: The state in status.
        known: The states of the graph.
    """

    def __init__(self, kind: str, name: str, state: str, known: Sequence[str]) -> None:
        self.kind = kind
        self.name = name
        self.state = state
        self.known: tuple[str, ...] = tuple(known)
        shown = state if len(state) <= _LONGEST_STATE else f"{state[:_LONGEST_STATE]}…"
        super().__init__(
            f"{kind} {name} is in state {shown!r}, which its state machine does not have; known are: "
            f"{', '.join(known)}. Add the state, or set status.state to a known one"
        )


class RetryError(OpsdkError):
    """A reconcile failed; retry it after a stated time instead of the backoff's, once.

    Attributes:
        requeue_after: When to try again.
    """

    def __init__(self, message: str, *, requeue_after: timedelta) -> None:
        if requeue_after < timedelta(0):
            msg = f"requeue_after is {requeue_after}; it must not be negative"
            raise ValueError(msg)
        self.requeue_after = requeue_after
        super().__init__(message)


class NotReadyError(OpsdkError):
    """A resource is stored, but cannot take effect yet. Not a failure.

    Args:
        reason: CamelCase reason for Ready=False; empty means `Invalid`.
        message: Text for people; by default the text of the cause.
        err: The cause; the same as `raise … from err`.
        requeue_after: When to try again; None: when something changes.
    """

    default_reason: ClassVar[str] = "Invalid"

    def __init__(
        self,
        reason: str = "",
        message: str = "",
        *,
        err: BaseException | None = None,
        requeue_after: timedelta | None = None,
    ) -> None:
        if requeue_after is not None and requeue_after < timedelta(0):
            msg = f"requeue_after is {requeue_after}; it must not be negative"
            raise ValueError(msg)
        self.reason: str = reason or self.default_reason
        self._message = message
        self.requeue_after = requeue_after
        if err is not None:
            object.__setattr__(self, "__cause__", err)  # an assignment would declare the attribute anew
        super().__init__(self.reason, message)

    @property
    def err(self) -> BaseException | None:
        """The cause, given as `err` or by `raise … from`."""
        return self.__cause__

    @property
    def message(self) -> str:
        """The text for people: the one given, else the cause's."""
        if self._message:
            return self._message
        return "" if self.__cause__ is None else str(self.__cause__)

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason


class ReconcileTimeoutError(OpsdkError, TimeoutError):
    """A reconcile ran past its controller's timeout and was cancelled.

    Attributes:
        timeout: The limit.
    """

    def __init__(self, controller: str, request: str, timeout: timedelta) -> None:
        self.controller = controller
        self.request = request
        self.timeout = timeout
        super().__init__(
            f"controller {controller}: reconcile of {request} was cancelled after {timeout.total_seconds():g} s"
        )


class CacheNotSyncedError(OpsdkError):
    """A watched kind was read before its cache was complete.

    Attributes:
        kind: The kind that was read.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(
            f"the cache of {kind} has not synced yet; read it after the manager has started, or after "
            f"`await informers.wait_synced()` where there is none; or read uncached, through manager.api_client or the "
            f"cached client's `uncached`"
        )


class QueueClosedError(OpsdkError):
    """The workqueue is closed and nothing is ready.

    Attributes:
        name: The queue's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"workqueue {name} is closed")


class LeadershipLostError(OpsdkError):
    """The Lease could not be renewed in time, or another replica holds it: leader work was stopped, writes are refused.

    Attributes:
        lease: Namespace and name of the Lease.
        identity: Who we are.
    """

    def __init__(self, lease: str, identity: str, why: str) -> None:
        self.lease = lease
        self.identity = identity
        super().__init__(f"leadership on Lease {lease} lost by {identity}: {why}")


class ManagerError(OpsdkError):
    """A manager or controller was used in the wrong order, or twice."""
