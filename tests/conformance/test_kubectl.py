"""kubectl against the served in-memory server, and against a real one: the same commands, the same words.

kubectl is taken from OPSDK_KUBECTL, else from PATH; a test run without either fails, since silence would hide it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import anyio
import anyio.to_thread
import pytest
from anyio.abc import ByteReceiveStream

from conformance.differences import TOKENS, differs
from conformance.harness import GROUP, PATIENCE_SECONDS, Api, eventually, prepare
from opsdk.client import ClientConfig, HttpxTransport
from opsdk.testing.apiserver import ApiServer

pytestmark = pytest.mark.anyio

WIDGETS = f"widgets.{GROUP}"  # other suites have widgets, too


@pytest.fixture(
    params=[
        pytest.param(name, id=name, marks=pytest.mark.controlplane) for name in ("memory", "real")
    ]  # both need kubectl
)
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def anyio_backend() -> str:
    """Sockets are real, so time is, too. One backend: the server's own tests have both."""
    return "asyncio"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def rows(self) -> list[list[str]]:
        """The table that was printed, without its header."""
        return [re.split(r"\s{2,}", line.strip()) for line in self.out.splitlines()[1:]]


@final
class Kubectl:
    def __init__(self, kubeconfig: Path, folder: Path, api: Api) -> None:
        program = os.environ.get("OPSDK_KUBECTL") or shutil.which("kubectl")
        assert program, "no kubectl: put it on PATH or name it in OPSDK_KUBECTL"
        self._program = program
        self._kubeconfig = kubeconfig
        self._folder = folder
        self.api = api
        self.namespace = api.namespace

    async def run(self, *arguments: str, stdin: object = None) -> Outcome:
        """Run it in the test's namespace; documents on stdin are written as JSON."""
        text = stdin if isinstance(stdin, str) else json.dumps(stdin) if stdin is not None else ""

        def run() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [self._program, "--kubeconfig", str(self._kubeconfig), "--namespace", self.namespace, *arguments],
                input=text,
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
                env={**os.environ, "KUBECACHEDIR": str(self._folder), "HOME": str(self._folder)},
            )

        done = await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
        return Outcome(code=done.returncode, out=done.stdout, err=done.stderr)

    @asynccontextmanager
    async def printing(self, *arguments: str) -> AsyncGenerator[AsyncIterator[str]]:
        """The lines that it prints, for as long as the context is open."""
        command = [self._program, "--kubeconfig", str(self._kubeconfig), "--namespace", self.namespace, *arguments]
        environment = {**os.environ, "KUBECACHEDIR": str(self._folder), "HOME": str(self._folder)}
        async with await anyio.open_process(command, env=environment) as process:
            assert process.stdout is not None
            with anyio.fail_after(PATIENCE_SECONDS):
                yield _lines(process.stdout)
            process.terminate()

    async def ok(self, *arguments: str, stdin: object = None) -> Outcome:
        """Run it and insist on success."""
        outcome = await self.run(*arguments, stdin=stdin)
        assert outcome.code == 0, outcome.err
        return outcome


async def _lines(stream: ByteReceiveStream) -> AsyncIterator[str]:
    rest = b""
    async for chunk in stream:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode()


