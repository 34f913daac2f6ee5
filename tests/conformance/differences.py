"""Where the in-memory API server differs from kube-apiserver: each difference, its reason, and what to do about it.

This is the one place where a difference is declared. A test whose answers differ is marked with `differs(…)` and takes
the answer of the server it runs on from `Difference.on(…)`; `conftest.py` sees to it that a test does both or neither,
and since both answers are asserted, a difference that has gone fails its test. `make parity` writes the tables of
`docs/parity.md` from what is declared here and from the tests' names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar, final

import pytest

__all__ = ["DIFFERENCES", "Difference", "differs", "taken"]

T = TypeVar("T")

taken: Final[list[Difference]] = []
"""Which differences the running test has made use of."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that the servers do not do alike.

    Args:
        name: For anchors; of letters and dashes.
        what: What a client does or looks at.
        kube_apiserver: What it gets from there.
        in_memory: What it gets in memory.
        reason: Why that is so.
        advice: What somebody does about it who tests an operator in memory.
    """

    name: str
    what: str
    kube_apiserver: str
    in_memory: str
    reason: str
    advice: str

    def on(self, server: str, *, kube_apiserver: T, in_memory: T) -> T:
        """What this server answers.

        Args:
            server: `real`, or any other for the one in memory.
            kube_apiserver: What the real one answers.
            in_memory: What the other one answers.
        """
        assert kube_apiserver != in_memory, f"{self.name}: the same answer on both servers is no difference"
        taken.append(self)
        return kube_apiserver if server == "real" else in_memory


def differs(*differences: Difference) -> pytest.MarkDecorator:
    """Mark a test, or one of its cases, whose answers are not the same on both servers."""
    return pytest.mark.differs(*differences)


VERSION_ON_CREATE: Final = Difference(
    name="version-on-create",
    what="`resourceVersion` on create",
    kube_apiserver="500 without a reason",
    in_memory="400 `BadRequest` with the same message",
    reason="the 500 is a slip: the reason is lost on the way, and clients take it for a server in trouble",
    advice="nothing: both are refusals, and no client that retries a 500 gets further on the real one",
)

UNKNOWN_FIELDS: Final = Difference(
    name="unknown-fields",
    what="a field that a built-in kind does not have",
    kube_apiserver="dropped, with a warning",
    in_memory="kept, with the same warning",
    reason="it stands for a field of a server that is newer than the client's models, which a client must not erase",
    advice="have the client send `fieldValidation=Strict`, as kubectl does: both servers then refuse it",
)
DUPLICATE_KEYS: Final = Difference(
    name="duplicate-keys",
    what="a key that occurs twice in a JSON object",
    kube_apiserver="a warning, or 400 with `fieldValidation=Strict`",
    in_memory="the last one counts, in silence",
    reason="the decoder does not tell; no JSON library writes such an object",
    advice="nothing, unless JSON is put together by hand",
)
UNTYPED_APPLY: Final = Difference(
    name="untyped-apply",
    what="an apply with a value of the wrong type, a duplicate, or a missing key",
    kube_apiserver="500, `failed to create typed patch object`",
    in_memory="422 `Invalid` with the field as its cause, as of a create",
    reason="the 500 names no cause that a program could read; what is refused is the same",
    advice="do not build on the code: a client sees an error either way, and retries neither",
)
PATTERNS: Final = Difference(
    name="patterns",
    what="patterns of a CRD that only Go's regular expressions know (`\\p{…}`)",
    kube_apiserver="enforced",
    in_memory="not enforced",
    reason="Python's `re` has no such classes; all that both know is translated and enforced",
    advice="write the characters out, as a range",
)
BUILTIN_WARNINGS: Final = Difference(
    name="builtin-warnings",
    what="warnings about values of built-in kinds (a headless Service with externalIPs, a variable defined twice, …)",
    kube_apiserver="`Warning` headers",
    in_memory="none; those about unknown fields, deprecated versions and finalizers are there",
    reason="there are some hundred of them, and nothing hangs on them",
    advice="look at such objects once with kubectl against a real server",
)
YAML_ANSWERS: Final = Difference(
    name="yaml-answers",
    what="`Accept: application/yaml`, `application/vnd.kubernetes.protobuf`",
    kube_apiserver="answers in YAML, in protobuf",
    in_memory="JSON; bodies in YAML and protobuf are read",
    reason="every client that speaks them takes JSON, too",
    advice="name JSON among what is accepted",
)
UNSTABLE_VERSIONS: Final = Difference(
    name="unstable-versions",
    what="alpha and beta versions of built-in kinds",
    kube_apiserver="off by default",
    in_memory="served",
    reason="clusters switch them on one by one, and lightkube has classes for them",
    advice="use stable versions, or make sure of the cluster's `--runtime-config`",
)
TABLES: Final = Difference(
    name="tables",
    what="tables of rarely listed built-in kinds; descriptions of columns",
    kube_apiserver="columns of their own; long descriptions",
    in_memory="name and creation time; no descriptions",
    reason="only `kubectl get` shows them, and no operator reads them",
    advice="`kubectl get -o yaml`",
)
KUBELETS: Final = Difference(
    name="kubelets",
    what="logs, exec, attach, port-forward of a pod on a node",
    kube_apiserver="passed on to the node's kubelet",
    in_memory="500, `the in-memory API server speaks to no kubelets`; all checks before that are the same",
    reason="there are no nodes behind it",
    advice="put what reads logs behind an interface, and test it on a cluster",
)
TOKENS: Final = Difference(
    name="tokens",
    what="tokens of service accounts (`kubectl create token`)",
    kube_apiserver="signed",
    in_memory="405 with a message that says why",
    reason="nobody is authenticated, so that a token would prove nothing",
    advice="a `ControlPlane` for what hangs on identities",
)
AUTHORIZATION: Final = Difference(
    name="authorization",
    what="authentication, RBAC, impersonation",
    kube_apiserver="401 and 403",
    in_memory="everybody may do everything",
    reason="an operator's rights are a matter of its deployment, not of its logic",
    advice="run the operator once against a `ControlPlane` as its service account",
)
ADMISSION: Final = Difference(
    name="admission",
    what="admission plugins that add to objects or refuse them (a pod's token volume, a claim's finalizer, quotas, …)",
    kube_apiserver="on by default",
    in_memory="not there, but for terminating namespaces, finalizers while deleting and owner references",
    reason="they are policy of a cluster, and differ from one to the next",
    advice="patch the difference between what was read and what is wanted, instead of comparing whole objects",
)
WEBHOOKS: Final = Difference(
    name="webhooks",
    what="admission webhooks and policies, conversion webhooks",
    kube_apiserver="called",
    in_memory="stored",
    reason="it makes no connections",
    advice="test the webhook by itself, and both together on a `ControlPlane`",
)
NAMESPACE_OBJECTS: Final = Difference(
    name="namespace-objects",
    what="what every namespace gets: the ServiceAccount `default`, the ConfigMap `kube-root-ca.crt`",
    kube_apiserver="made by controllers a moment later",
    in_memory="not there",
    reason="tests that list ConfigMaps want to see their own",
    advice="do not count all objects of a namespace; create the account in the test where it matters",
)
WORKLOADS: Final = Difference(
    name="workloads",
    what="controllers of workloads (Deployments, Jobs, Endpoints, …)",
    kube_apiserver="run, in kube-controller-manager",
    in_memory="not there: garbage collection and namespaces alone work by themselves",
    reason="a test wants to say when a Deployment becomes available",
    advice="`simulate_ready`, or the actors of `opsdk.testing.apiserver.actors`",
)

CEL_COSTS: Final = Difference(
    name="cel-costs",
    what="what evaluating a CEL rule costs, beside the estimate when the CRD is created",
    kube_apiserver="422 beyond a million units for a value, or ten for all rules of an object",
    in_memory="422 beyond ten thousand steps through lists and maps for a value",
    reason="the library that evaluates counts steps, and its limit cannot be set",
    advice="hold rules that look at every pair of items against short lists",
)
CEL_NESTED: Final = Difference(
    name="cel-nested-lists",
    what="CEL rules that look into lists of lists, or maps of lists or maps, from above",
    kube_apiserver="their types are checked when the CRD is created",
    in_memory="a fault of types is found when the rule is evaluated, and refuses the object",
    reason="the messages that stand for objects cannot hold such lists",
    advice="put an object between the two, or the rule on the inner list",
)
CEL_SETS: Final = Difference(
    name="cel-sets",
    what="CEL rules that compare or add two sets, or lists with keys, of the same object",
    kube_apiserver="without order; `+` is a union",
    in_memory="lists in their order; compared with `oldSelf`, without order",
    reason="the library knows one kind of list",
    advice="`sets.equivalent(a, b)`",
)

DIFFERENCES: Final = (
    AUTHORIZATION,
    TOKENS,
    ADMISSION,
    WEBHOOKS,
    WORKLOADS,
    NAMESPACE_OBJECTS,
    KUBELETS,
    UNKNOWN_FIELDS,
    UNTYPED_APPLY,
    VERSION_ON_CREATE,
    DUPLICATE_KEYS,
    PATTERNS,
    BUILTIN_WARNINGS,
    UNSTABLE_VERSIONS,
    YAML_ANSWERS,
    TABLES,
    CEL_SETS,
    CEL_NESTED,
    CEL_COSTS,
)
"""In the order of the table."""
