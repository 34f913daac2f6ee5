"""The informers of one process, each shared by all who follow the same objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast, final

import anyio
from anyio.abc import TaskGroup
from typing_extensions import TypeVar

from opsdk.cache._streaming import StreamingRefusals
from opsdk.cache.informer import Informer
from opsdk.cache.reflector import ReflectorOptions
from opsdk.cache.selectors import Selector, selector_of
from opsdk.cache.store import Malformed, MalformedHook
from opsdk.client import ApiClient
from opsdk.errors import ManagerError
from opsdk.models import ResourceInfo
from opsdk.protocols import KubeObject
from opsdk.types import LabelSelector

__all__ = ["Informers"]

T = TypeVar("T", bound=KubeObject)

_DEFAULTS: Final = ReflectorOptions()


@final
class Informers:
    """Makes each informer once, and runs them all.

    Informers are shared by class, namespace and selector. One that is asked for while the others run starts at once.

    Args:
        client: How to reach the server.
        options: How to talk to it.
        namespaces: All namespaces there are, as far as this process is concerned: what is followed in each of them is
            followed everywhere. Empty: no such limit.

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
        self._namespaces = tuple(namespaces)
        self._informers: dict[tuple[type[KubeObject], str | None, Selector], Informer[Any]] = {}
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
        key = (kind, namespace, selector_of(labels))
        known = self._informers.get(key)
        if known is not None:
            return cast("Informer[T]", known)
        informer = Informer(
            self._client,
            kind,
            namespace=namespace,
            labels=labels,
            options=self._options,
            malformed=self._malformed,
            refusals=self._refusals,
        )
        self._informers[key] = informer
        if self._tasks is not None:
            self._tasks.start_soon(informer.run, name=f"opsdk informer of {informer.describe()}")
        return informer

    def all(self) -> Sequence[Informer[KubeObject]]:
        """All informers that there are."""
        return tuple(self._informers.values())

    def covering(self, kind: type[T], namespace: str | None) -> Sequence[Informer[T]]:
        """The informers that together have all objects of the class in a namespace (None: in all); empty: none do."""
        everywhere = () if namespace is None else self._exactly(kind, None, Selector())
        return everywhere or self.selecting(kind, namespace, Selector())

    def selecting(self, kind: type[T], namespace: str | None, selector: Selector) -> Sequence[Informer[T]]:
        """The informers that together follow exactly these objects; empty: there are none."""
        if namespace is not None:
            return self._exactly(kind, namespace, selector)
        each = [self._exactly(kind, place, selector) for place in self._namespaces]
        together = [informer for found in each for informer in found] if all(each) else []
        return self._exactly(kind, None, selector) or together

    def _exactly(self, kind: type[T], namespace: str | None, selector: Selector) -> Sequence[Informer[T]]:
        found = self._informers.get((kind, namespace, selector))
        return () if found is None else (cast("Informer[T]", found),)

    def of(self, resource: ResourceInfo, namespace: str | None) -> list[Informer[KubeObject]]:
        """The informers, whatever their class, that may see objects of a kind in a namespace."""
        return [
            informer
            for informer in self._informers.values()
            if informer.resource == resource and informer.namespace in {None, namespace}
        ]

    @property
    def synced(self) -> bool:
        """Whether the first list of each is complete."""
        return all(informer.synced for informer in self._informers.values())

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
                for informer in self.all():
                    tasks.start_soon(informer.run, name=f"opsdk informer of {informer.describe()}")
                await anyio.sleep_forever()
        finally:
            self._tasks = None

    def _malformed(self, malformed: Malformed) -> None:
        if self.malformed is not None:
            self.malformed(malformed)
