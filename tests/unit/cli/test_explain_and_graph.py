"""`opsdk explain` and `opsdk graph`, from a module on disk to what they print."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from lightkube.resources.core_v1 import ConfigMap

from opsdk import CustomResource, MachineStatus, Model
from opsdk.cli import main
from opsdk.testing import ApiServer
from opsdk.types import MergePatch

CODE = """
from datetime import timedelta

from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Secret

from opsdk import CustomResource, For, MachineStatus, Model, ResourceOwner, StateHandler, StateMachine, Transition


class Spec(Model):
    size: int = 1


class Widget(CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1"):
    def get_machine_status(self) -> MachineStatus:
        return self.status


class Region(CustomResource[Spec, MachineStatus], group="demo.example.com", version="v1", scope="Cluster"):
    def get_machine_status(self) -> MachineStatus:
        return self.status


def build(widget):
    return [ConfigMap(metadata=ObjectMeta(name=widget.metadata.name), data={"size": str(widget.spec.size)})]


def update(widget, existing):
    existing.data = {"size": str(widget.spec.size)}
    return existing


def machine_of(kind, client, when):
    states = {"new": StateHandler(transitions=[Transition(to="ready", when=when, reason="Grown")]),
              "ready": StateHandler(terminal=True)}
    return StateMachine(kind, client, "new", states)


class Reconciler:
    def __init__(self, client):
        self.client = client
        self.machine = machine_of(Widget, client, self.grown)
        self.same = self.machine
        self.children = ResourceOwner(Widget, client, [For(ConfigMap, build, update=update)])

    def grown(self, widget):
        return widget.spec.size > 1


class Writing(Reconciler):
    async def grown(self, widget):
        await self.client.create(
            ConfigMap(metadata=ObjectMeta(name="written", namespace=widget.metadata.namespace)))
        return True


class Hiding(Writing):
    async def grown(self, widget):
        try:
            return await super().grown(widget)
        except Exception:
            return False


class Failing(Reconciler):
    def __init__(self, client):
        super().__init__(client)
        self.children = ResourceOwner(Widget, client, [For(ConfigMap, lambda widget: 1 // 0)])


class Slotted:
    __slots__ = ("machines", "unset")

    def __init__(self, client):
        self.machines = {"a": machine_of(Widget, client, lambda widget: True),
                         "b": machine_of(Widget, client, lambda widget: False)}


class Mixed(Reconciler):
    def __init__(self, client):
        super().__init__(client)
        self.region = machine_of(Region, client, lambda region: True)


class Empty:
    def __init__(self, client):
        self.client = client


def bare(client):
    return machine_of(Region, client, lambda region: True)


async def asking(client):
    await client.find(Widget, "w", namespace="default")


def broken(client):
    raise ValueError("no configuration")


def takes_more(client, cloud):
    return Reconciler(client)


NUMBER = 7
"""

pytestmark = pytest.mark.anyio


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"m{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return name


@pytest.fixture
def anyio_backend() -> str:
    """Real sockets and threads: no virtual time."""
    return "asyncio"


@pytest.fixture
async def server(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[ApiServer]:
    """A server that KUBECONFIG names, with a Widget `default/w` and a Region `north`."""
    there = importlib.import_module(module)
    widget: type[CustomResource[Model, MachineStatus]] = there.Widget
    region: type[CustomResource[Model, MachineStatus]] = there.Region
    async with ApiServer() as server, server.serve() as served:
        (tmp_path / "kubeconfig").write_text(served.kubeconfig())
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        await server.install(widget, region)
        client = server.client()
        await client.create(region.model_validate({"metadata": {"name": "north"}, "spec": {}}))
        stored = await client.create(
            widget.model_validate({"metadata": {"name": "w", "namespace": "default"}, "spec": {"size": 2}})
        )
        base = client.snapshot(stored)
        stored.status.state = "new"
        await client.status.patch_from(base, stored)
        yield server


async def opsdk(*arguments: str) -> int:
    return await anyio.to_thread.run_sync(main, arguments)


async def test_explain_tells_what_machine_and_owner_say_and_writes_nothing(
    server: ApiServer, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("w", "default/w"):
        assert await opsdk("explain", f"{module}:Reconciler", name) == 0
        assert capsys.readouterr().out.splitlines()[:7] == [
            "Widget default/w",
            "machine (StateMachine):",
            "  state 'new': the next pass, which goes to 'ready'",
            "    to 'ready' (Grown): its condition holds",
            "children (ResourceOwner):",
            "  Widget default/w:",
            "    create ConfigMap default/w",
        ]
    assert await server.client().find(ConfigMap, "w", namespace="default") is None


async def test_children_in_line_leave_nothing_to_do_and_a_changed_one_is_told_by_its_leaf(
    server: ApiServer, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = importlib.import_module(module)
    client = server.client()
    await there.Reconciler(client).children.reconcile(await client.get(there.Widget, "w", namespace="default"))
    assert await opsdk("explain", f"{module}:Reconciler", "w") == 0
    assert "nothing to do" in capsys.readouterr().out
    await client.patch(ConfigMap, "w", MergePatch({"data": {"size": "9"}}), namespace="default")
    assert await opsdk("explain", f"{module}:Reconciler", "w") == 0
    assert "    change ConfigMap default/w\n        data.size: " in capsys.readouterr().out


async def test_a_condition_that_writes_is_refused_and_told_even_if_it_hides_it(
    server: ApiServer, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await opsdk("explain", f"{module}:Writing", "w") == 1
    told = capsys.readouterr()
    assert "its condition raised _WriteRefusedError: a write was refused" in told.out
    assert "create ConfigMap default/w" in told.out
    assert await opsdk("explain", f"{module}:Hiding", "w") == 1
    told = capsys.readouterr()
    assert "its condition does not hold" in told.out
    assert "1 request(s) that would have written were refused" in told.err
    assert await server.client().find(ConfigMap, "written", namespace="default") is None


async def test_a_part_that_fails_is_told_where_and_hides_no_other(
    server: ApiServer, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await opsdk("explain", f"{module}:Failing", "w") == 1
    out = capsys.readouterr().out
    assert "state 'new'" in out
    assert "cannot be told: ZeroDivisionError" in out
    assert f"{module}.py:" in out


async def test_several_machines_in_a_dict_and_a_machine_by_itself_are_found(
    server: ApiServer, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await opsdk("explain", f"{module}:Slotted", "w") == 0
    out = capsys.readouterr().out
    assert "machines['a'] (StateMachine):" in out
    assert "machines['b'] (StateMachine):" in out
    assert await opsdk("explain", f"{module}:bare", "north") == 0
    assert capsys.readouterr().out.startswith("Region north\nStateMachine (StateMachine):\n  state '': the first pass")


@pytest.mark.parametrize(
    ("factory", "name", "code", "text"),
    [
        ("Reconciler", "gone", 1, "there is no Widget default/gone"),
        ("Reconciler", "a/b/c", 2, "'a/b/c' names no object"),
        ("Reconciler", "default/", 2, "'default/' names no object"),
        ("bare", "default/north", 2, "is cluster-scoped"),
        ("Mixed", "w", 2, "machine of Widget.v1.demo.example.com, region of Region.v1.demo.example.com, children of"),
        ("Empty", "w", 2, "neither a StateMachine nor a ResourceOwner"),
        ("broken", "w", 2, "cannot be made: ValueError: no configuration"),
        ("takes_more", "w", 2, "'cloud'; give a callable that takes only a client, for example a function that makes"),
        ("Reconcile", "w", 2, "has no 'Reconcile'; did you mean Reconciler?"),
        ("NUMBER", "w", 2, "cannot be called: it is a int"),
    ],
)
@pytest.mark.usefixtures("server")
async def test_explain_says_what_is_wrong(
    module: str,
    capsys: pytest.CaptureFixture[str],
    factory: str,
    name: str,
    code: int,
    text: str,
) -> None:
    assert await opsdk("explain", f"{module}:{factory}", name) == code
    told = capsys.readouterr()
    assert told.err.startswith("opsdk explain: ")
    assert text in told.err
    assert told.out == ""


@pytest.mark.usefixtures("server")
async def test_a_context_that_is_not_there_is_told(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await opsdk("explain", f"{module}:Reconciler", "w", "--context", "elsewhere") == 2
    assert "elsewhere" in capsys.readouterr().err


def test_graph_draws_mermaid_or_dot_without_a_cluster(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "not-there")
    assert main(["graph", f"{module}:Reconciler"]) == 0
    mermaid = capsys.readouterr().out
    assert mermaid.startswith("stateDiagram-v2\n")
    assert "s0 --> s1: Grown\n" in mermaid
    assert main(["graph", f"{module}.py:Reconciler", "--dot"]) == 0
    assert capsys.readouterr().out.startswith("digraph")


def test_graphs_of_several_machines_have_their_names(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", f"{module}:Slotted"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("%%")] == ["%% machines['a']: Widget", "%% machines['b']: Widget"]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("{}:asking", "was refused: `opsdk graph` has no cluster"),
        ("{}:Empty", "has no StateMachine among its attributes"),
        ("{}", "says no factory"),
        (":Reconciler", "say which module"),
        ("nowhere:Reconciler", "there is no module 'nowhere'"),
    ],
)
def test_graph_says_what_is_wrong(module: str, capsys: pytest.CaptureFixture[str], target: str, text: str) -> None:
    assert main(["graph", target.format(module)]) == 2
    assert text in capsys.readouterr().err
