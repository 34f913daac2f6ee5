"""Subresources that reach beyond the API: logs, exec and the like, which need a kubelet; bindings; tokens.

There are no kubelets here. What kube-apiserver answers before it asks one is answered alike: a pod that is not there,
that is not on a node, whose container must be named. Then it ends with an error that says so.
"""

from __future__ import annotations

from typing import Final

from opsdk.testing.apiserver._calls import Call, body_object
from opsdk.testing.apiserver._cluster import Cluster
from opsdk.testing.apiserver._json import Document, Value, as_list, as_object, as_text, dig, encode
from opsdk.testing.apiserver._status import StatusError, bad_request, conflict, not_found
from opsdk.testing.apiserver._store import Stored

__all__ = ["connect"]

_PATHS: Final = {"attach": "attach", "exec": "exec", "log": "containerLogs", "portforward": "portForward"}


def connect(cluster: Cluster, call: Call) -> tuple[int, bytes]:
    """Answer a call to one of these subresources.

    Raises:
        StatusError: What kube-apiserver says, or that there is nobody to ask.
    """
    if call.subresource == "proxy":
        raise _proxy(cluster, call)
    stored = cluster.find(call.info, call.namespace, call.name)
    if stored is None:
        raise not_found(call.info, call.name)
    match call.subresource:
        case "binding":
            return 201, encode(_bind(cluster, call, stored))
        case "token":
            raise _no_token(call)
        case _:
            return _of_a_container(cluster, call, stored.document())


def _of_a_container(cluster: Cluster, call: Call, pod: Document) -> tuple[int, bytes]:
    container = "" if call.subresource == "portforward" else _container(call, pod)
    node_name = as_text(dig(pod, "spec", "nodeName"))
    if not node_name:
        if call.subresource == "log":
            return 204, b""
        raise bad_request(f"pod {call.name} does not have a host assigned")
    nodes = cluster.registry.find("", "v1", "nodes")
    node = cluster.find(nodes, "", node_name) if nodes is not None else None
    if node is None:
        raise not_found(call.info, node_name)
    where = "/".join(part for part in (_PATHS[call.subresource], call.namespace, call.name, container) if part)
    raise _no_kubelet(node.document(), where)


def _container(call: Call, pod: Document) -> str:
    """The container that is meant."""
    names = [as_text(as_object(each).get("name")) for each in as_list(dig(pod, "spec", "containers"))]
    others = [
        as_text(as_object(each).get("name"))
        for field in ("initContainers", "ephemeralContainers")
        for each in as_list(dig(pod, "spec", field))
    ]
    wanted = call.query.get("container", "")
    if not wanted:
        if len(names) == 1:
            return names[0]
        choices = f"choose one of: [{' '.join(names)}]"
        raise bad_request(f"a container name must be specified for pod {call.name}, {choices}")
    if wanted not in {*names, *others}:
        raise bad_request(f"container {wanted} is not valid for pod {call.name}")
    return wanted


def _no_kubelet(node: Document, where: str) -> StatusError:
    addresses = [as_text(as_object(each).get("address")) for each in as_list(dig(node, "status", "addresses"))]
    if not addresses:
        return StatusError(500, "", "no preferred addresses found; known addresses: []")
    port = dig(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port") or 10250
    text = f'Get "https://{addresses[0]}:{port}/{where}": the in-memory API server speaks to no kubelets'
    return StatusError(500, "", text)


def _proxy(cluster: Cluster, call: Call) -> StatusError:
    if call.info.plural == "services":
        return StatusError(503, "ServiceUnavailable", f'no endpoints available for service "{call.name}"')
    stored = cluster.find(call.info, call.namespace, call.name)
    if stored is None:
        return not_found(call.info, call.name)
    if call.info.plural == "nodes":
        return _no_kubelet(stored.document(), "")
    return bad_request("address not allowed")


def _bind(cluster: Cluster, call: Call, stored: Stored) -> Document:
    """What a scheduler does."""
    binding = body_object(call)
    kind = as_text(binding.get("kind")) or "Binding"
    if kind != "Binding":
        text = f"converting (v1.{kind}) to (core.Binding): unknown conversion"
        raise bad_request(f'{kind} in version "v1" cannot be handled as a Binding: {text}')
    if as_text(dig(binding, "metadata", "name")) not in {"", call.name}:
        raise bad_request("name in URL does not match name in Binding object")
    target = as_object(binding.get("target"))
    # kube-apiserver loses the reason of these two, too
    if (target_kind := as_text(target.get("kind"))) not in {"", "Node"}:
        supported = 'supported values: "Node", "<empty>"'
        raise StatusError(500, "", f'target.kind: Unsupported value: "{target_kind}": {supported}')
    node_name = as_text(target.get("name"))
    if not node_name:
        raise StatusError(500, "", "target.name: Required value")
    pod = stored.document()
    if stored.deleting:
        raise _not_bound(call, f"pod {call.name} is being deleted, cannot be assigned to a host")
    if taken := as_text(dig(pod, "spec", "nodeName")):
        raise _not_bound(call, f'pod {call.name} is already assigned to node "{taken}"')
    as_object(pod["spec"])["nodeName"] = node_name
    metadata = as_object(pod["metadata"])
    if annotations := as_object(dig(binding, "metadata", "annotations")):
        metadata["annotations"] = {**as_object(metadata.get("annotations")), **annotations}
    status = as_object(pod.get("status"))
    conditions: list[Value] = [
        each for each in as_list(status.get("conditions")) if as_object(each).get("type") != "PodScheduled"
    ]
    scheduled: Document = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    pod["status"] = {**status, "conditions": [*conditions, {**scheduled, "lastTransitionTime": cluster.now_text()}]}
    cluster.put(call.info, pod)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _not_bound(call: Call, why: str) -> StatusError:
    error = conflict(call.info, call.name, why)
    text = f'Operation cannot be fulfilled on pods/binding "{call.name}": {why}'
    return StatusError(409, "Conflict", text, details={**as_object(error.details), "kind": "pods/binding"})


def _no_token(call: Call) -> StatusError:
    body_object(call)
    text = (
        f"there are no tokens for serviceaccounts: the in-memory API server authenticates nobody, so that "
        f"{call.name} needs none"
    )
    return StatusError(405, "MethodNotAllowed", text, details={"name": call.name, "kind": "serviceaccounts"})
