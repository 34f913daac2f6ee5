"""The informers of one process, each shared by all who follow the same objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast, final

import anyio
from anyio.abc import TaskGroup
from typing_extensions import TypeVar

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

    Attributes:
        malformed: Is told about objects that do not fit their model, once per resourceVersion. May be set any time.
    """

    def __init__(self, client: ApiClient, *, options: ReflectorOptions = _DEFAULTS) -> None:
        self.malformed: MalformedHook | None = None
        self._client = client
        self._options = options
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
            self._client, kind, namespace=namespace, labels=labels, options=self._options, malformed=self._malformed
        )
        self._informers[key] = informer
        if self._tasks is not None:
            self._tasks.start_soon(informer.run, name=f"opsdk informer of {informer.describe()}")
        return informer

    def all(self) -> Sequence[Informer[KubeObject]]:
        """All informers that there are."""
        return tuple(self._informers.values())

    def covering(self, kind: type[T], namespace: str | None) -> Informer[T] | None:
        """An informer whose store has all objects of the class in a namespace (None: in all); None: there is none."""
        everything = self._informers.get((kind, None, Selector()))
        if everything is None and namespace is not None:
            everything = self._informers.get((kind, namespace, Selector()))
        return None if everything is None else cast("Informer[T]", everything)

    def selecting(self, kind: type[T], namespace: str | None, selector: Selector) -> Informer[T] | None:
        """The informer that follows exactly these objects; None: there is none."""
        found = self._informers.get((kind, namespace, selector))
        return None if found is None else cast("Informer[T]", found)

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
