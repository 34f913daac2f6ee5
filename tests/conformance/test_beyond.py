"""What lies beyond the API: kubelets, identities, admission, controllers."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from conformance.differences import (
    ADMISSION,
    AUTHORIZATION,
    KUBELETS,
    NAMESPACE_OBJECTS,
    TOKENS,
    WEBHOOKS,
    WORKLOADS,
    differs,
)
from conformance.harness import PATIENCE_SECONDS, Answer, Api, Body, config_map, eventually, new_name

pytestmark = pytest.mark.anyio


def pod(name: str, **spec: Any) -> Body:
    containers = [{"name": "c", "image": "registry.invalid/c:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **spec},
    }


async def created_pod(api: Api, name: str, **spec: Any) -> Answer:
    """A pod; the real server waits for the namespace's service account."""
    answers: list[Answer] = []

    async def created() -> bool:
        answers.append(await api.create("pods", pod(name, **spec)))
        return answers[-1].status != 403

    await eventually(created)
    assert answers[-1].status == 201, answers[-1].text
    return answers[-1]


async def created_node(api: Api, *, address: str | None = None) -> str:
    name = new_name("node")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    assert (await api.call("POST", "/api/v1/nodes", node)).status == 201
    if address is not None:
        status = {
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
        }
        path = f"/api/v1/nodes/{name}/status"
        patch = {"status": status}
        assert (await api.call("PATCH", path, patch, content_type="application/merge-patch+json")).status == 200
    return name


async def delete_node(api: Api, name: str) -> None:
    await api.call("DELETE", f"/api/v1/nodes/{name}")


# --- what kubelets do ---


@pytest.mark.parametrize("sub", ["exec", "attach", "portforward"])
async def test_a_pod_on_no_node_has_nobody_to_ask(api: Api, sub: str) -> None:
    await created_pod(api, "a")
    for method in ("GET", "POST"):
        answer = await api.call(method, api.path("pods", "a", sub))
        assert (answer.status, answer.reason) == (400, "BadRequest")
        assert answer.message == "pod a does not have a host assigned"


async def test_a_pod_on_no_node_has_no_logs(api: Api) -> None:
    await created_pod(api, "a")
    answer = await api.get("pods", "a", "log")
    assert (answer.status, answer.text) == (204, "")


@pytest.mark.parametrize("sub", ["log", "exec", "attach", "portforward", "proxy", "binding"])
async def test_a_pod_that_is_not_there_is_not_found_by_its_subresources(api: Api, sub: str) -> None:
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "none"}, "target": {"name": "x"}}
    method, body = ("POST", binding) if sub == "binding" else ("GET", None)
    answer = await api.call(method, api.path("pods", "none", sub), body)
    assert (answer.status, answer.reason, answer.message) == (404, "NotFound", 'pods "none" not found')


async def test_the_container_must_be_named_where_there_are_several(api: Api) -> None:
    await created_pod(api, "a", containers=[{"name": name, "image": "registry.invalid/c:1"} for name in "cd"])
    for sub in ("log", "exec", "attach"):
        answer = await api.get("pods", "a", sub)
        assert (answer.status, answer.reason) == (400, "BadRequest")
        assert answer.message == "a container name must be specified for pod a, choose one of: [c d]"
        answer = await api.get("pods", "a", sub, container="x")
        assert (answer.status, answer.message) == (400, "container x is not valid for pod a")
    assert (await api.get("pods", "a", "log", container="d")).status == 204


async def test_a_pod_on_a_node_that_is_gone_or_has_no_address(api: Api) -> None:
    await created_pod(api, "a", nodeName="nobody")
    answer = await api.get("pods", "a", "log")
    assert (answer.status, answer.message) == (404, 'pods "nobody" not found')
    node = await created_node(api)
    await created_pod(api, "b", nodeName=node)
    answer = await api.get("pods", "b", "log")
    assert (answer.status, answer.message) == (500, "no preferred addresses found; known addresses: []")
    await delete_node(api, node)