@pytest.fixture(scope="session")
def kubectl_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kubectl keeps what it has discovered, by address: asked for once where the address stays."""
    return tmp_path_factory.mktemp("kubectl")


@pytest.fixture
async def kubectl(
    server: str, anyio_backend: str, tmp_path: Path, kubectl_cache: Path, request: pytest.FixtureRequest
) -> AsyncGenerator[Kubectl]:
    """In a namespace of the test's own, with the suite's kinds."""
    if server == "real":
        kubeconfig: Path = request.getfixturevalue("real_kubeconfig")
        transport = HttpxTransport(ClientConfig.from_files([kubeconfig]))
        try:
            api = await prepare(transport, server)
            yield Kubectl(kubeconfig, kubectl_cache, api)
            await api.delete("namespaces", api.namespace)
        finally:
            await transport.aclose()
        return
    kubeconfig = tmp_path / "kubeconfig"
    async with ApiServer() as memory, memory.serve() as served:
        kubeconfig.write_text(served.kubeconfig())
        yield Kubectl(kubeconfig, tmp_path, await prepare(memory.transport(), server))


def widget(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": 3, **spec},
    }


_DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {"name": "web", "image": "registry.invalid/web:1", "ports": [{"containerPort": 80}]},
                ]
            },
        },
    },
}


async def test_get_prints_the_columns(kubectl: Kubectl) -> None:
    assert (await kubectl.run("get", WIDGETS)).err == f"No resources found in {kubectl.namespace} namespace.\n"
    await kubectl.ok("apply", "-f", "-", stdin=widget())
    shown = await kubectl.ok("get", "wdg")
    assert shown.out.splitlines()[0].split() == ["NAME", "SIZE", "READY", "DUE"]
    assert shown.rows == [["a", "3"]]
    wide = await kubectl.ok("get", WIDGETS, "a", "-o", "wide")
    assert wide.out.splitlines()[0].split() == ["NAME", "SIZE", "READY", "DUE", "TAGS"]
    everywhere = await kubectl.ok("get", WIDGETS, "-A")
    assert [kubectl.namespace, "a", "3"] in everywhere.rows
    assert (await kubectl.ok("get", WIDGETS, "-o", "name")).out == f"widget.{GROUP}/a\n"


async def test_get_yaml_and_json_print_the_object(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget())
    text = (await kubectl.ok("get", WIDGETS, "a", "-o", "yaml")).out
    assert "kind: Widget\n" in text
    assert "  color: red\n" in text
    assert "managedFields" not in text
    assert "managedFields" in (await kubectl.ok("get", WIDGETS, "a", "-o", "yaml", "--show-managed-fields")).out
    found = (await kubectl.ok("get", WIDGETS, "a", "-o", "json")).document
    assert found["spec"] == {"size": 3, "color": "red", "replicas": 1}
    assert (await kubectl.ok("get", WIDGETS, "a", "-o", "jsonpath={.spec.size}")).out == "3"
    assert (await kubectl.ok("get", WIDGETS, "-o", "json")).document["kind"] == "List"


async def test_get_selects(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget("a"))
    await kubectl.ok("apply", "-f", "-", stdin=widget("b"))
    await kubectl.ok("label", WIDGETS, "a", "tier=web")
    assert (await kubectl.ok("get", WIDGETS, "-l", "tier=web", "-o", "name")).out == f"widget.{GROUP}/a\n"
    assert (await kubectl.ok("get", WIDGETS, "-l", "!tier", "-o", "name")).out == f"widget.{GROUP}/b\n"
    by_field = await kubectl.ok("get", WIDGETS, "--field-selector", "metadata.name=b", "-o", "name")
    assert by_field.out == f"widget.{GROUP}/b\n"


async def test_what_is_not_there_is_not_found(kubectl: Kubectl) -> None:
    outcome = await kubectl.run("get", WIDGETS, "none")
    assert outcome.code == 1
    assert outcome.err == f'Error from server (NotFound): widgets.{GROUP} "none" not found\n'
    outcome = await kubectl.run("get", "nonsense")
    assert outcome.err == 'error: the server doesn\'t have a resource type "nonsense"\n'


async def test_describe_tells_all(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget())
    text = (await kubectl.ok("describe", WIDGETS, "a")).out
    assert re.search(r"^Name:\s+a$", text, re.MULTILINE)
    assert re.search(r"^  Size:\s+3$", text, re.MULTILINE)
    assert re.search(r"^Events:\s+<none>$", text, re.MULTILINE)
    await kubectl.ok("apply", "-f", "-", stdin=_DEPLOYMENT)
    text = (await kubectl.ok("describe", "deployment", "web")).out
    assert re.search(r"^Selector:\s+app=web$", text, re.MULTILINE)
    assert re.search(r"^    Image:\s+registry.invalid/web:1$", text, re.MULTILINE)


async def test_apply_creates_configures_and_leaves_alone(kubectl: Kubectl) -> None:
    name = f"widget.{GROUP}/a"
    assert (await kubectl.ok("apply", "-f", "-", stdin=widget())).out == f"{name} created\n"
    assert (await kubectl.ok("apply", "-f", "-", stdin=widget())).out == f"{name} unchanged\n"
    assert (await kubectl.ok("apply", "-f", "-", stdin=widget(size=4, code="abc"))).out == f"{name} configured\n"
    assert (await kubectl.ok("apply", "-f", "-", stdin=widget(size=4))).out == f"{name} configured\n"
    found = (await kubectl.ok("get", WIDGETS, "a", "-o", "json")).document
    assert found["spec"] == {"size": 4, "color": "red", "replicas": 1}


async def test_apply_of_built_in_kinds_knows_how_lists_merge(kubectl: Kubectl) -> None:
    name = "deployment.apps/web"
    assert (await kubectl.ok("apply", "-f", "-", stdin=_DEPLOYMENT)).out == f"{name} created\n"
    assert (await kubectl.ok("apply", "-f", "-", stdin=_DEPLOYMENT)).out == f"{name} unchanged\n"
    text = json.dumps(_DEPLOYMENT).replace("web:1", "web:2")
    assert (await kubectl.ok("apply", "-f", "-", stdin=text)).out == f"{name} configured\n"
    found = (await kubectl.ok("get", "deployment", "web", "-o", "json")).document
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.invalid/web:2"
    assert container["terminationMessagePath"] == "/dev/termination-log"


async def test_apply_refuses_what_the_server_refuses(kubectl: Kubectl) -> None:
    outcome = await kubectl.run("apply", "-f", "-", stdin=widget(size=0))
    assert outcome.code == 1
    assert outcome.err == (
        'The Widget "a" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal '
        "to 1\n"
    )
    outcome = await kubectl.run("apply", "-f", "-", stdin=widget(nope=1))
    assert outcome.code == 1
    assert 'strict decoding error: unknown field "spec.nope"' in outcome.err
    await kubectl.ok("apply", "--validate=false", "-f", "-", stdin=widget(nope=1))


async def test_server_side_apply_conflicts_and_forces(kubectl: Kubectl) -> None:
    name = f"widget.{GROUP}/a"
    outcome = await kubectl.ok("apply", "--server-side", "-f", "-", stdin=widget())
    assert outcome.out == f"{name} serverside-applied\n"
    await kubectl.ok("patch", WIDGETS, "a", "--type=merge", "-p", '{"spec":{"size":9}}')
    outcome = await kubectl.run("apply", "--server-side", "-f", "-", stdin=widget())
    assert outcome.code == 1
    conflict = f'Apply failed with 1 conflict: conflict with "kubectl-patch" using {GROUP}/v1: .spec.size'
    assert outcome.err.splitlines()[0] == f"error: {conflict}"
    await kubectl.ok("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=widget())
    assert (await kubectl.ok("get", WIDGETS, "a", "-o", "jsonpath={.spec.size}")).out == "3"


async def test_dry_run_on_the_server(kubectl: Kubectl) -> None:
    name = f"widget.{GROUP}/a"
    outcome = await kubectl.ok("apply", "--dry-run=server", "-f", "-", stdin=widget())
    assert outcome.out == f"{name} created (server dry run)\n"
    assert (await kubectl.run("get", WIDGETS, "a")).code == 1


async def test_diff_shows_what_would_change(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget())
    outcome = await kubectl.run("diff", "-f", "-", stdin=widget(size=4))
    assert outcome.code == 1
    assert "-  size: 3\n+  size: 4\n" in outcome.out
    assert (await kubectl.run("diff", "-f", "-", stdin=widget())).code == 0


async def test_patch_by_merge_json_and_subresource(kubectl: Kubectl) -> None:
    name = f"widget.{GROUP}/a"
    await kubectl.ok("apply", "-f", "-", stdin=widget())
    outcome = await kubectl.ok("patch", WIDGETS, "a", "--type=merge", "-p", '{"spec":{"size":5}}')
    assert outcome.out == f"{name} patched\n"
    outcome = await kubectl.ok("patch", WIDGETS, "a", "--type=merge", "-p", '{"spec":{"size":5}}')
    assert outcome.out == f"{name} patched (no change)\n"
    operation = '[{"op":"replace","path":"/spec/size","value":6}]'
    await kubectl.ok("patch", WIDGETS, "a", "--type=json", "-p", operation)
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl.ok("patch", WIDGETS, "a", "--subresource=status", "--type=merge", "-p", status)
    assert (await kubectl.ok("get", WIDGETS, "a")).rows == [["a", "6", "True"]]
    outcome = await kubectl.run("patch", WIDGETS, "a", "-p", "{}")
    assert outcome.code == 1
    assert "application/strategic-merge-patch+json is not supported" in outcome.err


async def test_strategic_patches_of_built_in_kinds(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=_DEPLOYMENT)
    await kubectl.ok("set", "image", "deployment/web", "web=registry.invalid/web:7")
    path = "jsonpath={.spec.template.spec.containers[*].image}"
    assert (await kubectl.ok("get", "deployment", "web", "-o", path)).out == "registry.invalid/web:7"


async def test_scale(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget())
    assert (await kubectl.ok("scale", f"{WIDGETS}/a", "--replicas=4")).out == f"widget.{GROUP}/a scaled\n"
    assert (await kubectl.ok("get", WIDGETS, "a", "-o", "jsonpath={.spec.replicas}")).out == "4"
    outcome = await kubectl.run("scale", f"{WIDGETS}/a", "--current-replicas=2", "--replicas=5")
    assert outcome.code == 1
    assert "Expected replicas to be 2, was 4" in outcome.err


async def test_wait_for_a_condition_a_value_and_a_delete(kubectl: Kubectl) -> None:
    name = f"widget.{GROUP}/a"
    await kubectl.ok("apply", "-f", "-", stdin=widget())
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    patch = ("patch", WIDGETS, "a", "--subresource=status", "--type=merge", "-p", status)
    waited: list[Outcome] = []

    async def wait() -> None:
        waited.append(await kubectl.ok("wait", "--for=condition=Ready", f"{WIDGETS}/a", "--timeout=90s"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(0.5)
        await kubectl.ok(*patch)
    assert waited[0].out == f"{name} condition met\n"
    await kubectl.ok("wait", "--for=jsonpath={.spec.size}=3", f"{WIDGETS}/a", "--timeout=90s")
    await kubectl.ok("delete", WIDGETS, "a")
    await kubectl.ok("wait", "--for=delete", f"{WIDGETS}/a", "--timeout=90s")
    outcome = await kubectl.run("wait", "--for=condition=Ready", f"{WIDGETS}/a", "--timeout=1s")
    assert outcome.code == 1


async def test_delete_waits_for_finalizers(kubectl: Kubectl) -> None:
    held = widget()
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await kubectl.ok("create", "-f", "-", stdin=held)
    deleted: list[Outcome] = []

    async def delete() -> None:
        deleted.append(await kubectl.ok("delete", WIDGETS, "a", "--timeout=90s"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(delete)
        await anyio.sleep(0.7)
        assert not deleted
        await kubectl.ok("patch", WIDGETS, "a", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert f'widget.{GROUP} "a" deleted' in deleted[0].out


async def test_delete_of_all_and_by_selector(kubectl: Kubectl) -> None:
    for name in "abc":
        await kubectl.ok("apply", "-f", "-", stdin=widget(name))
    await kubectl.ok("label", WIDGETS, "a", "x=1")
    await kubectl.ok("delete", WIDGETS, "-l", "x=1")
    assert (await kubectl.ok("get", WIDGETS, "-o", "name")).out == f"widget.{GROUP}/b\nwidget.{GROUP}/c\n"
    await kubectl.ok("delete", WIDGETS, "--all")
    assert (await kubectl.ok("get", WIDGETS, "-o", "name")).out == ""


async def test_explain_reads_the_schema(kubectl: Kubectl) -> None:
    told: list[str] = []

    async def is_explained() -> bool:  # the real server describes a new kind some time after it serves it
        told.append((await kubectl.run("explain", "widget.spec.color", f"--api-version={GROUP}/v1")).out)
        return bool(told[-1])

    await eventually(is_explained)
    assert "FIELD: color <string>" in told[-1]
    text = (await kubectl.ok("explain", "deployment.spec.replicas")).out
    assert "FIELD: replicas <integer>" in text
    assert "Number of desired pods." in text


async def test_api_resources_list_the_kinds(kubectl: Kubectl) -> None:
    rows = (await kubectl.ok("api-resources", f"--api-group={GROUP}")).rows
    assert ["widgets", "wdg", f"{GROUP}/v1", "true", "Widget"] in rows
    assert ["gadgets", f"{GROUP}/v1", "false", "Gadget"] in rows


async def test_watching_shows_changes(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget())
    async with kubectl.printing("get", WIDGETS, "--watch", "--no-headers") as lines:
        assert (await anext(lines)).split() == ["a", "3"]
        await kubectl.ok("patch", WIDGETS, "a", "--type=merge", "-p", '{"spec":{"size":8}}')
        assert (await anext(lines)).split() == ["a", "8"]


async def test_edit_changes_what_the_editor_changes(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget())
    monkeypatch.setenv("KUBE_EDITOR", "sed -i 's/size: 3/size: 5/'")
    assert (await kubectl.ok("edit", WIDGETS, "a")).out == f"widget.{GROUP}/a edited\n"
    assert (await kubectl.ok("get", WIDGETS, "a", "-o", "jsonpath={.spec.size}")).out == "5"
    await kubectl.ok("apply", "-f", "-", stdin=_DEPLOYMENT)
    monkeypatch.setenv("KUBE_EDITOR", "sed -i 's/web:1/web:9/'")
    assert (await kubectl.ok("edit", "deployment", "web")).out == "deployment.apps/web edited\n"
    monkeypatch.setenv("KUBE_EDITOR", "true")
    assert (await kubectl.ok("edit", "deployment", "web")).err == "Edit cancelled, no changes made.\n"


@differs(TOKENS)
async def test_create_token(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "serviceaccount", "robot")
    outcome = await kubectl.run("create", "token", "robot")
    said = (
        "error: failed to create token: there are no tokens for serviceaccounts: the in-memory API server "
        "authenticates nobody, so that robot needs none\n"
    )
    assert (outcome.code, outcome.err) == TOKENS.on(kubectl.api.server, kube_apiserver=(0, ""), in_memory=(1, said))
    missing = await kubectl.run("create", "token", "nobody")
    assert (missing.code, missing.err) == (1, 'error: failed to create token: serviceaccounts "nobody" not found\n')


async def test_logs_and_exec_of_a_pod_on_no_node(kubectl: Kubectl) -> None:
    """The pod is made by its own account, which the real server's controllers make a moment later."""
    await kubectl.run("create", "serviceaccount", "default")
    spec = {"containers": [{"name": "c", "image": "registry.invalid/c:1"}], "terminationGracePeriodSeconds": 0}
    await kubectl.ok(
        "apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    )
    assert (await kubectl.ok("logs", "p")).out == ""
    why = "does not have a host assigned"
    outcome = await kubectl.run("exec", "p", "--", "true")
    assert (outcome.code, outcome.err) == (1, f"error: unable to upgrade connection: pod p {why}\n")
    outcome = await kubectl.run("logs", "none")
    assert outcome.code == 1
    assert 'pods "none" not found' in outcome.err


async def test_warnings_are_shown(kubectl: Kubectl) -> None:
    outcome = await kubectl.ok("apply", "--validate=warn", "-f", "-", stdin=widget(nope=1))
    assert outcome.err == 'Warning: unknown field "spec.nope"\n'


async def test_create_of_what_is_there_already_fails(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=widget())
    outcome = await kubectl.run("create", "-f", "-", stdin=widget())
    assert outcome.code == 1
    assert outcome.err == (
        f'Error from server (AlreadyExists): error when creating "STDIN": widgets.{GROUP} "a" already exists\n'
    )


async def test_replace_and_annotate(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=widget())
    assert (await kubectl.ok("replace", "-f", "-", stdin=widget(size=7))).out == f"widget.{GROUP}/a replaced\n"
    await kubectl.ok("annotate", WIDGETS, "a", "note=x")
    found = (await kubectl.ok("get", WIDGETS, "a", "-o", "json")).document
    assert found["metadata"]["annotations"] == {"note": "x"}
    assert found["spec"]["size"] == 7


async def test_typed_creates_send_protobuf(kubectl: Kubectl) -> None:
    """`kubectl create …` speaks protobuf, which arrives as the same object that JSON would have made."""
    create = ("create", "-o", "json")
    await kubectl.ok("create", "deployment", "web", "--image=registry.invalid/web:1", "--replicas=0", "--port=80")
    spec = (await kubectl.ok("get", "deployment", "web", "-o", "json")).document["spec"]
    assert spec["replicas"] == 0
    assert spec["selector"] == {"matchLabels": {"app": "web"}}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["resources"] == {}
    config_map = (await kubectl.ok(*create, "configmap", "c", "--from-literal=a=b")).document
    assert config_map["data"] == {"a": "b"}
    secret = (await kubectl.ok(*create, "secret", "generic", "s", "--from-literal=k=v")).document
    assert secret["data"] == {"k": "dg=="}
    service = (await kubectl.ok(*create, "service", "clusterip", "v", "--tcp=80:8080")).document
    assert service["spec"]["ports"] == [{"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080}]
    quota = (await kubectl.ok(*create, "quota", "q", "--hard=cpu=1,pods=2")).document
    assert quota["spec"] == {"hard": {"cpu": "1", "pods": "2"}}
    role = (await kubectl.ok(*create, "role", "r", "--verb=get,list", f"--resource=pods,{WIDGETS}")).document
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": [GROUP], "resources": ["widgets"], "verbs": ["get", "list"]},
    ]
    budget = (await kubectl.ok(*create, "pdb", "p", "--min-available=50%", "--selector=a=b")).document
    assert budget["spec"] == {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}
    cron_job = (
        await kubectl.ok(*create, "cronjob", "j", "--image=x", "--schedule=1 * * * *", "--", "echo", "hi")
    ).document
    assert cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"] == ["echo", "hi"]
    assert cron_job["spec"]["suspend"] is False
    assert (await kubectl.ok("auth", "can-i", "get", "pods")).out == "yes\n"
