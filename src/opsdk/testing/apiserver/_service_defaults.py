"""What the server fills in in a Service: addresses, families, policies, ports."""

from __future__ import annotations

from collections.abc import Callable

from opsdk.testing.apiserver._json import Document, Value, as_list, as_object

__all__ = ["default_service", "prepare_service"]

_EXTERNAL = frozenset({"NodePort", "LoadBalancer"})
_FIRST_NODE_PORT = 30000
_NODE_PORTS = 2768


def default_service(document: Document) -> None:
    """Fill in what a Service leaves out, in place."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        spec = document["spec"] = {}
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})
    for value in as_list(spec.get("ports")):
        port = as_object(value)
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in _EXTERNAL:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def prepare_service(document: Document, old: Document | None, addresses: Callable[[], str]) -> None:
    """Give a Service its addresses and ports, in place; what was allocated for `old` stays.

    Args:
        addresses: Gives a free cluster IP.
    """
    spec = as_object(document.get("spec"))
    before = as_object(old.get("spec")) if old is not None else {}
    document["status"] = document.get("status") or {"loadBalancer": {}}
    _drop_what_another_type_had(spec, before)
    if spec["type"] == "ExternalName":
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            spec.pop(name, None)
        return
    _addresses(spec, before, addresses)
    spec.setdefault("ipFamilies", before.get("ipFamilies") or ["IPv4"])
    spec.setdefault("ipFamilyPolicy", before.get("ipFamilyPolicy") or "SingleStack")
    if spec["type"] in _EXTERNAL:
        _node_ports(spec, before)
    if spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local":
        kept = before.get("healthCheckNodePort")
        spec.setdefault("healthCheckNodePort", kept or _health_check_port(spec))


def _drop_what_another_type_had(spec: Document, before: Document) -> None:
    """What came with the old type and was not changed together with it goes with it."""
    if before.get("type") in _EXTERNAL and spec["type"] not in _EXTERNAL:
        for name in ("externalTrafficPolicy", "allocateLoadBalancerNodePorts", "healthCheckNodePort"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
        had = [as_object(port).get("nodePort") for port in as_list(before.get("ports"))]
        for value in as_list(spec.get("ports")):
            port = as_object(value)
            if port.get("nodePort") in had:
                port.pop("nodePort", None)


def _addresses(spec: Document, before: Document, addresses: Callable[[], str]) -> None:
    several = as_list(spec.get("clusterIPs"))
    if not spec.get("clusterIP"):
        spec["clusterIP"] = several[0] if several else before.get("clusterIP") or addresses()
    elif several and several == before.get("clusterIPs") and spec["clusterIP"] != before.get("clusterIP"):
        several = []  # a client that knows only the singular field has changed it
    if not several:
        address: Value = spec["clusterIP"]
        spec["clusterIPs"] = [address]


def _health_check_port(spec: Document) -> int:
    taken = [as_object(port).get("nodePort") for port in as_list(spec.get("ports"))]
    return next(port for port in range(_FIRST_NODE_PORT + _NODE_PORTS - 1, _FIRST_NODE_PORT, -1) if port not in taken)


def _node_ports(spec: Document, before: Document) -> None:
    was = {
        (as_object(port).get("port"), as_object(port).get("protocol")): as_object(port).get("nodePort")
        for port in as_list(before.get("ports"))
    }
    taken = [as_object(port).get("nodePort") for port in as_list(spec.get("ports"))]
    for value in as_list(spec.get("ports")):
        port = as_object(value)
        if port.get("nodePort"):
            continue
        kept = was.get((port.get("port"), port.get("protocol")))
        if kept is None:
            # Derived from the port, so that the same Service gets the same one in every run of a test.
            number = port.get("port")
            start = number if isinstance(number, int) else 0
            kept = next(
                candidate
                for offset in range(_NODE_PORTS)
                if (candidate := _FIRST_NODE_PORT + (start + offset) % _NODE_PORTS) not in taken
            )
        port["nodePort"] = kept
        taken.append(kept)
