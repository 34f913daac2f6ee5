"""Model to CRD to object to API server to model, for generated models and objects.

Invariants:
    * Every CRD is accepted as it is, and structural.
    * What a model writes, whole or only what was set, reads back as the same object: what the server fills in is what
      the model says.
    * What the model does not know is dropped, and nothing else.
    * What the model refuses to read, the server refuses to store.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st
from lightkube.models.meta_v1 import ObjectMeta
from pydantic import ValidationError

from crds.generated import Made, made, with_unknown_fields, with_wrong_values
from crds.harness import Server
from opsdk.client import ApiClient, ClientConfig
from opsdk.errors import BadRequestError, InvalidError
from opsdk.models import codec_of, crd_manifest
from opsdk.testing.apiserver import ApiServer

FEW = settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking makes hundreds of kinds
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

Run = Callable[[Callable[[Server], Awaitable[None]]], None]


@pytest.fixture
def run(server_name: str, request: pytest.FixtureRequest) -> Run:
    """Runs one example against a server: a fresh one in memory, or the real one."""
    kubeconfig: Path | None = request.getfixturevalue("real_kubeconfig") if server_name == "real" else None

    async def main(example: Callable[[Server], Awaitable[None]]) -> None:
        if kubeconfig is not None:
            async with ApiClient.from_config(ClientConfig.from_files([kubeconfig])) as client:
                await example(Server(client=client, real=True))
        else:
            async with ApiServer() as memory:
                await example(Server(client=memory.client(), real=False))

    backend = "trio" if server_name.endswith("trio") else "asyncio"
    return lambda example: anyio.run(main, example, backend=backend)


def document(kind: Made, spec: Any, *, only_set: bool = False) -> dict[str, Any]:
    obj = kind.kind(metadata=ObjectMeta(name="tried"), spec=spec)
    found: dict[str, Any] = json.loads(codec_of(kind.kind).encode(obj, only_set=only_set))
    return found


def test_m01_objects_of_generated_models_come_back_as_they_were(run: Run) -> None:
    @FEW
    @given(made())
    def check(kind: Made) -> None:
        async def example(server: Server) -> None:
            await server.install(kind.kind)
            for index, spec in enumerate(kind.specs):
                for only_set in (False, True):
                    body = {"spec": document(kind, spec, only_set=only_set).get("spec", {})}
                    stored = await server.apply(kind.kind, body, name=f"o{index}-{only_set}".lower())
                    assert codec_of(kind.kind).decode(server.encoded(stored)).spec == spec
            await server.forget(kind.kind)

        run(example)

    check()


def test_only_what_the_model_does_not_know_is_dropped(run: Run) -> None:
    @FEW
    @given(made())
    def check(kind: Made) -> None:
        async def example(server: Server) -> None:
            await server.install(kind.kind)
            version: Any = crd_manifest(kind.kind)["spec"]
            schema = version["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            await server.apply(kind.kind, {"spec": document(kind, kind.specs[0])["spec"]})
            for spec in kind.specs:
                body = document(kind, spec)
                stored = await server.replace(kind.kind, {"spec": with_unknown_fields(body["spec"], schema)})
                assert "zzUnknown" not in json.dumps(stored["spec"])
                assert codec_of(kind.kind).decode(server.encoded(stored)).spec == spec
            await server.forget(kind.kind)

        run(example)

    check()


def test_what_the_model_refuses_is_refused(run: Run) -> None:
    @FEW
    @given(made(), st.data())
    def check(kind: Made, data: st.DataObject) -> None:
        valid = document(kind, kind.specs[0])["spec"]
        refused: list[Any] = []
        for _ in range(20):
            body = data.draw(with_wrong_values(valid))
            try:
                kind.kind.model_validate({"metadata": {"name": "tried"}, "spec": body})
            except ValidationError:
                refused.append(body)
        assume(refused)

        async def example(server: Server) -> None:
            await server.install(kind.kind)
            await server.apply(kind.kind, {"spec": valid})
            for body in refused:
                note(str(body))
                with pytest.raises((InvalidError, BadRequestError)):
                    await server.replace(kind.kind, {"spec": body}, dry_run=True)
            await server.forget(kind.kind)

        run(example)

    check()
