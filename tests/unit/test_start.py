"""What a start does not load: each of these is a part of its time and of an idle operator's memory.

Each case is a program of its own, as modules can be loaded only once.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path
from textwrap import dedent

import lightkube
import pytest

HEAVY = (
    "annotated_types",
    "email",
    "h11",
    "http.client",
    "http.server",
    "httpcore2",
    "httpx2",
    "prometheus_client",
    "pydantic",
    "pydantic_core",
    "trio",
    "urllib.request",
    "wsgiref",
    "yaml",
)

STRUCTS = """
import msgspec
from opsdk import Manager, ManagerOptions, Request, ResourceOwner, Result, For, StateMachine
from lightkube.core.resource import ApiInfo, NamespacedResource, ResourceDef
from lightkube.core.schema import DictMixin
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from opsdk.client import ApiClient, ClientConfig
from opsdk.models import Conditions, MachineStatusStruct, codec_of, set_condition

class Spec(DictMixin, rename="camel"):
    size: int = 0

class Widget(NamespacedResource, DictMixin, rename="camel", kw_only=True):
    _api_info = ApiInfo(
        resource=ResourceDef("bench.opsdk.dev", "v1", "Widget"),
        plural="widgets",
        verbs=["delete", "get", "global_list", "global_watch", "list", "patch", "post", "put", "watch"],
    )
    apiVersion: str | None = "bench.opsdk.dev/v1"
    kind: str | None = "Widget"
    metadata: ObjectMeta | None = None
    spec: Spec = msgspec.field(default_factory=Spec)
    status: MachineStatusStruct = msgspec.field(default_factory=MachineStatusStruct)

class Reconciler:
    async def reconcile(self, request: Request) -> Result:
        return Result()

config = ClientConfig.from_dict({
    "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "a", "context": {"cluster": "a"}}],
    "current-context": "a",
})
client = ApiClient.from_config(config)
manager = Manager(ManagerOptions(leader_election=False), client=client)
manager.controller(Widget).owns(ConfigMap).complete(Reconciler())
ResourceOwner(Widget, manager.client, [For(ConfigMap, lambda widget: [])])
widget = codec_of(Widget).decode(codec_of(Widget).encode(Widget(metadata=ObjectMeta(name="a"))))
set_condition(widget.status.conditions, type="Ready", status="True", reason="Made")
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", dedent(program)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def loaded(program: str, names: tuple[str, ...] = HEAVY) -> list[str]:
    return run(f"{program}\nimport sys; print(*(name for name in {names!r} if name in sys.modules))").split()


def test_an_operator_of_structs_loads_neither_pydantic_nor_a_client_of_others_nor_prometheus_client() -> None:
    assert loaded(STRUCTS) == []


def test_a_model_loads_pydantic_and_nothing_else() -> None:
    program = """
        from opsdk import CustomResource, Manager, Model
        class Spec(Model):
            size: int
        class Widget(CustomResource[Spec], group="bench.opsdk.dev", version="v1"): ...
    """
    assert loaded(dedent(program)) == ["annotated_types", "email", "pydantic", "pydantic_core"]


def test_the_first_look_at_the_registry_loads_prometheus_client() -> None:
    program = "from opsdk.metrics import Metrics; metrics = Metrics(); metrics.malformed('Widget')"
    assert "prometheus_client" not in loaded(program)
    assert "prometheus_client" in loaded(f"{program}; metrics.registry")


