"""Where the API server and the credentials come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from opsdk.client import ClientConfig
from opsdk.errors import ConfigurationError
from opsdk.types import Json, JsonObject


def kubeconfig(
    server: str = "https://one:6443",
    *,
    context: Mapping[str, Json] | None = None,
    cluster: Mapping[str, Json] | None = None,
    user: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "users": [{"name": "u", "user": dict(user or {"token": "s3cret"})}],
    }


def write(path: Path, document: Json) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))  # JSON is YAML
    return str(path)


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-token\n")
    (folder / "namespace").write_text("pod-namespace\n")
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_kubeconfig_goes_before_the_pod(tmp_path: Path, pod: Path, home: Path) -> None:
    file = write(tmp_path / "config", kubeconfig())
    config = ClientConfig.from_env(environ={**IN_POD, "KUBECONFIG": file}, service_account=str(pod))
    assert (config.server, config.context, config.source) == ("https://one:6443", "main", file)


def test_the_pod_goes_before_the_file_in_the_home_folder(pod: Path, home: Path) -> None:
    write(home / ".kube" / "config", kubeconfig())
    config = ClientConfig.from_env(environ=IN_POD, service_account=str(pod))
    assert (config.server, config.namespace, config.context) == ("https://10.0.0.1:443", "pod-namespace", "")
    assert config.user.token_file == str(pod / "token")
    assert config.cluster.certificate_auth == str(pod / "ca.crt")
    assert config.host == "10.0.0.1:443"


def test_a_context_asked_for_by_name_is_looked_for_in_files_even_in_a_pod(pod: Path, home: Path) -> None:
    write(home / ".kube" / "config", kubeconfig())
    config = ClientConfig.from_env(context="main", environ=IN_POD, service_account=str(pod))
    assert config.server == "https://one:6443"


def test_outside_of_a_pod_the_file_in_the_home_folder_is_used(pod: Path, home: Path) -> None:
    write(home / ".kube" / "config", kubeconfig(context={"namespace": "team"}))
    config = ClientConfig.from_env(environ={}, service_account=str(pod))
    assert (config.server, config.namespace) == ("https://one:6443", "team")


def test_no_configuration_at_all_is_an_error_that_lists_the_places(tmp_path: Path, home: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"KUBECONFIG is not set.*no pod.*~/\.kube/config"):
        ClientConfig.from_env(environ={}, service_account=str(tmp_path / "none"))


def test_an_ipv6_address_of_the_api_server_is_put_in_brackets(pod: Path) -> None:
    config = ClientConfig.in_cluster(
        environ={"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, service_account=str(pod)
    )
    assert config.server == "https://[fd00::1]:443"


def test_outside_of_a_pod_in_cluster_says_what_is_missing(pod: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="KUBERNETES_SERVICE_HOST"):
        ClientConfig.in_cluster(environ={}, service_account=str(pod))
    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        ClientConfig.in_cluster(environ=IN_POD, service_account=str(tmp_path / "none"))


def test_without_a_namespace_in_the_context_there_is_none(tmp_path: Path) -> None:
    assert ClientConfig.from_files([write(tmp_path / "config", kubeconfig())]).namespace is None


def test_of_several_files_the_first_to_say_something_is_right(tmp_path: Path) -> None:
    first = write(
        tmp_path / "a" / "config",
        {"clusters": [{"name": "c", "cluster": {"server": "https://first:1", "certificate-authority": "ca.pem"}}]},
    )
    second = write(
        tmp_path / "b" / "config",
        {
            **kubeconfig(
                "https://second:2", user={"tokenFile": "token", "exec": {"command": "./x", "apiVersion": "v"}}
            ),
            "contexts": [
                {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "b"}},
                {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "later"}},
            ],
        },
    )
    third = write(tmp_path / "c" / "config", {**kubeconfig(context={"namespace": "c"}), "current-context": "other"})
    env = {"KUBECONFIG": f"{tmp_path / 'missing'}:{first}::{second}:{third}"}
    config = ClientConfig.from_env(environ=env)
    assert (config.server, config.context, config.namespace) == ("https://first:1", "main", "b")
    assert config.cluster.certificate_auth == str(tmp_path / "a" / "ca.pem")
    assert config.user.token_file == str(tmp_path / "b" / "token")
    assert config.user.exec is not None
    assert config.user.exec.command == str(tmp_path / "b" / "x")


def test_a_command_without_a_slash_is_looked_up_in_the_path() -> None:
    config = ClientConfig.from_dict(kubeconfig(user={"exec": {"command": "aws", "apiVersion": "v"}}))
    assert config.user.exec is not None
    assert config.user.exec.command == "aws"


def test_what_lightkube_leaves_out_is_read_too() -> None:
    config = ClientConfig.from_dict(
        kubeconfig(
            cluster={"tls-server-name": "kube", "proxy-url": "http://proxy:3128"},
            user={"as": "boss", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"Why": ["test"]}},
        )
    )
    assert (config.tls_server_name, config.proxy_url) == ("kube", "http://proxy:3128")
    assert config.impersonate is not None
    assert config.impersonate.headers() == [
        ("impersonate-user", "boss"),
        ("impersonate-uid", "7"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
        ("impersonate-extra-why", "test"),
    ]


def test_a_user_is_not_needed() -> None:
    document: JsonObject = {**kubeconfig(), "contexts": [{"name": "main", "context": {"cluster": "c"}}], "users": None}
    assert ClientConfig.from_dict(document).user.token is None


FAULTS: list[tuple[JsonObject, str]] = [
    ({**kubeconfig(), "current-context": ""}, "current-context is not set"),
    ({**kubeconfig(), "current-context": 7}, "current-context must be a string"),
    ({**kubeconfig(), "current-context": "nope"}, "no context 'nope'; known are: main"),
    ({**kubeconfig(), "clusters": []}, r"contexts\[0\].context.cluster: there is no cluster 'c'"),
    ({**kubeconfig(), "users": []}, r"contexts\[0\].context.user: there is no user 'u'"),
    ({**kubeconfig(), "users": {}}, "users must be a list"),
    ({**kubeconfig(), "users": [7]}, r"users\[0\] must be a mapping"),
    ({**kubeconfig(), "users": [{"user": {}}]}, r"users\[0\].name is missing"),
    ({**kubeconfig(), "users": [{"name": "u", "user": "x"}]}, r"users\[0\].user must be a mapping"),
    ({**kubeconfig(), "contexts": [{"name": "main"}]}, r"contexts\[0\].context: .*`cluster`"),
    (kubeconfig(""), r"clusters\[0\].cluster.server is missing"),
    (kubeconfig("one:6443"), "cluster.server must be an http or https URL, not 'one:6443'"),
    (kubeconfig(cluster={"insecure-skip-tls-verify": "yes"}), r"clusters\[0\].cluster: .*insecure-skip-tls-verify"),
    (kubeconfig(cluster={"tls-server-name": 7}), r"clusters\[0\].cluster.tls-server-name must be a string"),
    (kubeconfig(user={"token": 7}), r"users\[0\].user: .*token"),
    (kubeconfig(user={"exec": {"command": "x"}}), r"users\[0\].user: .*apiVersion"),
    (kubeconfig(user={"as-groups": ["x"]}), "as-groups and as-user-extra need `as`"),
    (kubeconfig(user={"as": "x", "as-groups": "y"}), "as-groups must be a list of strings"),
    (kubeconfig(user={"as": "x", "as-groups": [7]}), "as-groups must be a list of strings"),
    (kubeconfig(user={"as": "x", "as-user-extra": ["y"]}), "as-user-extra must be a mapping"),
]


@pytest.mark.parametrize(("document", "text"), FAULTS)
def test_a_fault_is_named_by_file_and_field(tmp_path: Path, document: JsonObject, text: str) -> None:
    file = write(tmp_path / "config", document)
    with pytest.raises(ConfigurationError, match=text) as caught:
        ClientConfig.from_files([file])
    assert file in str(caught.value)


@pytest.mark.parametrize("text", ["- a list", "users: [\n  token: s3cret\n", "\ttoken: s3cret", "text"])
def test_a_file_that_is_no_kubeconfig_is_named_without_its_content(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "config", text)
    with pytest.raises(ConfigurationError) as caught:
        ClientConfig.from_files([file])
    assert file in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_files_that_do_not_exist_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no such file: .*/none"):
        ClientConfig.from_env(environ={"KUBECONFIG": str(tmp_path / "none")})


def test_b8_a_directory_is_told_from_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"kubeconfig: {tmp_path} is a directory; name the file in it"):
        ClientConfig.from_env(environ={"KUBECONFIG": str(tmp_path)})


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ClientConfig.from_files([tmp_path / "config"])


def test_credentials_do_not_show_when_a_configuration_is_printed() -> None:
    config = ClientConfig.from_dict(
        kubeconfig(user={"token": "s3cret", "exec": {"command": "x", "apiVersion": "v", "args": ["s4cret"]}})
    )
    assert "s3cret" not in repr(config)
    assert "s4cret" not in repr(config)
