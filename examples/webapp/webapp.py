"""An operator for web applications: a Deployment, its Service and its configuration, as one resource with a life.

    initialising -> running <-> updating
                       \\-> degraded -> running          (from anywhere) -> deleting

Run it against the cluster of your kubeconfig with `python webapp.py`; see README.md.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Final

import anyio
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import (
    ConfigMapVolumeSource,
    Container,
    ContainerPort,
    PodSpec,
    PodTemplateSpec,
    ServicePort,
    ServiceSpec,
    Volume,
    VolumeMount,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Service
from pydantic import Field

from opsdk import (
    Client,
    CustomResource,
    For,
    MachineStatus,
    Manager,
    Model,
    Request,
    ResourceOwner,
    Result,
    StateCondition,
    StateEvent,
    StateHandler,
    StateMachine,
    States,
    Transition,
    default_manager_options,
    for_state_machine,
    setup,
)
from opsdk.models import PrintColumn
from opsdk.protocols import MetadataView
from opsdk.types import ConditionStatus, Preconditions

GROUP: Final = "apps.example.com"
FINALIZER: Final = f"webapps.{GROUP}/finalizer"
CONFIG_HASH: Final = f"{GROUP}/config-hash"
ROLLOUT_TIMEOUT: Final = timedelta(minutes=10)


# ---- the resource -------------------------------------------------------------------------------------------------


class WebAppSpec(Model):
    """What a user asks for."""

    image: str = Field(min_length=1, max_length=512)
    replicas: int = Field(default=1, ge=0, le=100)
    port: int = Field(default=8080, ge=1, le=65535, description="Where the containers listen; the Service has port 80.")
    config: dict[str, str] = Field(default={}, description="Files for /etc/webapp. A change restarts the pods.")


class WebAppStatus(MachineStatus):
    """What the operator has seen."""

    ready_replicas: int = 0
    image: str = Field(default="", description="The image that is rolled out everywhere.")


class WebApp(
    CustomResource[WebAppSpec, WebAppStatus],
    group=GROUP,
    version="v1",
    short_names=["wa"],
    print_columns=[
        PrintColumn(name="State", json_path=".status.state"),
        PrintColumn(name="Ready", json_path='.status.conditions[?(@.type=="Ready")].status'),
        PrintColumn(name="Replicas", json_path=".status.readyReplicas", type="integer"),
        PrintColumn(name="Image", json_path=".status.image"),
        PrintColumn(name="Age", json_path=".metadata.creationTimestamp", type="date"),
    ],
):
    """A web application that follows its spec."""

    def get_machine_status(self) -> WebAppStatus:
        return self.status


class Phase(StrEnum):
    INITIALISING = "initialising"
    RUNNING = "running"
    UPDATING = "updating"
    DEGRADED = "degraded"
    DELETING = "deleting"


# ---- the children: pure functions ----------------------------------------------------------------------------------


def name_of(webapp: WebApp) -> str:
    """All children have the webapp's own name."""
    if not webapp.metadata.name:
        raise ValueError("a webapp that was read from the server has a name")
    return webapp.metadata.name


def annotations_of(metadata: MetadataView | None) -> dict[str, str]:
    """Typed: lightkube declares the map as a bare `dict`."""
    return {} if metadata is None else dict(metadata.annotations or {})


def labels(webapp: WebApp) -> dict[str, str]:
    return {"app.kubernetes.io/name": "webapp", "app.kubernetes.io/instance": name_of(webapp)}


def build_config_map(webapp: WebApp) -> list[ConfigMap]:
    if not webapp.spec.config:
        return []
    return [ConfigMap(metadata=ObjectMeta(name=name_of(webapp)), data=dict(webapp.spec.config))]


def update_config_map(webapp: WebApp, existing: ConfigMap) -> ConfigMap:
    existing.data = dict(webapp.spec.config)
    return existing


def build_service(webapp: WebApp) -> list[Service]:
    return [
        Service(
            metadata=ObjectMeta(name=name_of(webapp)),
            spec=ServiceSpec(
                selector=labels(webapp),
                ports=[ServicePort(name="http", port=80, targetPort=webapp.spec.port)],
            ),
        )
    ]


def update_service(webapp: WebApp, existing: Service) -> Service:
    for port in (existing.spec.ports if existing.spec else None) or []:
        if port.name == "http":
            port.targetPort = webapp.spec.port
    return existing


def config_hash(webapp: WebApp) -> str:
    return hashlib.sha256(json.dumps(webapp.spec.config, sort_keys=True).encode()).hexdigest()[:16]


