"""The webapp operator of `examples/webapp`, by hand: lightkube's own client, a list, a watch, a queue and a loop.

    initialising -> running <-> updating
                       \\-> degraded -> running          (from anywhere) -> deleting

Nothing of opsdk is in it. Run it against the cluster of your kubeconfig with `python webapp_vanilla.py`; see README.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import random
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final, Protocol, TypeAlias, TypeVar, cast

import msgspec
from lightkube import ApiError, AsyncClient  # noqa: TID251 - that is what this example is about
from lightkube.core.resource import ApiInfo, NamespacedResourceG, NamespacedSubResource, ResourceDef
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import (
    ConfigMapVolumeSource,
    Container,
    ContainerPort,
    EventSource,
    ObjectReference,
    PodSpec,
    PodTemplateSpec,
    ServicePort,
    ServiceSpec,
    Volume,
    VolumeMount,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta, OwnerReference
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Event, Service
from lightkube.types import CascadeType, PatchType

GROUP: Final = "apps.example.com"
API_VERSION: Final = f"{GROUP}/v1"
FINALIZER: Final = f"webapps.{GROUP}/finalizer"
CONFIG_HASH: Final = f"{GROUP}/config-hash"
ROLLOUT_TIMEOUT: Final = timedelta(minutes=10)
MAX_HISTORY: Final = 10
WORKERS: Final = 2
FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 300.0
RELIST_SECONDS: Final = 1.0
WATCH_SECONDS: Final = 300

INITIALISING, RUNNING, UPDATING, DEGRADED, DELETING = "initialising", "running", "updating", "degraded", "deleting"

Key: TypeAlias = tuple[str, str]
"""A namespace and a name."""
Child: TypeAlias = ConfigMap | Service | Deployment
ChildT = TypeVar("ChildT", ConfigMap, Service, Deployment)

logger = logging.getLogger(__name__)


# ---- the resource; its CRD is examples/webapp/manifests/crd.yaml ---------------------------------------------------


class Spec(msgspec.Struct, omit_defaults=True):
    image: str
    replicas: int = 1
    port: int = 8080
    config: dict[str, str] = {}


class Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    reason: str
    last_transition_time: str
    message: str = ""
    observed_generation: int = 0


class Transition(msgspec.Struct):
    to: str
    reason: str
    timestamp: datetime
    from_: str = msgspec.field(default="", name="from")


class Status(msgspec.Struct, rename="camel"):
    state: str = ""
    ready_replicas: int = 0
    image: str = ""
    observed_generation: int = 0
    conditions: list[Condition] = []
    state_history: list[Transition] = []


class _WebApp(msgspec.Struct, omit_defaults=True):
    spec: Spec
    apiVersion: str | None = None  # noqa: N815 - its base class has it
    kind: str | None = None
    metadata: ObjectMeta | None = None
    status: Status = msgspec.field(default_factory=Status)

    def __post_init__(self) -> None:
        self.apiVersion, self.kind = API_VERSION, "WebApp"  # no defaults: those are left out when it is sent


class WebAppStatus(NamespacedSubResource, _WebApp):
    _api_info = ApiInfo(
        resource=ResourceDef(GROUP, "v1", "WebApp"),
        parent=ResourceDef(GROUP, "v1", "WebApp"),
        plural="webapps",
        verbs=["get", "patch", "put"],
        action="status",
    )


class WebApp(NamespacedResourceG, _WebApp):
    _api_info = ApiInfo(
        resource=ResourceDef(GROUP, "v1", "WebApp"),
        plural="webapps",
        verbs=["delete", "get", "global_list", "global_watch", "list", "patch", "post", "put", "watch"],
    )
    Status: ClassVar = WebAppStatus


def meta_of(obj: WebApp | WebAppStatus | Child) -> ObjectMeta:
    if obj.metadata is None:
        raise ValueError("an object that was read has metadata")
    return obj.metadata


def key_of(obj: WebApp | Child) -> Key:
    return meta_of(obj).namespace or "", meta_of(obj).name or ""


# ---- the children: pure functions ----------------------------------------------------------------------------------


def labels_of(webapp: WebApp) -> dict[str, str]:
    return {"app.kubernetes.io/name": "webapp", "app.kubernetes.io/instance": key_of(webapp)[1]}


def child_meta(webapp: WebApp, labels: dict[str, str] | None = None) -> ObjectMeta:
    namespace, name = key_of(webapp)
    owner = OwnerReference(
        apiVersion=API_VERSION,
        kind="WebApp",
        name=name,
        uid=meta_of(webapp).uid or "",
        controller=True,
        blockOwnerDeletion=True,
    )
    return ObjectMeta(name=name, namespace=namespace, labels=labels, ownerReferences=[owner])


def config_hash(webapp: WebApp) -> str:
    return hashlib.sha256(json.dumps(webapp.spec.config, sort_keys=True).encode()).hexdigest()[:16]


def config_map_of(webapp: WebApp) -> ConfigMap:
    return ConfigMap(metadata=child_meta(webapp), data=dict(webapp.spec.config))


def service_of(webapp: WebApp) -> Service:
    ports = [ServicePort(name="http", port=80, targetPort=webapp.spec.port)]
    return Service(metadata=child_meta(webapp), spec=ServiceSpec(selector=labels_of(webapp), ports=ports))


def deployment_of(webapp: WebApp) -> Deployment:
    name, volumes, mounts = key_of(webapp)[1], None, None
    if webapp.spec.config:
        volumes = [Volume(name="config", configMap=ConfigMapVolumeSource(name=name))]
        mounts = [VolumeMount(name="config", mountPath="/etc/webapp", readOnly=True)]
    container = Container(
        name="web",
        image=webapp.spec.image,
        ports=[ContainerPort(name="http", containerPort=webapp.spec.port)],
        volumeMounts=mounts,
    )
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels=labels_of(webapp), annotations={CONFIG_HASH: config_hash(webapp)}),
        spec=PodSpec(containers=[container], volumes=volumes),
    )
    spec = DeploymentSpec(
        replicas=webapp.spec.replicas, selector=LabelSelector(matchLabels=labels_of(webapp)), template=template
    )
    return Deployment(metadata=child_meta(webapp, labels_of(webapp)), spec=spec)


# What a patch must say to bring an existing child to where it should be; empty: nothing. Only what the operator means
# is named, so that what the server has filled in and what others have put there stays.

Patch: TypeAlias = dict[str, object]


def config_map_patch(webapp: WebApp, existing: ConfigMap) -> Patch:
    old, new = dict(cast("_HasData", existing).data or {}), dict(webapp.spec.config)
    if old == new:
        return {}
    return {"data": {**dict.fromkeys(old), **new}}  # None removes a key


def service_patch(webapp: WebApp, existing: Service) -> Patch:
    ports = (existing.spec.ports if existing.spec else None) or []
    if any(port.name == "http" and port.targetPort == webapp.spec.port for port in ports):
        return {}
    # a strategic merge patch finds the item by its port
    return {"spec": {"ports": [{"name": "http", "port": 80, "targetPort": webapp.spec.port}]}}


def deployment_patch(webapp: WebApp, existing: Deployment) -> Patch:
    pod = existing.spec.template.spec
    container = next((one for one in pod.containers if one.name == "web"), None) if pod else None
    ports = [port.containerPort for port in (container.ports if container else None) or []]
    mounted = any(mount.name == "config" for mount in (container.volumeMounts if container else None) or [])
    if not is_outdated(webapp, existing) and ports == [webapp.spec.port] and mounted == bool(webapp.spec.config):
        return {}
    web: Patch = {"name": "web", "image": webapp.spec.image}
    template: Patch = {"containers": [web]}
    if ports != [webapp.spec.port]:
        # the items' key is the port, so the old ones must be named to go
        gone = [{"containerPort": port, "$patch": "delete"} for port in ports if port != webapp.spec.port]
        web["ports"] = [{"name": "http", "containerPort": webapp.spec.port}, *gone]
    if webapp.spec.config and not mounted:
        web["volumeMounts"] = [{"name": "config", "mountPath": "/etc/webapp", "readOnly": True}]
        template["volumes"] = [{"name": "config", "configMap": {"name": key_of(webapp)[1]}}]
    elif mounted and not webapp.spec.config:
        web["volumeMounts"] = [{"mountPath": "/etc/webapp", "$patch": "delete"}]
        template["volumes"] = [{"name": "config", "$patch": "delete"}]
    annotations = {CONFIG_HASH: config_hash(webapp)}
    return {
        "spec": {
            "replicas": webapp.spec.replicas,
            "template": {"metadata": {"annotations": annotations}, "spec": template},
        }
    }


# lightkube declares maps of strings as a bare `dict`


class _HasData(Protocol):
    data: Mapping[str, str] | None


class _HasAnnotations(Protocol):
    annotations: Mapping[str, str] | None


# ---- what can be seen of the children ------------------------------------------------------------------------------


def image_of(deployment: Deployment) -> str:
    pod = deployment.spec.template.spec
    return next((one.image or "" for one in (pod.containers if pod else []) if one.name == "web"), "")


def is_outdated(webapp: WebApp, deployment: Deployment) -> bool:
    metadata = deployment.spec.template.metadata
    annotations: Mapping[str, str] = cast("_HasAnnotations", metadata).annotations or {} if metadata else {}
    return (
        image_of(deployment) != webapp.spec.image
        or deployment.spec.replicas != webapp.spec.replicas
        or annotations.get(CONFIG_HASH) != config_hash(webapp)
    )


def is_available(deployment: Deployment) -> bool:
    conditions = (deployment.status.conditions if deployment.status else None) or []
    return any(condition.type == "Available" and condition.status == "True" for condition in conditions)


def is_rolled_out(webapp: WebApp, deployment: Deployment) -> bool:
    status = deployment.status
    if status is None or is_outdated(webapp, deployment) or not is_available(deployment):
        return False
    if (status.observedGeneration or 0) < (meta_of(deployment).generation or 0):
        return False
    counts = (status.updatedReplicas, status.availableReplicas, status.replicas)
    return all((count or 0) == webapp.spec.replicas for count in counts)


def ready_replicas(deployment: Deployment | None) -> int:
    return (deployment.status.readyReplicas or 0) if deployment is not None and deployment.status is not None else 0


# ---- the states ----------------------------------------------------------------------------------------------------

CONDITIONS: Final[dict[str, tuple[str, str, str]]] = {  # Ready, Progressing, Degraded
    INITIALISING: ("False", "True", "False"),
    RUNNING: ("True", "False", "False"),
    UPDATING: ("True", "True", "False"),
    DEGRADED: ("False", "False", "True"),
    DELETING: ("False", "False", "False"),
}
MESSAGES: Final = {
    INITIALISING: "the children are being created",
    RUNNING: "all replicas serve",
    UPDATING: "a new version is being rolled out",
    DEGRADED: "not enough replicas serve",
    DELETING: "the pods go first, then the rest",
}


def next_state(webapp: WebApp, deployment: Deployment | None, now: datetime) -> tuple[str, str] | None:
    """The state to go to, and why; None: stay."""
    rolled_out = deployment is not None and is_rolled_out(webapp, deployment)
    match webapp.status.state:
        case "":
            return INITIALISING, "Created"
        case "initialising" | "updating":
            if rolled_out:
                return RUNNING, "RolledOut"
            if time_left(webapp, now) <= timedelta(0):
                return DEGRADED, "RolloutTimedOut"
        case "running":
            if deployment is not None and is_outdated(webapp, deployment):
                return UPDATING, "SpecChanged"
            if deployment is None or not is_available(deployment):
                return DEGRADED, "Unavailable"
        case "degraded" if rolled_out:
            return RUNNING, "Recovered"
        case "degraded":
            pass
        case other:
            raise ValueError(f"status.state is {other!r}, which this operator does not know")
    return None


def time_left(webapp: WebApp, now: datetime) -> timedelta:
    return webapp.status.state_history[-1].timestamp + ROLLOUT_TIMEOUT - now


def with_state(status: Status, state: str, reason: str, *, generation: int, now: datetime) -> Status:
    """The status on entering a state."""
    conditions = list(status.conditions)
    for kind, value in zip(("Ready", "Progressing", "Degraded"), CONDITIONS[state], strict=True):
        old = next((one for one in conditions if one.type == kind), None)
        new = Condition(
            type=kind,
            status=value,
            reason=state.capitalize(),
            last_transition_time=old.last_transition_time
            if old and old.status == value
            else f"{now:%Y-%m-%dT%H:%M:%SZ}",
            observed_generation=generation,
        )
        if old is None:
            conditions.append(new)
        else:
            conditions[conditions.index(old)] = new
    entry = Transition(from_=status.state, to=state, reason=reason, timestamp=now.replace(microsecond=0))
    return msgspec.structs.replace(
        status, state=state, conditions=conditions, state_history=[*status.state_history, entry][-MAX_HISTORY:]
    )


# ---- the client, typed ---------------------------------------------------------------------------------------------

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Listed(Protocol[T_co]):
    @property
    def resourceVersion(self) -> str: ...  # noqa: N802 - lightkube's name
    def __aiter__(self) -> AsyncIterator[T_co]: ...


class Api(Protocol):
    """What is used of `lightkube.AsyncClient`, whose own signatures a strict type checker does not take."""

    async def get(self, res: type[T], name: str, *, namespace: str) -> T: ...
    async def create(self, obj: T) -> T: ...
    async def patch(
        self, res: type[T], name: str, obj: Patch, *, namespace: str, patch_type: PatchType = PatchType.MERGE
    ) -> T: ...
    async def delete(
        self, res: type[object], name: str, *, namespace: str, cascade: CascadeType | None = None
    ) -> None: ...
    def list(self, res: type[T], *, namespace: str) -> Listed[T]: ...
    def watch(
        self, res: type[T], *, namespace: str, resource_version: str, server_timeout: int
    ) -> AsyncGenerator[tuple[str, T]]: ...


# ---- one pass ------------------------------------------------------------------------------------------------------


class NotOursError(Exception):
    """A child's name is taken by an object of somebody else."""