FOLDER = Path(lightkube.__path__[0])
LIGHTKUBES = sorted(
    file.relative_to(FOLDER).with_suffix("").as_posix().replace("/", ".")
    for folder in (".", "core", "config", "utils")
    for file in FOLDER.joinpath(folder).glob("[a-z]*.py")
)
BEFORE = ("", "import opsdk", "import lightkube, opsdk")
USES = (
    "from lightkube import Client",
    "import lightkube; lightkube.AsyncClient",
    "from lightkube import *; Client",
    "import lightkube; assert 'KubeConfig' in dir(lightkube)",
    "import lightkube.core.client",
    "import lightkube.core.selector; from lightkube import Client",
    "from lightkube import operators, Client; operators.in_",
    "import lightkube; lightkube.models.meta_v1; lightkube.Client",
    *(f"import lightkube.{name}" for name in LIGHTKUBES),
    "import importlib, lightkube; importlib.reload(lightkube); lightkube.Client",
    "import lightkube.core.client as c, pickle; assert pickle.loads(pickle.dumps(c.Client)) is c.Client",
)
FORKS = """
import os, sys, traceback
import anyio, asyncio, httpx2, msgspec, yaml  # what all of them load

def child(before, use):
    try:
        exec(before, {})
        exec(use, {})
        import lightkube, lightkube.core.client
        assert lightkube.Client is lightkube.core.client.Client
        assert set(lightkube.__all__) <= set(vars(lightkube))
    except BaseException:
        print(repr(before), repr(use), traceback.format_exc())
        sys.stdout.flush()
    os._exit(0)

for before, use in CASES:
    pid = os.fork()
    if not pid:
        child(before, use)
    os.waitpid(pid, 0)
"""


def test_lightkubes_own_names_are_there_whoever_was_first() -> None:
    cases = [*product(BEFORE, USES), *(("import opsdk", f"import lightkube.{name}") for name in LIGHTKUBES)]
    assert run(f"CASES = {cases!r}\n{FORKS}") == ""


@pytest.mark.parametrize("name", ["Clientele", "__wrapped__"])
def test_a_name_that_lightkube_does_not_have_is_an_attribute_error(name: str) -> None:
    program = f"""
        import opsdk, lightkube
        try:
            lightkube.{name}
        except AttributeError as error:
            print(error.name)
        try:
            from lightkube import {name}
        except ImportError as error:
            print(error.name)
    """
    assert run(program).split() == [name, "lightkube"]


def test_lightkubes_module_is_the_usual_one() -> None:
    show = "print(lightkube.__name__, lightkube.__file__, lightkube.__path__, lightkube.__spec__, lightkube.__loader__)"
    usual = run(f"import lightkube; {show}")
    later = run(f"import opsdk, lightkube; {show}")
    assert later.split("0x")[0] == usual.split("0x")[0]
    assert run("import opsdk.models, sys; print(*(f for f in sys.meta_path if 'opsdk' in type(f).__module__))") == ""


def test_what_a_program_puts_into_lightkube_stays() -> None:
    assert run("import opsdk, lightkube; lightkube.Client = 1; lightkube.ApiError; print(lightkube.Client)") == "1"


def test_many_threads_ask_at_once_and_each_gets_the_client() -> None:
    program = """
        import opsdk, lightkube, threading
        from concurrent.futures import ThreadPoolExecutor
        start = threading.Barrier(8)
        def ask(number: int) -> object:
            start.wait()
            if number % 2:
                from lightkube.core.client import Client
                return Client
            return lightkube.Client
        with ThreadPoolExecutor(8) as pool:
            print(len(set(pool.map(ask, range(8)))))
    """
    assert run(program) == "1"


def test_importing_opsdk_afresh_does_not_hide_what_lightkube_has() -> None:
    program = """
        import opsdk, sys
        for name in [name for name in sys.modules if name.partition(".")[0] == "opsdk"]:
            del sys.modules[name]
        import opsdk, lightkube
        print(lightkube.Client.__name__)
    """
    assert run(program) == "Client"


def test_where_there_is_no_lightkube_its_import_says_so() -> None:
    program = """
        import opsdk, sys
        sys.path[:] = [folder for folder in sys.path if "site-packages" not in folder]
        try:
            import lightkube
        except ModuleNotFoundError as error:
            print(error.name)
    """
    assert run(program) == "lightkube"
