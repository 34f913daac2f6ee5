"""Which API server to talk to, and as whom: from the environment, kubeconfig files, or the pod."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar, final
from urllib.parse import urlsplit

import msgspec
from lightkube.config.models import Cluster, Context, User

from opsdk.errors import ConfigurationError
from opsdk.types import Json, JsonObject

__all__ = ["ClientConfig", "Impersonation"]

_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_DEFAULT_KUBECONFIG: Final = "~/.kube/config"
_PATHS_OF_CLUSTER: Final = ("certificate-authority",)
_PATHS_OF_USER: Final = ("client-certificate", "client-key", "tokenFile")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """As whom requests are made, beyond the credentials.

    Args:
        user: The user's name.
        uid: The user's uid.
        groups: The user's groups.
        extra: Further attributes.
    """

    user: str
    uid: str | None = None
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def headers(self) -> list[tuple[str, str]]:
        """The request headers that say so; names in lower case."""
        headers = [("impersonate-user", self.user)]
        if self.uid is not None:
            headers.append(("impersonate-uid", self.uid))
        headers += [("impersonate-group", group) for group in self.groups]
        headers += [
            (f"impersonate-extra-{name.lower()}", value) for name, values in self.extra.items() for value in values
        ]
        return headers


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """One API server and the credentials for it.

    Args:
        source: Where this was read, for error texts.
        cluster: The server and how to trust it; lightkube's. Paths are absolute.
        user: The credentials; lightkube's. Paths are absolute. Not shown when printed.
        namespace: The namespace of the context or of the pod; None when none is set.
        context: The context's name; empty in a cluster.
        tls_server_name: The name to expect in the server's certificate, if it is not the host's.
        proxy_url: The proxy to use; None: what the environment says.
        impersonate: As whom to act.
        exec_options: What lightkube's model of an exec plugin leaves out.
    """

    source: str
    cluster: Cluster
    user: User = field(default_factory=User, repr=False)
    namespace: str | None = None
    context: str = ""
    tls_server_name: str | None = None
    proxy_url: str | None = None
    impersonate: Impersonation | None = None
    exec_options: JsonObject = field(default_factory=dict[str, Json], repr=False)

    def __post_init__(self) -> None:
        url = urlsplit(self.cluster.server)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ConfigurationError(
                f"{self.source}: cluster.server must be an http or https URL, not {self.cluster.server!r}"
            )

    @property
    def server(self) -> str:
        """The server's URL."""
        return self.cluster.server

    @property
    def host(self) -> str:
        """The server as `host:port`, for metrics."""
        return urlsplit(self.cluster.server).netloc.rpartition("@")[2]

    def cluster_info(self) -> JsonObject:
        """What an exec plugin is told about the cluster when it asks."""
        cluster = self.cluster
        info: dict[str, Json] = {"server": cluster.server, "insecure-skip-tls-verify": cluster.insecure}
        if cluster.certificate_auth_data:
            info["certificate-authority-data"] = cluster.certificate_auth_data
        if self.tls_server_name:
            info["tls-server-name"] = self.tls_server_name
        if self.proxy_url:
            info["proxy-url"] = self.proxy_url
        return info

    @classmethod
    def from_env(
        cls,
        *,
        context: str | None = None,
        environ: Mapping[str, str] | None = None,
        service_account: str = _SERVICE_ACCOUNT,
    ) -> Self:
        """What the environment says: `KUBECONFIG`, else the pod's service account, else `~/.kube/config`.

        Args:
            context: The kubeconfig context to use; None: the current one. With it, the pod is not asked.
            environ: The environment variables; None: this process's.
            service_account: The folder that the kubelet mounts.

        Raises:
            ConfigurationError: None of them is there, or one is wrong; the text names the file and the field.
        """
        env = os.environ if environ is None else environ
        if files := env.get("KUBECONFIG"):
            return cls.from_files([file for file in files.split(os.pathsep) if file], context=context)
        if context is None and env.get("KUBERNETES_SERVICE_HOST") and (Path(service_account) / "token").is_file():
            return cls.in_cluster(environ=env, service_account=service_account)
        default = Path(_DEFAULT_KUBECONFIG).expanduser()
        if not default.is_file():
            raise ConfigurationError(
                "no API server is configured: KUBECONFIG is not set, this is no pod with a service account, and "
                f"there is no {_DEFAULT_KUBECONFIG}"
            )
        return cls.from_files([str(default)], context=context)

    @classmethod
    def in_cluster(cls, *, environ: Mapping[str, str] | None = None, service_account: str = _SERVICE_ACCOUNT) -> Self:
        """What the kubelet gives every pod.

        Raises:
            ConfigurationError: This is no pod, or it has no service account.
        """
        env = os.environ if environ is None else environ
        host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise ConfigurationError(
                "in-cluster configuration: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so this "
                "is no pod"
            )
        folder = Path(service_account)
        token = folder / "token"
        if not token.is_file():
            raise ConfigurationError(
                f"in-cluster configuration: there is no {token}; is automountServiceAccountToken off?"
            )
        namespace = folder / "namespace"
        return cls(
            source="in-cluster configuration",
            cluster=Cluster(
                server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
                certificate_auth=str(folder / "ca.crt"),
            ),
            user=User(token_file=str(token)),
            namespace=(namespace.read_text().strip() or None) if namespace.is_file() else None,
        )

    @classmethod
    def from_files(cls, files: Sequence[str | os.PathLike[str]], *, context: str | None = None) -> Self:
        """Several kubeconfig files as one: the first to say something is right.

        Relative paths are relative to the file that they stand in.

        Args:
            files: The files; those that do not exist are skipped.
            context: The context to use; None: the current one.

        Raises:
            ConfigurationError: None of them exists, or one is wrong or a directory; the text names the file and the
                field.
        """
        paths = [Path(file).expanduser() for file in files]
        for path in paths:
            if path.is_dir():
                raise ConfigurationError(f"kubeconfig: {path} is a directory; name the file in it")
        found = [_read(path) for path in paths if path.is_file()]
        names = ", ".join(map(str, paths))
        if not found:
            raise ConfigurationError(f"kubeconfig: no such file: {names or '(none given)'}")
        return _resolve(cls, _merge(found), names, context)

    @classmethod
    def from_dict(cls, document: JsonObject, *, context: str | None = None, source: str = "kubeconfig") -> Self:
        """A kubeconfig as it stands in YAML. Relative paths are relative to the working directory.

        Raises:
            ConfigurationError: It is wrong; the text names the field.
        """
        return _resolve(cls, _parse(document, source, Path.cwd()), source, context)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    """The content of one or several files, each entry with where it comes from."""

    current_context: str | None
    clusters: dict[str, tuple[str, JsonObject]]
    contexts: dict[str, tuple[str, JsonObject]]
    users: dict[str, tuple[str, JsonObject]]


