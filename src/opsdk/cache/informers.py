"""The informers of one process, each shared by all who follow the same objects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, cast, final

import anyio
import msgspec
from anyio.abc import TaskGroup
from typing_extensions import TypeVar

from opsdk.cache._streaming import StreamingRefusals
from opsdk.cache.informer import Informer
from opsdk.cache.reflector import ReflectorOptions
from opsdk.cache.selectors import EVERYTHING, Selector, selector_of
from opsdk.cache.store import Malformed, MalformedHook
from opsdk.client import ApiClient
from opsdk.errors import ConfigurationError, ManagerError
from opsdk.models import ResourceInfo, resource_of
from opsdk.protocols import KubeObject
from opsdk.types import LabelSelector

__all__ = ["Informers"]

T = TypeVar("T", bound=KubeObject)

_DEFAULTS: Final = ReflectorOptions()
_Key: TypeAlias = tuple[type[KubeObject], str | None, Selector]


@final
class _Shared(msgspec.Struct, kw_only=True):
    """One informer, and who wants it.

    Args:
        informer: The informer.
        lasting: Whether somebody asked for it for good.
        followers: How many follow it for a while.
        scope: Ends it; None while it does not run.
    """

    informer: Informer[Any]
    lasting: bool = False
    followers: int = 0
    scope: anyio.CancelScope | None = None

    async def run(self, scope: anyio.CancelScope) -> None:
        with scope:
            await self.informer.run()


@final
class Informers:
    """Makes each informer once, and runs them all.

    Informers are shared by class, namespace and selector: two who ask for the same objects get the same informer, which
    lists and watches once. Selectors are the same when they mean the same, however they are written; an informer of one
    namespace is another than that of all. One that `informer` or `everywhere` was asked for lasts as long as this does;
    one of `following` until its last follower has left. One that is asked for while the others run starts at once.

    Args:
        client: How to reach the server.
        options: How to talk to it.
        namespaces: All namespaces there are, as far as this process is concerned: what is followed in each of them is
            followed everywhere. Empty: no such limit.

    Raises:
        ConfigurationError: `namespaces` is no list of different names.

    Attributes:
        malformed: Is told about objects that do not fit their model, once per resourceVersion. May be set any time.
    """

    def __init__(
        self, client: ApiClient, *, options: ReflectorOptions = _DEFAULTS, namespaces: Sequence[str] = ()
    ) -> None:
        self.malformed: MalformedHook | None = None
        self._client = client
        self._options = options
        self._refusals = StreamingRefusals()
        self._namespaces = _different_names(namespaces)
        self._shared: dict[_Key, _Shared] = {}
        self._tasks: TaskGroup | None = None

    def informer(self, kind: type[T], namespace: str | None = None, labels: LabelSelector | None = None) -> Informer[T]:
        """The informer of these objects, made if there is none yet.

        Args:
            kind: The class of the objects.
            namespace: None: all namespaces.
            labels: Only objects that match; None: all.

        Raises:
            ResourceDefinitionError: The class does not say which kind it stands for.
            ObjectError: `labels` is no selector.
        """
        shared = self._share(kind, namespace, selector_of(labels))
        shared.lasting = True
        return cast("Informer[T]", shared.informer)

    def everywhere(self, kind: type[T], labels: LabelSelector | None = None) -> Sequence[Informer[T]]:
        """The informers of these objects in all namespaces there are: one for each of `namespaces`, else one for all.

        Args:
            kind: The class of the objects.
            labels: Only objects that match; None: all.

        Raises:
            ResourceDefinitionError: The class does not say which kind it stands for.
            ObjectError: `labels` is no selector.
        """
        places: Sequence[str | None] = self._namespaces if resource_of(kind).namespaced else ()
        return [self.informer(kind, place, labels) for place in places or (None,)]

    @asynccontextmanager
    async def following(
        self, kind: type[T], namespace: str | None = None, labels: LabelSelector | None = None
    ) -> AsyncGenerator[Informer[T]]:
        """Follow objects while the context is open. It opens when they are all there; limit that with a timeout.

        While nobody asked for them for good, they count neither for `all` nor for `synced`, and reads of a
        `CachedClient` are answered from them only once they are complete.

        Args:
            kind: The class of the objects.
            namespace: None: all namespaces.
            labels: Only objects that match; None: all.

        Raises:
            ManagerError: These informers do not run.
            ResourceDefinitionError: The class does not say which kind it stands for.
            ObjectError: `labels` is no selector.
        """
        if self._tasks is None:
            raise ManagerError("these informers do not run, so nothing can be followed yet")
        key = (kind, namespace, selector_of(labels))
        shared = self._share(*key)
        shared.followers += 1
        try:
            await shared.informer.wait_synced()
            yield cast("Informer[T]", shared.informer)
        finally:
            shared.followers -= 1
            if not shared.followers and not shared.lasting:
                del self._shared[key]
                if shared.scope is not None:
                    shared.scope.cancel()

    def _share(self, kind: type[KubeObject], namespace: str | None, selector: Selector) -> _Shared:
        key = (kind, namespace, selector)
        known = self._shared.get(key)
        if known is not None:
            return known
        informer = Informer(
            self._client,
            kind,
            namespace=namespace,
            labels=str(selector) or None,
            options=self._options,
            malformed=self._malformed,
            refusals=self._refusals,
        )
        shared = self._shared[key] = _Shared(informer=informer)
        if self._tasks is not None:
            self._start(shared, self._tasks)
        return shared

    @staticmethod
    def _start(shared: _Shared, tasks: TaskGroup) -> None:
        shared.scope = anyio.CancelScope()
        tasks.start_soon(shared.run, shared.scope, name=f"opsdk informer of {shared.informer.describe()}")

    def all(self) -> Sequence[Informer[KubeObject]]:
        """All informers that were asked for for good."""
        return tuple(shared.informer for shared in self._shared.values() if shared.lasting)

    def covering(self, kind: type[T], namespace: str | None) -> Sequence[Informer[T]]:
        """The informers that together have all objects of the class in a namespace (None: in all); empty: none do."""
        everywhere = () if namespace is None else self._exactly(kind, None, EVERYTHING)
        return everywhere or self.selecting(kind, namespace, EVERYTHING)

    def selecting(
        self, kind: type[T], namespace: str | None, selector: LabelSelector | Selector
    ) -> Sequence[Informer[T]]:
        """The informers that together follow exactly these objects; empty: there are none.

        Raises:
            ObjectError: `selector` is no selector.
        """
        selector = selector_of(selector)
        if namespace is not None:
            return self._exactly(kind, namespace, selector)
        each = [self._exactly(kind, place, selector) for place in self._namespaces]
        together = [informer for found in each for informer in found] if all(each) else []
        return self._exactly(kind, None, selector) or together

    def _exactly(self, kind: type[T], namespace: str | None, selector: Selector) -> Sequence[Informer[T]]:
        found = self._shared.get((kind, namespace, selector))
        if found is None or not (found.lasting or found.informer.synced):
            return ()
        return (cast("Informer[T]", found.informer),)

    def of(self, resource: ResourceInfo, namespace: str | None) -> list[Informer[KubeObject]]:
        """The informers, whatever their class, that may see objects of a kind in a namespace."""
        return [
            shared.informer
            for shared in self._shared.values()
            if shared.informer.resource == resource and shared.informer.namespace in {None, namespace}
        ]

    @property
    def synced(self) -> bool:
        """Whether the first list of each is complete."""
        return all(informer.synced for informer in self.all())

    async def wait_synced(self) -> None:
        """Wait until the first list of each is complete, also of those that come meanwhile."""
        for informer in self.all():
            await informer.wait_synced()
        if not self.synced:
            await self.wait_synced()

    async def run(self) -> None:
        """Run all informers until cancelled.

        Raises:
            ManagerError: They run already.
        """
        if self._tasks is not None:
            raise ManagerError("these informers run already")
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for shared in self._shared.values():
                    self._start(shared, tasks)
                await anyio.sleep_forever()
        finally:
            self._tasks = None

    def _malformed(self, malformed: Malformed) -> None:
        if self.malformed is not None:
            self.malformed(malformed)


def _different_names(namespaces: object) -> tuple[str, ...]:
    """The namespaces. A text would be taken for a list of its letters; one named twice would be listed twice."""
    if isinstance(namespaces, str) or not isinstance(namespaces, Sequence):
        raise ConfigurationError(f"namespaces is {namespaces!r}; give a list of names, such as [{namespaces!r}]")
    names: list[str] = []
    for name in cast("Sequence[object]", namespaces):
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"namespaces has {name!r}; give names, or no namespaces at all for all of them")
        if name in names:
            raise ConfigurationError(f"namespaces names {name!r} twice")
        names.append(name)
    return tuple(names)