@differs(KUBELETS)
async def test_logs_of_a_pod_on_a_node_come_from_its_kubelet(api: Api) -> None:
    node = await created_node(api, address="127.0.0.1")
    await created_pod(api, "a", nodeName=node)
    answer = await api.get("pods", "a", "log")
    assert (answer.status, answer.reason) == (500, "")
    what = f'Get "https://127.0.0.1:1/containerLogs/{api.namespace}/a/c": '
    assert answer.message == what + KUBELETS.on(
        api.server,
        kube_apiserver="dial tcp 127.0.0.1:1: connect: connection refused",
        in_memory="the in-memory API server speaks to no kubelets",
    )
    await delete_node(api, node)


@pytest.mark.parametrize(
    ("method", "sub"),
    [
        ("POST", "log"),
        ("PUT", "log"),
        ("GET", "binding"),
        ("GET", "eviction"),
        ("POST", "status"),
        ("DELETE", "status"),
    ],
)
async def test_a_subresource_has_its_own_methods(api: Api, method: str, sub: str) -> None:
    await created_pod(api, "a")
    answer = await api.call(method, api.path("pods", "a", sub))
    assert (answer.status, answer.reason) == (405, "MethodNotAllowed")
    assert answer.message == "the server does not allow this method on the requested resource"


async def test_a_subresource_that_is_not_there_is_not_found(api: Api) -> None:
    await created_pod(api, "a")
    answer = await api.get("pods", "a", "nonsense")
    assert (answer.status, answer.message) == (404, "the server could not find the requested resource")


async def test_a_service_without_endpoints_has_nobody_to_speak_for_it(api: Api) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    await api.created("services", service)
    answer = await api.get("services", "a", "proxy")
    assert (answer.status, answer.reason) == (503, "ServiceUnavailable")
    assert answer.message == 'no endpoints available for service "a"'


# --- what a scheduler does ---


async def test_a_binding_puts_a_pod_on_a_node_once(api: Api) -> None:
    await created_pod(api, "a")
    node = await created_node(api)
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a", "annotations": {"x": "1"}}}
    path = api.path("pods", "a", "binding")
    answer = await api.call("POST", path, {**binding, "target": target})
    assert (answer.status, answer.body["status"]) == (201, "Success")
    found = (await api.get("pods", "a")).body
    assert found["spec"]["nodeName"] == node
    assert found["metadata"]["annotations"] == {"x": "1"}
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"
    answer = await api.call("POST", path, {**binding, "target": target})
    assert (answer.status, answer.reason) == (409, "Conflict")
    why = f'pod a is already assigned to node "{node}"'
    assert answer.message == f'Operation cannot be fulfilled on pods/binding "a": {why}'
    await delete_node(api, node)


async def test_a_binding_that_is_none_is_refused(api: Api) -> None:
    await created_pod(api, "a")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "x"},
    }
    path = api.path("pods", "a", "binding")
    answer = await api.call("POST", path, {**binding, "metadata": {"name": "other"}})
    assert (answer.status, answer.message) == (400, "name in URL does not match name in Binding object")
    answer = await api.call("POST", path, {**binding, "target": {"kind": "Node"}})
    assert (answer.status, answer.message) == (500, "target.name: Required value")


# --- an eviction is a delete that budgets can refuse ---


async def test_an_eviction_deletes_a_pod(api: Api) -> None:
    await created_pod(api, "a")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    answer = await api.call("POST", api.path("pods", "a", "eviction"), eviction)
    assert (answer.status, answer.body["status"]) == (201, "Success")
    await eventually(partial(_is_gone, api, "a"))
    answer = await api.call("POST", api.path("pods", "a", "eviction"), eviction)
    assert (answer.status, answer.reason) == (404, "NotFound")


async def _is_gone(api: Api, name: str) -> bool:
    return (await api.get("pods", name)).status == 404


# --- identities ---