def _read(path: Path) -> _Parsed:
    import yaml  # a pod with a service account reads no YAML

    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        # Not the error's own text, which shows the lines around: they may hold a token.
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if isinstance(mark, yaml.Mark) else ""
        raise ConfigurationError(f"{path}: not YAML{line}") from None
    return _parse(document, str(path), path.absolute().parent)


def _parse(document: Json, source: str, folder: Path) -> _Parsed:
    if document is None:
        document = {}
    if not isinstance(document, Mapping):
        raise ConfigurationError(f"{source}: a kubeconfig is a mapping, with clusters, users and contexts")
    current = document.get("current-context")
    if current is not None and not isinstance(current, str):
        raise ConfigurationError(f"{source}: current-context must be a string")
    clusters = _entries(document, "clusters", "cluster", source)
    users = _entries(document, "users", "user", source)
    return _Parsed(
        current_context=current or None,
        clusters={name: (where, _absolute(one, _PATHS_OF_CLUSTER, folder)) for name, (where, one) in clusters.items()},
        contexts=_entries(document, "contexts", "context", source),
        users={
            name: (where, _absolute_command(_absolute(one, _PATHS_OF_USER, folder), folder))
            for name, (where, one) in users.items()
        },
    )


def _entries(document: JsonObject, section: str, member: str, source: str) -> dict[str, tuple[str, JsonObject]]:
    items = document.get(section)
    if items is None:
        return {}
    if not isinstance(items, list):
        raise ConfigurationError(f"{source}: {section} must be a list")
    found: dict[str, tuple[str, JsonObject]] = {}
    for index, item in enumerate(items):
        where = f"{source}: {section}[{index}]"
        if not isinstance(item, Mapping):
            raise ConfigurationError(f"{where} must be a mapping")
        name, value = item.get("name"), item.get(member)
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"{where}.name is missing")
        if value is not None and not isinstance(value, Mapping):
            raise ConfigurationError(f"{where}.{member} must be a mapping")
        found.setdefault(name, (f"{where}.{member}", value if value is not None else dict[str, Json]()))
    return found