def build_deployment(webapp: WebApp) -> list[Deployment]:
    return [
        Deployment(
            metadata=ObjectMeta(name=name_of(webapp), labels=labels(webapp)),
            spec=DeploymentSpec(
                replicas=webapp.spec.replicas,
                selector=LabelSelector(matchLabels=labels(webapp)),
                template=pod_template(webapp),
            ),
        )
    ]


def update_deployment(webapp: WebApp, existing: Deployment) -> Deployment:
    """Sets what the spec says, and only that: what the server has filled in or others have put there stays."""
    wanted = pod_template(webapp)
    existing.spec.replicas = webapp.spec.replicas
    template = existing.spec.template
    template.metadata = template.metadata or ObjectMeta()
    template.metadata.annotations = {**annotations_of(template.metadata), CONFIG_HASH: config_hash(webapp)}
    if template.spec is None or wanted.spec is None:
        existing.spec.template = wanted
        return existing
    if bool(template.spec.volumes) != bool(wanted.spec.volumes):
        template.spec.volumes = wanted.spec.volumes
    (new,) = wanted.spec.containers
    for container in template.spec.containers:
        if container.name == new.name:
            container.image = new.image
            if bool(container.volumeMounts) != bool(new.volumeMounts):
                container.volumeMounts = new.volumeMounts
            for port in container.ports or []:
                port.containerPort = webapp.spec.port
    return existing


def pod_template(webapp: WebApp) -> PodTemplateSpec:
    volumes: list[Volume] | None = None
    mounts: list[VolumeMount] | None = None
    if webapp.spec.config:
        volumes = [Volume(name="config", configMap=ConfigMapVolumeSource(name=name_of(webapp)))]
        mounts = [VolumeMount(name="config", mountPath="/etc/webapp", readOnly=True)]
    container = Container(
        name="web",
        image=webapp.spec.image,
        ports=[ContainerPort(name="http", containerPort=webapp.spec.port)],
        volumeMounts=mounts,
    )
    return PodTemplateSpec(
        metadata=ObjectMeta(labels=labels(webapp), annotations={CONFIG_HASH: config_hash(webapp)}),
        spec=PodSpec(containers=[container], volumes=volumes),
    )


# ---- what can be seen of the children ------------------------------------------------------------------------------


def deployment_available(deployment: Deployment) -> bool:
    conditions = (deployment.status.conditions if deployment.status else None) or []
    return any(condition.type == "Available" and condition.status == "True" for condition in conditions)


def deployment_rolled_out(deployment: Deployment) -> bool:
    """Whether all replicas are of the newest template and serve."""
    status, metadata = deployment.status, deployment.metadata
    if status is None or metadata is None or not deployment_available(deployment):
        return False
    replicas = deployment.spec.replicas if deployment.spec.replicas is not None else 1
    return (
        (status.observedGeneration or 0) >= (metadata.generation or 0)
        and (status.updatedReplicas or 0) == replicas
        and (status.availableReplicas or 0) == replicas
        and (status.replicas or 0) == replicas
    )


def image_of(deployment: Deployment) -> str:
    containers = deployment.spec.template.spec.containers if deployment.spec.template.spec else []
    return next((container.image or "" for container in containers if container.name == "web"), "")


# ---- the operator --------------------------------------------------------------------------------------------------


def conditions(
    ready: ConditionStatus, progressing: ConditionStatus, degraded: ConditionStatus, reason: str
) -> list[StateCondition]:
    return [
        StateCondition(type="Ready", status=ready, reason=reason),
        StateCondition(type="Progressing", status=progressing, reason=reason),
        StateCondition(type="Degraded", status=degraded, reason=reason),
    ]


