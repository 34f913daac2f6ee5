"""Which object a request is about."""

from __future__ import annotations

import pytest

from opsdk.testing.simulator._path import Target, parse_path


def target(
    group: str, version: str, plural: str, namespace: str | None, name: str | None, subresource: str | None
) -> Target:
    return Target(group=group, version=version, plural=plural, namespace=namespace, name=name, subresource=subresource)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", target("", "v1", "pods", None, None, None)),
        ("/api/v1/namespaces/default/pods", target("", "v1", "pods", "default", None, None)),
        ("/api/v1/namespaces/default/pods/p", target("", "v1", "pods", "default", "p", None)),
        ("/api/v1/namespaces/default/pods/p/status", target("", "v1", "pods", "default", "p", "status")),
        ("/api/v1/namespaces", target("", "v1", "namespaces", None, None, None)),
        ("/api/v1/namespaces/default", target("", "v1", "namespaces", None, "default", None)),
        ("/api/v1/namespaces/default/status", target("", "v1", "namespaces", None, "default", "status")),
        ("/api/v1/namespaces/default/finalize", target("", "v1", "namespaces", None, "default", "finalize")),
        ("/apis/apps/v1/namespaces/a/deployments/d/scale", target("apps", "v1", "deployments", "a", "d", "scale")),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            target("rbac.authorization.k8s.io", "v1", "clusterroles", None, "system:node", None),
        ),
    ],
)
def test_a_path_names_a_resource_an_object_and_a_subresource(path: str, expected: Target) -> None:
    assert parse_path(path) == expected


@pytest.mark.parametrize(
    "path", ["/", "/version", "/healthz", "/api", "/api/v1", "/apis", "/apis/apps/v1", "/openapi/v3"]
)
def test_discovery_and_health_are_about_no_resource(path: str) -> None:
    assert parse_path(path) is None


def test_a_target_knows_its_paths() -> None:
    parsed = parse_path("/apis/apps/v1/namespaces/a/deployments/d/scale")
    assert parsed is not None
    assert parsed.object_path == "/apis/apps/v1/namespaces/a/deployments/d"
    assert parsed.collection_path == "/apis/apps/v1/deployments"
    cluster = parse_path("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode")
    assert cluster is not None
    assert cluster.object_path == "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode"
