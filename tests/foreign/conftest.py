"""Other people's operators against the served in-memory server, and against a real one: the same life on both."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import anyio
import anyio.to_thread
import pytest
import yaml

from conformance.harness import PATIENCE_SECONDS, Answer, Api, eventually, furnished, is_served, new_name
from opsdk.client import ClientConfig, HttpxTransport, Transport
from opsdk.testing.apiserver import ApiServer
from tcp_proxy import TcpProxy, tcp_proxy

GROUP = "foreign.example.com"
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"echoes.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "echoes", "kind": "Echo"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"text": {"type": "string"}}},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
OPERATORS = Path(__file__).parent / "operators"


@pytest.fixture(
    params=[
        pytest.param(name, id=name, marks=pytest.mark.controlplane) for name in ("memory", "real")
    ]  # both need libraries that only developers install
)
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def anyio_backend() -> str:
    """Sockets and processes are real, so time is, too."""
    return "asyncio"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A server, and what stands between it and the operator.

    Args:
        api: Speaks to the server itself.
        kubeconfig: Leads through the proxy.
        memory: The server, if it is the one in memory.
    """

    api: Api
    kubeconfig: Path
    proxy: TcpProxy
    memory: ApiServer | None

    @property
    def echoes(self) -> str:
        return f"/apis/{GROUP}/v1/namespaces/{self.api.namespace}/echoes"

    async def create(self, name: str, text: str) -> None:
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Echo", "metadata": {"name": name}, "spec": {"text": text}}
        answer = await self.api.call("POST", self.echoes, body)
        assert answer.status == 201, answer.text

    async def say(self, name: str, text: str) -> None:
        patch = {"spec": {"text": text}}
        answer = await self.api.call(
            "PATCH", f"{self.echoes}/{name}", patch, content_type="application/merge-patch+json"
        )
        assert answer.status == 200, answer.text

    async def delete(self, name: str) -> None:
        assert (await self.api.call("DELETE", f"{self.echoes}/{name}")).status == 200

    async def echo(self, name: str) -> Answer:
        return await self.api.call("GET", f"{self.echoes}/{name}")

    def cut(self) -> None:
        """End all connections, as a network does."""
        assert self.proxy.cut() > 0

    def forget(self) -> None:
        """End all watches in order, and refuse to go on from where they were; only memory can be told to."""
        assert self.memory is not None
        self.memory.compact()
        self.memory.end_watches()


@pytest.fixture
async def place(
    server: str, anyio_backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncGenerator[Place]:
    memory: ApiServer | None = None
    transport: Transport
    async with AsyncExitStack() as stack:
        if server == "real":
            real: Path = request.getfixturevalue("real_kubeconfig")
            document = yaml.safe_load(await anyio.Path(real).read_text())
            transport = HttpxTransport(ClientConfig.from_files([real]))
            stack.push_async_callback(transport.aclose)
        else:
            memory = await stack.enter_async_context(ApiServer())
            served = await stack.enter_async_context(memory.serve())
            document = yaml.safe_load(served.kubeconfig())
            transport = memory.transport()
        (cluster,) = (each["cluster"] for each in document["clusters"])
        scheme, _, port = cluster["server"].rpartition(":")
        proxy = await stack.enter_async_context(tcp_proxy(int(port)))
        cluster["server"] = f"{scheme}:{proxy.port}"
        kubeconfig = tmp_path / "kubeconfig"
        await anyio.Path(kubeconfig).write_text(json.dumps(document))
        api = Api(transport, new_name("foreign"), server=server)
        await api.create("customresourcedefinitions", CRD)
        await api.created("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": api.namespace}})
        if server == "real":
            await furnished(transport, api.namespace)
        found = Place(api=api, kubeconfig=kubeconfig, proxy=proxy, memory=memory)
        await eventually(partial(is_served, api, found.echoes))
        yield found
        await api.delete("namespaces", api.namespace)


@final
class Operator:
    """A running program."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def require_alive(self) -> None:
        code = self._process.poll()
        assert code is None, f"ended with {code}:\n{self.said}"

    async def end(self) -> int:
        """Ask it to end, and wait for it."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return await anyio.to_thread.run_sync(self._process.wait, PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.fail(f"does not end when asked to:\n{self.said}")


@contextmanager
def running(program: str, place: Place) -> Generator[Operator]:
    """A process of its own, as its users run it; killed if the test leaves it behind."""
    log = place.kubeconfig.parent / f"{program}.log"
    command = [sys.executable, str(OPERATORS / f"{program}.py"), str(place.kubeconfig), place.api.namespace]
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        yield Operator(process, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@asynccontextmanager
async def patience(operator: Operator) -> AsyncGenerator[None]:
    """Fails with what the operator has said when the body takes too long."""
    try:
        with anyio.fail_after(PATIENCE_SECONDS):
            yield
    except TimeoutError:
        pytest.fail(f"nothing happens; the operator said:\n{operator.said}")