class WebAppReconciler:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.children = ResourceOwner(
            WebApp,
            client,
            [
                For(ConfigMap, build_config_map, update=update_config_map),
                For(Service, build_service, update=update_service),
                For(Deployment, build_deployment, update=update_deployment, ready=deployment_rolled_out),
            ],
        )
        states: States[WebApp, Phase] = {
            Phase.INITIALISING: StateHandler(
                conditions=conditions("False", "True", "False", "Initialising"),
                event=StateEvent(reason="Initialising", message="the children are being created"),
                enter=self.follow_spec,
                reconcile=self.follow_spec,
                transitions=[
                    Transition(to=Phase.RUNNING, when=self.rolled_out, reason="RolledOut"),
                    Transition(to=Phase.DEGRADED, after=ROLLOUT_TIMEOUT, reason="RolloutTimedOut"),
                ],
            ),
            Phase.RUNNING: StateHandler(
                conditions=conditions("True", "False", "False", "Running"),
                event=StateEvent(reason="Running", message="all replicas serve"),
                enter=self.see_rollout,
                reconcile=self.follow_spec,
                transitions=[
                    Transition(to=Phase.UPDATING, when=self.outdated, reason="SpecChanged"),
                    Transition(to=Phase.DEGRADED, when=self.unavailable, reason="Unavailable"),
                ],
            ),
            Phase.UPDATING: StateHandler(
                conditions=conditions("True", "True", "False", "Updating"),
                event=StateEvent(reason="Updating", message="a new version is being rolled out"),
                # The Deployment follows in `reconcile`, when status says that there is an update. Were it changed in
                # `enter`, a crash before the status write would leave nothing that is outdated, and no update.
                enter=self.see_replicas,
                reconcile=self.follow_spec,
                transitions=[
                    Transition(to=Phase.RUNNING, when=self.rolled_out, reason="RolledOut"),
                    Transition(to=Phase.DEGRADED, after=ROLLOUT_TIMEOUT, reason="RolloutTimedOut"),
                ],
            ),
            Phase.DEGRADED: StateHandler(
                conditions=conditions("False", "False", "True", "Degraded"),
                event=StateEvent(reason="Degraded", message="not enough replicas serve"),
                enter=self.see_replicas,
                reconcile=self.follow_spec,
                transitions=[Transition(to=Phase.RUNNING, when=self.rolled_out, reason="Recovered")],
            ),
            Phase.DELETING: StateHandler(
                conditions=conditions("False", "False", "False", "Deleting"),
                event=StateEvent(reason="Deleting", message="the pods go first, then the rest"),
                enter=self.stop_pods,
                reconcile=self.wait_for_pods,
                terminal=True,
            ),
        }
        self.machine = StateMachine(
            WebApp, client, Phase.INITIALISING, states, finalizer=FINALIZER, deletion_state=Phase.DELETING
        )

    async def reconcile(self, request: Request) -> Result:
        webapp = await self.client.find(WebApp, request.name, namespace=request.namespace)
        if webapp is None:
            return Result()
        return await self.machine.reconcile(webapp)

    # -- hooks

    async def follow_spec(self, webapp: WebApp) -> Result:
        result = await self.children.reconcile(webapp)
        await self.see_replicas(webapp)
        return result

    async def see_rollout(self, webapp: WebApp) -> None:
        await self.see_replicas(webapp)
        webapp.status.image = webapp.spec.image

    async def see_replicas(self, webapp: WebApp) -> None:
        deployment = await self.deployment(webapp)
        status = None if deployment is None else deployment.status
        webapp.status.ready_replicas = 0 if status is None else status.readyReplicas or 0

    async def stop_pods(self, webapp: WebApp) -> None:
        """The pods stop before the Service goes, so that no client finds a Service without pods by surprise."""
        deployment = await self.deployment(webapp)
        if deployment is None or deployment.metadata is None or deployment.metadata.deletionTimestamp is not None:
            return
        await self.client.delete(
            Deployment,
            name_of(webapp),
            namespace=webapp.metadata.namespace,
            preconditions=Preconditions(uid=deployment.metadata.uid),
            propagation="Foreground",
        )

    async def wait_for_pods(self, webapp: WebApp) -> Result:
        await self.see_replicas(webapp)
        gone = await self.deployment(webapp) is None
        return Result() if gone else Result(requeue_after=timedelta(seconds=1))

    # -- predicates

    async def rolled_out(self, webapp: WebApp) -> bool:
        """Whether what serves is what the spec asks for *now*, which may have changed during the rollout."""
        return not await self.outdated(webapp) and await self.children.are_all_ready(webapp)

    async def outdated(self, webapp: WebApp) -> bool:
        deployment = await self.deployment(webapp)
        if deployment is None:
            return False  # a child that somebody deleted is put back by `follow_spec`
        hashed = annotations_of(deployment.spec.template.metadata).get(CONFIG_HASH)
        return (
            image_of(deployment) != webapp.spec.image
            or deployment.spec.replicas != webapp.spec.replicas
            or hashed != config_hash(webapp)
        )

    async def unavailable(self, webapp: WebApp) -> bool:
        deployment = await self.deployment(webapp)
        return deployment is None or not deployment_available(deployment)

    async def deployment(self, webapp: WebApp) -> Deployment | None:
        return await self.client.find(Deployment, name_of(webapp), namespace=webapp.metadata.namespace)


def register(manager: Manager) -> WebAppReconciler:
    """Everything that a manager needs to know about webapps."""
    reconciler = WebAppReconciler(manager.client)
    setup(manager, for_state_machine(reconciler.machine))
    manager.controller(WebApp).owns(Deployment).owns(Service).owns(ConfigMap).complete(reconciler)
    return reconciler


async def main() -> None:
    options = replace(default_manager_options(f"webapps.{GROUP}"), metrics_bind_address=":9090")
    manager = Manager(options)
    register(manager)
    await manager.run()  # until SIGTERM or SIGINT


if __name__ == "__main__":
    anyio.run(main)