@differs(TOKENS)
async def test_a_service_account_can_be_given_a_token(api: Api) -> None:
    accounts = f"/api/v1/namespaces/{api.namespace}/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
    assert (await api.call("POST", accounts, account)).status == 201
    request: Body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    answer = await api.call("POST", f"{accounts}/a/token", request)
    refusal = (
        "there are no tokens for serviceaccounts: the in-memory API server authenticates nobody, so that a needs none"
    )
    wanted = TOKENS.on(api.server, kube_apiserver=(201, ""), in_memory=(405, refusal))
    assert (answer.status, answer.message) == wanted
    assert (await api.call("GET", f"{accounts}/a/token")).status == 405
    missing = await api.call("POST", f"{accounts}/none/token", request)
    assert (missing.status, missing.message) == (404, 'serviceaccounts "none" not found')


@differs(AUTHORIZATION)
async def test_somebody_without_rights_is_refused(api: Api) -> None:
    headers = {"impersonate-user": "nobody"}
    answer = await api.call("GET", api.path("configmaps"), headers=headers)
    assert answer.status == AUTHORIZATION.on(api.server, kube_apiserver=403, in_memory=200)


async def test_whoever_runs_the_tests_may_do_everything(api: Api) -> None:
    attributes = {"namespace": api.namespace, "verb": "delete", "group": "apps", "resource": "deployments"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert (answer.status, answer.body["status"]["allowed"]) == (201, True)


# --- admission ---


@differs(ADMISSION)
async def test_admission_adds_to_pods_and_claims(api: Api) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "a"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    answer = await api.call("POST", f"/api/v1/namespaces/{api.namespace}/persistentvolumeclaims", claim)
    finalizers = answer.body["metadata"].get("finalizers")
    volumes = (await created_pod(api, "a")).body["spec"].get("volumes", [])
    added = [*(finalizers or ()), *((set(volume) - {"name"}).pop() for volume in volumes)]
    nothing: list[str] = []
    assert added == ADMISSION.on(
        api.server, kube_apiserver=["kubernetes.io/pvc-protection", "projected"], in_memory=nothing
    )


@differs(WEBHOOKS)
async def test_webhooks_are_asked(api: Api) -> None:
    name = new_name("hook")
    webhook = {
        "name": "hook.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }
    assert (await api.call("POST", path, body)).status == 201

    async def is_refused() -> bool:
        answer = await api.create("configmaps", config_map(new_name()), dryRun="All")
        return answer.status == 500 and answer.message.startswith("Internal error occurred: failed calling webhook")

    asked = await _soon(is_refused)
    await api.call("DELETE", f"{path}/{name}")
    assert asked is WEBHOOKS.on(api.server, kube_apiserver=True, in_memory=False)


# --- controllers ---


@differs(NAMESPACE_OBJECTS)
async def test_a_namespace_gets_a_service_account_and_a_root_certificate(api: Api) -> None:
    account = f"/api/v1/namespaces/{api.namespace}/serviceaccounts/default"

    async def are_there() -> bool:
        answers = (await api.call("GET", account), await api.get("configmaps", "kube-root-ca.crt"))
        return all(answer.status == 200 for answer in answers)

    assert await _soon(are_there) is NAMESPACE_OBJECTS.on(api.server, kube_apiserver=True, in_memory=False)


@differs(WORKLOADS)
async def test_a_deployment_is_rolled_out(api: Api) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("a")["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    del template["spec"]["terminationGracePeriodSeconds"]
    await api.created(
        "deployments", {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}
    )

    async def has_a_pod() -> bool:
        sets = await api.call("GET", f"/apis/apps/v1/namespaces/{api.namespace}/replicasets")
        return bool(sets.names) and bool((await api.get("pods")).names)

    assert await _soon(has_a_pod) is WORKLOADS.on(api.server, kube_apiserver=True, in_memory=False)


async def _soon(holds: Any) -> bool:
    """Whether something comes to hold; two minutes are long for a controller, and no time in memory."""
    with anyio.move_on_after(PATIENCE_SECONDS):
        while not await holds():  # noqa: ASYNC110 - the server cannot tell us
            await anyio.sleep(0.2)
        return True
    return False
