"""The roles operator as a program, whose hooks write to the database, say so, and never return: to be killed there.

Arguments: kubeconfig, database URL, namespace.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import anyio
from typing_extensions import override

from opsdk import Manager, ManagerOptions
from opsdk.client import ApiClient, ClientConfig
from roles import register
from roles_database import Database, ObjectKey


class HangingDatabase(Database):
    @override
    def store_role(self, key: ObjectKey, name: str, scope: str, permissions: Iterable[str]) -> list[str] | None:
        missing = super().store_role(key, name, scope, permissions)
        self._hang("stored")
        return missing

    @override
    def delete_role(self, uid: str) -> None:
        super().delete_role(uid)
        self._hang("deleted")

    def _hang(self, word: str) -> None:
        print(word, flush=True)  # noqa: T201 - what the test waits for
        time.sleep(3600)


async def operate(kubeconfig: str, url: str, namespace: str) -> None:
    options = ManagerOptions(leader_election=False, serve_metrics=False, serve_probes=False, namespaces=(namespace,))
    async with ApiClient.from_config(ClientConfig.from_files([Path(kubeconfig)])) as client:
        manager = Manager(options, client=client)
        register(manager, HangingDatabase(url))
        await manager.start()


if __name__ == "__main__":
    _, kubeconfig, url, namespace = sys.argv
    anyio.run(operate, kubeconfig, url, namespace)
