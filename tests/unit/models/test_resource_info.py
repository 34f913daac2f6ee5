"""Which kind a class stands for, and the paths of its objects."""

from __future__ import annotations

from typing import Any

import pytest
from lightkube.core.resource import ApiInfo, GlobalResource, ResourceDef
from lightkube.generic_resource import (
    create_global_resource,  # pyright: ignore[reportUnknownVariableType] - untyped `verbs`
    create_namespaced_resource,  # pyright: ignore[reportUnknownVariableType] - untyped `verbs`
)
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment, DeploymentScale
from lightkube.resources.core_v1 import Namespace, Node, Pod

from opsdk.errors import ObjectError, ResourceDefinitionError
from opsdk.models import ResourceInfo, resource_of
from opsdk.protocols import KubeObject


def info_of(kind: type[KubeObject]) -> tuple[str, str, str, str]:
    info = resource_of(kind)
    return (info.api_version, info.kind, info.plural, info.scope)


def test_lightkubes_classes_say_their_kind() -> None:
    assert info_of(Pod) == ("v1", "Pod", "pods", "Namespaced")
    assert info_of(Node) == ("v1", "Node", "nodes", "Cluster")
    assert info_of(Namespace) == ("v1", "Namespace", "namespaces", "Cluster")
    assert info_of(Deployment) == ("apps/v1", "Deployment", "deployments", "Namespaced")


def test_generic_classes_say_their_kind() -> None:
    crontab = create_namespaced_resource("stable.example.com", "v1", "CronTab", "crontabs")
    zone = create_global_resource("stable.example.com", "v1", "Zone", "zones")
    assert info_of(crontab) == ("stable.example.com/v1", "CronTab", "crontabs", "Namespaced")
    assert info_of(zone) == ("stable.example.com/v1", "Zone", "zones", "Cluster")


def test_a_class_of_ones_own_says_its_scope_by_base_or_verbs() -> None:
    class Zone(GlobalResource):
        _api_info = ApiInfo(resource=ResourceDef("e.com", "v1", "Zone"), plural="zones", verbs=[])
        metadata: ObjectMeta | None = None

    class Host:
        _api_info = ApiInfo(resource=ResourceDef("e.com", "v1", "Host"), plural="hosts", verbs=["list"])
        metadata: ObjectMeta | None = None

    class Guest:
        _api_info = ApiInfo(resource=ResourceDef("e.com", "v1", "Guest"), plural="guests", verbs=[])
        metadata: ObjectMeta | None = None

    assert resource_of(Zone).scope == "Cluster"
    assert resource_of(Host).scope == "Cluster"
    with pytest.raises(ResourceDefinitionError, match="Guest does not say whether"):
        resource_of(Guest)


def test_a_class_without_a_kind_is_refused() -> None:
    class Stranger:
        metadata: ObjectMeta | None = None

    with pytest.raises(ResourceDefinitionError, match="Stranger does not say which kind"):
        resource_of(Stranger)


def test_a_subresource_is_refused() -> None:
    with pytest.raises(ResourceDefinitionError, match="DeploymentScale stands for the subresource 'scale'"):
        resource_of(DeploymentScale)


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "subresource", "path"),
    [
        (Pod, None, None, None, "/api/v1/pods"),
        (Pod, "ns", None, None, "/api/v1/namespaces/ns/pods"),
        (Pod, "ns", "p", None, "/api/v1/namespaces/ns/pods/p"),
        (Pod, "ns", "p", "status", "/api/v1/namespaces/ns/pods/p/status"),
        (Deployment, "ns", "d", None, "/apis/apps/v1/namespaces/ns/deployments/d"),
        (Node, None, "n", None, "/api/v1/nodes/n"),
        (Namespace, None, "a b:c", None, "/api/v1/namespaces/a%20b%3Ac"),
    ],
)
def test_paths_are_the_api_servers(
    kind: type[KubeObject], namespace: str | None, name: str | None, subresource: str | None, path: str
) -> None:
    assert resource_of(kind).path(namespace=namespace, name=name, subresource=subresource) == path


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "subresource"),
    [
        (Pod, None, "p", None),
        (Pod, "ns", "", None),
        (Pod, "", "p", None),
        (Pod, "ns", "..", None),
        (Pod, "ns", "a/b", None),
        (Pod, "ns", "a%2Fb", None),
        (Pod, "ns", None, "status"),
        (Node, "ns", "n", None),
    ],
)
def test_a_path_that_would_mean_something_else_is_refused(
    kind: type[KubeObject], namespace: str | None, name: str | None, subresource: str | None
) -> None:
    with pytest.raises(ObjectError, match=kind.__name__):
        resource_of(kind).path(namespace=namespace, name=name, subresource=subresource)


def test_a_resource_shows_itself_as_kubectl_would() -> None:
    assert str(resource_of(Deployment)) == "Deployment.v1.apps"
    assert str(resource_of(Pod)) == "Pod.v1"
    assert ResourceInfo(group="", version="v1", kind="Pod", plural="pods", scope="Namespaced").namespaced


@pytest.mark.parametrize(
    ("given", "what"), [("Cache", "'Cache' is a str"), ([], r"\[\] is a list"), (None, "NoneType")]
)
def test_b6_what_is_no_class_is_refused_with_an_example(given: Any, what: str) -> None:
    with pytest.raises(ResourceDefinitionError, match=f"a kind is named by its class.*{what}"):
        resource_of(given)
