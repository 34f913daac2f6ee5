"""What tests do to roles and scopes, in any cluster in which the operator runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
from lightkube.models.meta_v1 import ObjectMeta

from opsdk import Client, Manager
from opsdk.models import find_condition
from opsdk.types import MergePatch
from roles import Role, RoleSpec, Scope, ScopeSpec


@dataclass(frozen=True, slots=True)
class World:
    """A cluster in which the operator runs."""

    client: Client
    manager: Manager
    namespace: str

    async def create_scope(self, name: str, *permissions: str) -> Scope:
        metadata = ObjectMeta(name=name, namespace=self.namespace)
        return await self.client.create(Scope(metadata=metadata, spec=ScopeSpec(permissions=list(permissions))))

    async def create_role(self, name: str, *permissions: str, scope: str = "web", called: str = "") -> Role:
        spec = RoleSpec(scope=scope, name=called, permissions=list(permissions))
        return await self.client.create(Role(metadata=ObjectMeta(name=name, namespace=self.namespace), spec=spec))

    async def call(self, name: str, called: str) -> None:
        await self.client.patch(Role, name, MergePatch({"spec": {"name": called}}), namespace=self.namespace)

    async def ready(self, name: str) -> tuple[str, str, str]:
        role = await self.client.get(Role, name, namespace=self.namespace)
        condition = find_condition(role.status.conditions, "Ready")
        return ("", "", "") if condition is None else (condition.status, condition.reason, condition.message)

    async def reach(self, name: str, reason: str) -> str:
        """Wait for Ready's reason; returns its message."""

        async def reached() -> bool:
            return (await self.ready(name))[1] == reason

        await eventually(reached)
        return (await self.ready(name))[2]

    async def delete(self, name: str) -> None:
        await self.client.delete(Role, name, namespace=self.namespace)

    async def gone(self, name: str) -> None:
        async def gone() -> bool:
            return await self.client.find(Role, name, namespace=self.namespace) is None

        await eventually(gone)

    def count(self, name: str, **labels: str) -> float:
        labels = {"kind": "Role", **labels}
        return self.manager.metrics.registry.get_sample_value(f"opsdk_persistence_{name}", labels) or 0


async def eventually(true: Callable[[], bool | Awaitable[bool]]) -> None:
    """Ask until it is true."""
    with anyio.fail_after(90):
        while True:
            answer = true()
            if answer if isinstance(answer, bool) else await answer:
                return
            await anyio.sleep(0.02)