class Reconciler:
    """Brings one webapp a step further.

    Args:
        client: The cluster.
        now: The time; tests have their own.
    """

    def __init__(self, client: AsyncClient, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.client = cast("Api", client)
        self.now = now

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """One pass over one webapp.

        Returns:
            After how many seconds to look again; None: when something changes.
        """
        webapp = await self.find(WebApp, namespace, name)
        if webapp is None:
            return None
        if meta_of(webapp).deletionTimestamp is not None:
            return await self.delete(webapp)
        if FINALIZER not in (meta_of(webapp).finalizers or []):
            webapp = await self.set_finalizers(webapp, [*(meta_of(webapp).finalizers or []), FINALIZER])
        deployment = await self.find(Deployment, namespace, name)
        move = next_state(webapp, deployment, self.now())
        if move is None or move[0] == INITIALISING:
            # Not on the way to UPDATING: once the Deployment is changed, nothing is outdated any more, and a crash
            # before the status write would lose the update.
            deployment = await self.follow_spec(webapp, deployment)
        await self.write_status(webapp, deployment, move)
        if move is not None:
            return 0.0
        if webapp.status.state in {INITIALISING, UPDATING}:
            return max(0.0, time_left(webapp, self.now()).total_seconds())
        return None

    async def follow_spec(self, webapp: WebApp, deployment: Deployment | None) -> Deployment:
        """Make the children what the spec says. The configuration goes last, when nothing mounts it any more."""
        if webapp.spec.config:
            config = await self.find(ConfigMap, *key_of(webapp))
            await self.ensure(webapp, config, config_map_of, config_map_patch)
        service = await self.find(Service, *key_of(webapp))
        await self.ensure(webapp, service, service_of, service_patch)
        found = await self.ensure(webapp, deployment, deployment_of, deployment_patch)
        if not webapp.spec.config:
            config = await self.find(ConfigMap, *key_of(webapp))
            if config is not None and self.owns(webapp, config) and meta_of(config).deletionTimestamp is None:
                await self.client.delete(ConfigMap, key_of(webapp)[1], namespace=key_of(webapp)[0])
        return found

    async def ensure(
        self,
        webapp: WebApp,
        existing: ChildT | None,
        build: Callable[[WebApp], ChildT],
        difference: Callable[[WebApp, ChildT], Patch],
    ) -> ChildT:
        if existing is None:
            return await self.client.create(build(webapp))
        if not self.owns(webapp, existing):
            raise NotOursError(f"{type(existing).__name__} {'/'.join(key_of(existing))} is not this webapp's")
        patch = {} if meta_of(existing).deletionTimestamp is not None else difference(webapp, existing)
        if not patch:
            return existing
        patch["metadata"] = {"uid": meta_of(existing).uid, "resourceVersion": meta_of(existing).resourceVersion}
        namespace, name = key_of(existing)
        return await self.client.patch(type(existing), name, patch, namespace=namespace, patch_type=PatchType.STRATEGIC)

    def owns(self, webapp: WebApp, child: Child) -> bool:
        owners = meta_of(child).ownerReferences or []
        return any(owner.controller and owner.uid == meta_of(webapp).uid for owner in owners)

    async def delete(self, webapp: WebApp) -> float | None:
        """Stop the pods before the Service goes; the rest is the garbage collector's."""
        finalizers = meta_of(webapp).finalizers or []
        if FINALIZER not in finalizers:
            return None
        namespace, name = key_of(webapp)
        deployment = await self.find(Deployment, namespace, name)
        if deployment is not None and not self.owns(webapp, deployment):
            deployment = None
        if deployment is not None and meta_of(deployment).deletionTimestamp is None:
            await self.client.delete(Deployment, name, namespace=namespace, cascade=CascadeType.FOREGROUND)
        if webapp.status.state != DELETING:
            await self.write_status(webapp, deployment, (DELETING, "Deleted"))
            return 0.0
        if deployment is not None:
            return 1.0
        await self.set_finalizers(webapp, [one for one in finalizers if one != FINALIZER])
        return None

    # -- writes

    async def set_finalizers(self, webapp: WebApp, finalizers: Sequence[str]) -> WebApp:
        metadata = {"finalizers": list(finalizers), "resourceVersion": meta_of(webapp).resourceVersion}
        namespace, name = key_of(webapp)
        return await self.client.patch(
            WebApp, name, {"metadata": metadata}, namespace=namespace, patch_type=PatchType.MERGE
        )

    async def write_status(self, webapp: WebApp, deployment: Deployment | None, move: tuple[str, str] | None) -> None:
        """Write the status if it differs, and tell people about a new state."""
        metadata, generation = meta_of(webapp), meta_of(webapp).generation or 0
        status = msgspec.structs.replace(
            webapp.status, ready_replicas=ready_replicas(deployment), observed_generation=generation
        )
        if move is not None:
            status = with_state(status, *move, generation=generation, now=self.now())
            if move[0] == RUNNING:
                status.image = webapp.spec.image
        else:
            status.conditions = [
                msgspec.structs.replace(one, observed_generation=generation) for one in status.conditions
            ]
        new = cast("Patch", msgspec.to_builtins(status))
        if move is None and status == webapp.status:
            return
        body: Patch = {"metadata": {"resourceVersion": metadata.resourceVersion}, "status": new}
        namespace, name = key_of(webapp)
        await self.client.patch(WebAppStatus, name, body, namespace=namespace, patch_type=PatchType.MERGE)
        if move is not None:
            await self.tell(webapp, "Normal", move[0].capitalize(), MESSAGES[move[0]])

    async def tell(self, webapp: WebApp, kind: str, reason: str, message: str) -> None:
        """Write an event. That nobody hears it is no reason to fail."""
        namespace, name = key_of(webapp)
        about = ObjectReference(
            apiVersion=API_VERSION, kind="WebApp", namespace=namespace, name=name, uid=meta_of(webapp).uid
        )
        now = self.now().replace(microsecond=0)
        event = Event(
            involvedObject=about,
            metadata=ObjectMeta(generateName=f"{name[:50]}.", namespace=namespace),
            type=kind,
            reason=reason,
            message=message[:1024],
            source=EventSource(component="webapp-operator"),
            firstTimestamp=now,
            lastTimestamp=now,
            count=1,
        )
        try:
            await self.client.create(event)
        except ApiError as error:
            logger.warning("event %s of %s/%s was not written: %s", reason, namespace, name, error)

    # -- reads

    async def find(self, kind: type[T], namespace: str, name: str) -> T | None:
        try:
            return await self.client.get(kind, name, namespace=namespace)
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise


# ---- the loop ------------------------------------------------------------------------------------------------------


class Operator:
    """Watches, queues, and reconciles each webapp in one worker at a time."""

    def __init__(self, reconciler: Reconciler) -> None:
        self.client = reconciler.client
        self.reconciler = reconciler
        self.waiting: dict[Key, None] = {}
        self.active: set[Key] = set()
        self.failures: dict[Key, int] = {}
        self.timers: dict[Key, asyncio.TimerHandle] = {}
        self.wake = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in (WebApp, Deployment, Service, ConfigMap):
                tasks.create_task(self.follow(kind))
            for _ in range(WORKERS):
                tasks.create_task(self.work())

    # -- the queue

    def add(self, key: Key) -> None:
        timer = self.timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self.waiting[key] = None
        self.wake.set()

    def add_after(self, key: Key, seconds: float) -> None:
        if key in self.waiting:
            return
        timer = self.timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self.timers[key] = asyncio.get_running_loop().call_later(seconds, self.add, key)

    async def take(self) -> Key:
        while True:
            for key in self.waiting:
                if key not in self.active:
                    del self.waiting[key]
                    self.active.add(key)
                    return key
            self.wake.clear()
            await self.wake.wait()

    async def work(self) -> None:
        while True:
            key = await self.take()
            try:
                await self.one(key)
            finally:
                self.active.discard(key)
                if key in self.waiting:
                    self.wake.set()

    async def one(self, key: Key) -> None:
        try:
            again = await self.reconciler.reconcile(*key)
        except Exception as error:
            if isinstance(error, ApiError) and error.status.code == 409:
                logger.info("webapp %s/%s has changed meanwhile", *key)
            else:
                logger.exception("webapp %s/%s", *key)
            self.failures[key] = self.failures.get(key, 0) + 1
            delay = min(FIRST_RETRY_SECONDS * 2.0 ** (self.failures[key] - 1), LAST_RETRY_SECONDS)
            self.add_after(key, delay * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load
        else:
            self.failures.pop(key, None)
            if again is not None:
                self.add_after(key, again)

    # -- the watches

    async def follow(self, kind: type[WebApp | Child]) -> None:
        """List and watch a kind for ever. After each gap everything is looked at again, for deletions may be missed."""
        while True:
            try:
                listed = self.client.list(kind, namespace="*")
                async for obj in listed:
                    self.changed(obj)
                if kind is not WebApp:
                    async for webapp in self.client.list(WebApp, namespace="*"):
                        self.add(key_of(webapp))
                watch = self.client.watch(
                    kind, namespace="*", resource_version=listed.resourceVersion, server_timeout=WATCH_SECONDS
                )
                async with contextlib.aclosing(watch):
                    async for _, obj in watch:
                        self.changed(obj)
            except Exception as error:  # noqa: BLE001 - a broken connection, a 410, an object that cannot be read
                logger.warning("the watch of %s broke: %r", kind.__name__, error)
            await asyncio.sleep(RELIST_SECONDS)

    def changed(self, obj: WebApp | Child) -> None:
        if isinstance(obj, WebApp):
            self.add(key_of(obj))
            return
        for owner in meta_of(obj).ownerReferences or []:
            if owner.controller and owner.kind == "WebApp" and owner.apiVersion == API_VERSION:
                self.add((key_of(obj)[0], owner.name))


async def run(client: AsyncClient) -> None:
    """The operator, until cancelled."""
    await Operator(Reconciler(client)).run()


async def main() -> None:
    logging.basicConfig(level=logging.INFO)
    client = AsyncClient(field_manager="webapp-operator")
    task = asyncio.ensure_future(run(client))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
