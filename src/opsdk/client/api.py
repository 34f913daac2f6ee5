"""The typed client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

from typing_extensions import TypeVar

from opsdk.client._choice import transport_for
from opsdk.client._decoding import ObjectDecoder
from opsdk.client._deletes import delete_options
from opsdk.client._documents import Documents, head_of
from opsdk.client._lists import PAGE_SIZE, ObjectStream, Selection, list_objects
from opsdk.client._metadata import refresh_metadata
from opsdk.client._places import namespace_of_call, namespace_of_selection
from opsdk.client._queries import selection
from opsdk.client._watches import TypedWatch
from opsdk.client._writes import Writes
from opsdk.client.kubeconfig import ClientConfig
from opsdk.client.raw import RawClient, RequestObserver, WriteGate
from opsdk.client.status_writer import ApiStatusWriter
from opsdk.client.transport import Transport
from opsdk.errors import ConfigurationError, NotFoundError
from opsdk.models import codec_of, is_metadata_only, resource_of
from opsdk.protocols import Client, KubeObject, ObjectList, Snapshot, Undecodable, WatchEvent
from opsdk.types import LabelSelector, Patch, Preconditions, PropagationPolicy

if TYPE_CHECKING:
    from lightkube import AsyncClient

__all__ = ["ApiClient"]

T = TypeVar("T", bound=KubeObject)


@final
class ApiClient:
    """Reads and writes typed objects at an API server; implements `opsdk.protocols.Client`.

    Use it as an async context manager, or call `aclose`.

    Guarantees: an object that is written keeps what its model does not know. Namespaces are never guessed. What is
    sent again after a failure is listed at `RawClient`; no write is, unless it cannot take effect twice.

    Args:
        transport: Carries the requests; closed with the client.
        field_manager: Under which name writes are recorded, unless a call says another.
        dry_run: Whether writes are only tried, unless a call says otherwise. Deletes too.
        namespace: The namespace of the kubeconfig's context or of the pod, for callers to use; no verb does.
        observer: Told about every request.
        write_gate: Called before each request that may change something; raises to stop it.
        host: The API server, for the observer.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        field_manager: str = "opsdk",
        dry_run: bool = False,
        namespace: str | None = None,
        observer: RequestObserver | None = None,
        write_gate: WriteGate | None = None,
        host: str = "",
    ) -> None:
        self._setup(
            transport,
            Documents(),
            field_manager=field_manager,
            dry_run=dry_run,
            namespace=namespace,
            observer=observer,
            write_gate=write_gate,
            host=host,
        )

    @classmethod
    def from_env(cls, *, context: str | None = None, field_manager: str = "opsdk") -> ApiClient:
        """A client for the API server that the environment names; see `ClientConfig.from_env`.

        Args:
            context: The kubeconfig context to use; None: the current one, or the pod's service account.
            field_manager: Under which name writes are recorded.

        Raises:
            ConfigurationError: None is configured, or the configuration is wrong.
        """
        return cls.from_config(ClientConfig.from_env(context=context), field_manager=field_manager)

    @classmethod
    def from_config(cls, config: ClientConfig, /, *, field_manager: str = "opsdk") -> ApiClient:
        """A client for one API server: on the lean transport, or on httpx2's where a proxy applies.

        Raises:
            ConfigurationError: A certificate or credential cannot be used.
        """
        client = cls(transport_for(config), field_manager=field_manager, namespace=config.namespace, host=config.host)
        client._config = config
        return client

    def _setup(
        self,
        transport: Transport,
        documents: Documents,
        *,
        field_manager: str,
        dry_run: bool,
        namespace: str | None,
        observer: RequestObserver | None,
        write_gate: WriteGate | None,
        host: str,
    ) -> None:
        self._config: ClientConfig | None = None
        self._transport = transport
        self._documents = documents
        self._field_manager = field_manager
        self._dry_run = dry_run
        self._namespace = namespace
        self._observer = observer
        self._write_gate = write_gate
        self._host = host
        self._raw = RawClient(transport, observer=observer, write_gate=write_gate, host=host)
        self._writes = Writes(raw=self._raw, documents=documents, field_manager=field_manager, dry_run=dry_run)
        self._status = ApiStatusWriter(
            Writes(
                raw=self._raw,
                documents=documents,
                field_manager=field_manager,
                dry_run=dry_run,
                subresource="status",
            )
        )

    def _derive(self, *, observer: RequestObserver | None, write_gate: WriteGate | None) -> ApiClient:
        derived = ApiClient.__new__(ApiClient)
        derived._setup(  # noqa: SLF001 - our own class
            self._transport,
            self._documents,
            field_manager=self._field_manager,
            dry_run=self._dry_run,
            namespace=self._namespace,
            observer=observer,
            write_gate=write_gate,
            host=self._host,
        )
        derived._config = self._config  # noqa: SLF001 - our own class
        return derived

    def with_gate(self, gate: WriteGate | None, /) -> ApiClient:
        """A client like this one that calls `gate` before each write.

        Both share the transport: closing one closes it.
        """
        return self._derive(observer=self._observer, write_gate=gate)

    def with_observer(self, observer: RequestObserver | None, /) -> ApiClient:
        """A client like this one that tells `observer`.

        Both share the transport: closing one closes it.
        """
        return self._derive(observer=observer, write_gate=self._write_gate)

    @property
    def raw(self) -> RawClient:
        """The same requests, at the level of bytes."""
        return self._raw

    def lightkube(self) -> AsyncClient:
        """Lightkube's own client for the same server, for what this one does not cover: logs and exec.

        It has connections of its own, so close it with `await lightkube.close()`. Credentials, trust, proxy,
        impersonation, field manager and the gate of writes are this client's; exec passes the gate too.

        *Not promised*: what holds for this client's verbs. Lightkube's `replace` erases what its structs do not know,
        its `delete` really deletes in a dry run, and an omitted namespace is the context's.

        Raises:
            ConfigurationError: This client was made from a transport, so where the server is is not known.
        """
        from opsdk.client._lightkube import lightkube_client  # loads lightkube's client, which few ask for

        if self._config is None:
            raise ConfigurationError(
                "a client that was made from a transport does not know the server; make it with ApiClient.from_config"
            )
        return lightkube_client(
            self._config, field_manager=self._field_manager, dry_run=self._dry_run, write_gate=self._write_gate
        )

    @property
    def status(self) -> ApiStatusWriter:
        """The same for the status subresource."""
        return self._status

    @property
    def namespace(self) -> str | None:
        """The namespace of the kubeconfig's context or of the pod, if there is one."""
        return self._namespace

    @property
    def field_manager(self) -> str:
        """Under which name writes are recorded, unless a call says another."""
        return self._field_manager

    @property
    def dry_run(self) -> bool:
        """Whether writes are only tried, unless a call says otherwise."""
        return self._dry_run

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # Reads

    async def get(self, kind: type[T], name: str, *, namespace: str | None = None) -> T:
        """Read one object.

        Raises:
            NotFoundError: There is none of that name.
            DecodeError: It does not fit its model.
            ObjectError: The kind is namespaced and no namespace was given.
        """
        info = resource_of(kind)
        path = info.path(namespace=namespace_of_call(info, namespace, name=name), name=name)
        partial = is_metadata_only(kind)
        raw = await self._raw.get(path, metadata_only=partial)
        # What is written later is laid over what is remembered, which therefore must be whole.
        return self._writes.read(codec_of(kind), raw, keep=not partial)

    async def find(self, kind: type[T], name: str, *, namespace: str | None = None) -> T | None:
        """Read one object; None when there is none.

        Raises:
            NotFoundError: The server does not know the kind, or something on the way does not know the server.
            DecodeError: It does not fit its model.
            ObjectError: The kind is namespaced and no namespace was given.
        """
        try:
            return await self.get(kind, name, namespace=namespace)
        except NotFoundError as error:
            # Only a Status that names the object says that there is none: what is missing may be the CRD.
            if error.name == name:
                return None
            raise

    async def list(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> ObjectList[T]:
        """Read all objects that match, in pages of 500; `namespace=None` means all namespaces.

        Guarantees: all of them are of one version. When the server gives up a list between two pages it is started
        over, the second time in one piece.

        Raises:
            DecodeError: One of them does not fit its model; `stream` can skip it.
        """
        selected = self._selection(kind, namespace, labels, fields)
        return await list_objects(self._raw, selected, ObjectDecoder(kind, self._documents))

    def stream(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncIterator[T | Undecodable]:
        """Like `list`, one object at a time, with at most one page in memory. What does not decode is reported.

        Guarantees: every object that was there from beginning to end comes. When the server gives up the list between
        two pages it is started over, and what came before and has not changed is left out; an object that was changed
        meanwhile may come twice.

        Raises:
            ValueError: `page_size` is below 1.
        """
        if page_size < 1:
            msg = f"page_size is {page_size}; it must be at least 1"
            raise ValueError(msg)
        return ObjectStream(
            self._raw,
            self._selection(kind, namespace, labels, fields),
            ObjectDecoder(kind, self._documents),
            page_size=page_size,
        )

    @staticmethod
    def _selection(
        kind: type[KubeObject],
        namespace: str | None,
        labels: LabelSelector | None,
        fields: Mapping[str, str] | None,
    ) -> Selection:
        info = resource_of(kind)
        return Selection(
            info=info,
            namespace=namespace_of_selection(info, namespace),
            labels=labels,
            fields=fields,
            metadata_only=is_metadata_only(kind),
        )

    def watch(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
        resource_version: str | None = None,
        timeout: timedelta | None = None,
        inactivity: timedelta | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent[T]]]:
        """One watch request: no retry and no relist, which is a reflector's work.

        Args:
            kind: The class to watch.
            namespace: None means all namespaces.
            labels: Label selector.
            fields: Field selector.
            resource_version: Events after this version; None: first an Added for each object there is.
            timeout: The server ends the watch after this long; None leaves it to the server.
            inactivity: Longest silence to accept before an `ApiTimeoutError`; None: no limit.

        Raises:
            GoneError: The version is too old, as an answer or within the stream.
        """
        return self._watch(
            kind,
            namespace=namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            timeout=timeout,
            inactivity=inactivity,
        )

    @asynccontextmanager
    async def _watch(
        self,
        kind: type[T],
        *,
        namespace: str | None,
        labels: LabelSelector | None,
        fields: Mapping[str, str] | None,
        resource_version: str | None,
        timeout: timedelta | None,  # noqa: ASYNC109 - the server's timeout, not ours
        inactivity: timedelta | None,
    ) -> AsyncGenerator[AsyncIterator[WatchEvent[T]]]:
        info = resource_of(kind)
        async with self._raw.watch(
            info,
            namespace=namespace_of_selection(info, namespace),
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            timeout=timeout,
            inactivity=inactivity,
            metadata_only=is_metadata_only(kind),
        ) as events:
            yield TypedWatch(events, ObjectDecoder(kind, self._documents))

    # Writes

    async def create(
        self, obj: T, /, *, namespace: str | None = None, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T:
        """Create the object and return it as stored.

        Raises:
            AlreadyExistsError: The name is taken.
            InvalidError: The server refuses it; `causes` name the fields.
            ObjectError: It has neither name nor generateName, or no namespace where one is needed.
        """
        return await self._writes.create(obj, namespace=namespace, dry_run=dry_run, field_manager=field_manager)

    async def replace(
        self, obj: T, /, *, namespace: str | None = None, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T:
        """Write an object that was read and changed, and return it as stored.

        What the model does not know is kept: the server's document of the object's resourceVersion is sent, with the
        difference laid over it.

        Raises:
            ConflictError: It was written since it was read.
            ObjectError: It has no resourceVersion: it was never read.
        """
        return await self._writes.replace(obj, namespace=namespace, dry_run=dry_run, field_manager=field_manager)

    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Patch,
        *,
        namespace: str | None = None,
        dry_run: bool | None = None,
        field_manager: str | None = None,
    ) -> T:
        """Change what the patch says and return the object as stored.

        Raises:
            NotFoundError: There is none of that name.
            UnsupportedMediaTypeError: A strategic merge patch was sent to a custom resource.
        """
        return await self._writes.patch(
            kind, name, patch, namespace=namespace, dry_run=dry_run, field_manager=field_manager
        )

    async def patch_from(
        self, base: Snapshot[T], obj: T, /, *, dry_run: bool | None = None, field_manager: str | None = None
    ) -> T | None:
        """Write the difference from `base` to `obj`, if there is one, on the condition that nobody else wrote since.

        What the model does not know survives, in list items too. The condition is the resourceVersion of `obj`: a
        write of ours that was noted in it with `refresh_metadata` does not stand in the way.

        Returns:
            The object as stored; None when there was no difference, and so no request.

        Raises:
            ConflictError: It was written since `base` was taken.
            ObjectError: It has no resourceVersion: it was never read.
        """
        return await self._writes.patch_from(base, obj, dry_run=dry_run, field_manager=field_manager)

    async def apply(
        self,
        obj: T,
        /,
        *,
        namespace: str | None = None,
        force: bool = False,
        dry_run: bool | None = None,
        field_manager: str | None = None,
    ) -> T:
        """Server-side apply: own the fields that `obj` sets, under the field manager.

        Raises:
            ConflictError: Another manager owns one of them, and `force` is not set.
            ObjectError: `obj` is metadata only, and `field_manager` is the client's own, which may own the rest.
        """
        return await self._writes.apply(
            obj, namespace=namespace, force=force, dry_run=dry_run, field_manager=field_manager
        )

    async def delete(
        self,
        kind: type[T],
        name: str,
        *,
        namespace: str | None = None,
        preconditions: Preconditions | None = None,
        propagation: PropagationPolicy | None = None,
        grace_period: timedelta | None = None,
        dry_run: bool | None = None,
    ) -> None:
        """Ask for the object to be deleted; with finalizers on it, it stays until they are gone.

        Raises:
            NotFoundError: There is none of that name.
            ConflictError: A precondition does not hold.
        """
        await self.delete_raw(
            kind,
            name,
            namespace=namespace,
            preconditions=preconditions,
            propagation=propagation,
            grace_period=grace_period,
            dry_run=dry_run,
        )

    async def delete_raw(
        self,
        kind: type[T],
        name: str,
        *,
        namespace: str | None = None,
        preconditions: Preconditions | None = None,
        propagation: PropagationPolicy | None = None,
        grace_period: timedelta | None = None,
        dry_run: bool | None = None,
    ) -> bytes:
        """Like `delete`, and return the server's answer: a Status when the object is gone, else the object as it stays.

        Raises:
            NotFoundError: There is none of that name.
            ConflictError: A precondition does not hold.
        """
        info = resource_of(kind)
        path = info.path(namespace=namespace_of_call(info, namespace, name=name), name=name)
        options = delete_options(
            propagation=propagation,
            dry_run=self._writes.is_dry(dry_run),
            preconditions=preconditions,
            grace_period=grace_period,
        )
        conditional = preconditions is not None and preconditions != Preconditions()
        return await self._raw.request("DELETE", path, body=options, preconditioned=conditional)

    async def delete_collection(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: LabelSelector | None = None,
        fields: Mapping[str, str] | None = None,
        propagation: PropagationPolicy | None = None,
        dry_run: bool | None = None,
    ) -> None:
        """Ask for all objects that match to be deleted, in one namespace.

        Raises:
            ObjectError: The kind is namespaced and no namespace was given.
        """
        info = resource_of(kind)
        path = info.path(namespace=namespace_of_call(info, namespace))
        options = delete_options(propagation=propagation, dry_run=self._writes.is_dry(dry_run))
        await self._raw.request("DELETE", path, query=selection(labels, fields), body=options)

    # Documents

    def snapshot(self, obj: T, /) -> Snapshot[T]:
        """Remember what `obj` looks like now, as the base of a later `patch_from`."""
        return Snapshot(type(obj), self._writes.typed(codec_of(type(obj)), obj), self._writes.document(obj))

    def document(self, obj: KubeObject, /) -> bytes | None:
        """The server's document of the version that `obj` is of, if this client still remembers it."""
        return self._writes.document(obj)

    def remember(self, raw: bytes, /, *, uid: str | None = None, resource_version: str | None = None) -> None:
        """Keep a document that was read past this client, so that `snapshot` and `replace` find it.

        Args:
            raw: The document.
            uid: Its uid; None: read from the document.
            resource_version: Its version; None: read from the document.
        """
        if uid is None or resource_version is None:
            uid, resource_version = head_of(raw)
        self._documents.put(uid, resource_version, raw)

    @staticmethod
    def refresh_metadata(obj: KubeObject, stored: KubeObject, /) -> None:
        """The same as `opsdk.client.refresh_metadata`: note in `obj` that `stored` was written."""
        refresh_metadata(obj, stored)


if TYPE_CHECKING:
    _client: type[Client] = ApiClient