def _absolute(entry: JsonObject, fields: Sequence[str], folder: Path) -> JsonObject:
    paths = {name: str(folder / path) for name in fields if isinstance(path := entry.get(name), str) and path}
    return {**entry, **paths}


def _absolute_command(user: JsonObject, folder: Path) -> JsonObject:
    plugin = user.get("exec")
    if isinstance(plugin, Mapping):
        command = plugin.get("command")
        if isinstance(command, str) and os.sep in command:
            return {**user, "exec": {**plugin, "command": str(folder / command)}}
    return user


C = TypeVar("C", bound=ClientConfig)


def _merge(parsed: Sequence[_Parsed]) -> _Parsed:
    """As kubectl does: the first file that says something is right, entry by entry."""
    return _Parsed(
        current_context=next((one.current_context for one in parsed if one.current_context), None),
        clusters={name: entry for one in reversed(parsed) for name, entry in one.clusters.items()},
        contexts={name: entry for one in reversed(parsed) for name, entry in one.contexts.items()},
        users={name: entry for one in reversed(parsed) for name, entry in one.users.items()},
    )


def _resolve(kind: type[C], parsed: _Parsed, source: str, name: str | None) -> C:
    name = name or parsed.current_context
    if name is None:
        raise ConfigurationError(f"{source}: current-context is not set; set it, or name a context")
    if name not in parsed.contexts:
        known = ", ".join(sorted(parsed.contexts)) or "none"
        raise ConfigurationError(f"{source}: there is no context {name!r}; known are: {known}")
    where, raw_context = parsed.contexts[name]
    context = _convert(raw_context, Context, where)
    if context.cluster not in parsed.clusters:
        raise ConfigurationError(f"{where}.cluster: there is no cluster {context.cluster!r}")
    if context.user and context.user not in parsed.users:
        raise ConfigurationError(f"{where}.user: there is no user {context.user!r}")
    cluster_at, cluster = parsed.clusters[context.cluster]
    if not cluster.get("server"):
        raise ConfigurationError(f"{cluster_at}.server is missing")
    user_at, user = parsed.users[context.user] if context.user else (where, dict[str, Json]())
    plugin = user.get("exec")
    return kind(
        source=source,
        cluster=_convert(cluster, Cluster, cluster_at),
        user=_convert(user, User, user_at),
        namespace=context.namespace or None,
        context=name,
        tls_server_name=_text(cluster, "tls-server-name", cluster_at),
        proxy_url=_text(cluster, "proxy-url", cluster_at),
        impersonate=_impersonation(user, user_at),
        exec_options=plugin if isinstance(plugin, Mapping) else {},
    )


S = TypeVar("S", bound=msgspec.Struct)


def _convert(entry: JsonObject, kind: type[S], where: str) -> S:
    try:
        return msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _text(entry: JsonObject, name: str, where: str) -> str | None:
    value = entry.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ConfigurationError(f"{where}.{name} must be a string")
    return value


def _texts(value: Json, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ConfigurationError(f"{where} must be a list of strings")
    texts = tuple(item for item in value if isinstance(item, str))
    if len(texts) != len(value):
        raise ConfigurationError(f"{where} must be a list of strings")
    return texts


def _impersonation(user: JsonObject, where: str) -> Impersonation | None:
    name = _text(user, "as", where)
    if name is None:
        if any(user.get(other) for other in ("as-uid", "as-groups", "as-user-extra")):
            raise ConfigurationError(f"{where}: as-uid, as-groups and as-user-extra need `as`")
        return None
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, Mapping):
        raise ConfigurationError(f"{where}.as-user-extra must be a mapping")
    return Impersonation(
        user=name,
        uid=_text(user, "as-uid", where),
        groups=_texts(user.get("as-groups"), f"{where}.as-groups"),
        extra={key: _texts(values, f"{where}.as-user-extra.{key}") for key, values in extra.items()},
    )
