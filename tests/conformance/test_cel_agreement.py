"""Generated rules and values: what one server takes, the other takes.

Invariants:
    * Both servers refuse the same rules with the CRD, of the same fields, for the same reasons.
    * Both refuse the same objects for the same rules; a rule that does not hold is quoted in the same words.
    * In memory, of a rule and its opposite exactly one refuses an object, or both, because they cannot be evaluated.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from conformance.cel_generated import FIELDS, rules, values
from conformance.harness import Answer, Api, Body, new_name
from conformance.test_cel import CRDS, crd, create, document, install, of_properties, ruled
from opsdk.client import ClientConfig, HttpxTransport
from opsdk.testing.apiserver import ApiServer

ASKED = os.environ.get("OPSDK_CEL_EXAMPLES")
EXAMPLES = int(ASKED or "4")
SEARCH = settings(
    max_examples=EXAMPLES,
    derandomize=ASKED is None,  # CI does not come and go; who asks for a number of examples gets new ones
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def places(expressions: Sequence[str]) -> Body:
    """A place for each rule, all of the same type."""
    return of_properties({f"f{at}": ruled(of_properties(FIELDS), rule) for at, rule in enumerate(expressions)})


def verdict(answer: Answer) -> list[tuple[str, str, str]]:
    """Fields, reasons, and the words for a rule that does not hold."""
    if answer.status in {200, 201}:
        return []
    assert answer.status == 422, answer.text
    return sorted(
        (field, reason, message if "failed rule" in message else "cannot be evaluated")
        for field, reason, message in answer.causes
    )


def refused(answer: Answer) -> list[tuple[str, str]]:
    """Which rules are refused with their CRD."""
    return sorted((field, reason) for field, reason, _ in answer.causes) if answer.status == 422 else []


@pytest.mark.controlplane
@SEARCH
@given(st.data())
def test_both_servers_judge_alike(real_kubeconfig: Path, data: st.DataObject) -> None:
    asked = data.draw(rules())
    objects = data.draw(st.lists(st.tuples(values(), values()), min_size=4, max_size=4))

    async def main() -> None:
        transport = HttpxTransport(ClientConfig.from_files([real_kubeconfig]))
        async with ApiServer() as memory:
            try:
                apis = [Api(transport, "", server="real"), Api(memory.transport(), "", server="memory")]
                await agree(apis, asked, objects)
            finally:
                await transport.aclose()

    anyio.run(main)


async def agree(apis: Sequence[Api], asked: Sequence[str], objects: Sequence[tuple[Body, Body]]) -> None:
    accepted: list[str] = []
    for rule in asked:
        body = crd("agrees", places([rule]))
        refusals = [refused(await api.call("POST", CRDS, body, query={"dryRun": "All"})) for api in apis]
        assert refusals[0] == refusals[1], rule
        accepted += [] if refusals[0] else [rule]
    if not accepted:
        return
    # a name of its own: the kind of an earlier example may still be on its way out, and a 409 would be believed
    body = crd(new_name("agreements").replace("-", ""), places(accepted))
    paths = [await install(api, body) for api in apis]
    for old, new in objects:
        note(f"{old} {new}")
        everywhere = [{f"f{at}": each for at in range(len(accepted))} for each in (old, new)]
        real, memory = [verdict(await create(api, path, everywhere[1])) for api, path in zip(apis, paths, strict=True)]
        assert real == memory, accepted
        for api, path in zip(apis, paths, strict=True):
            await api.call("DELETE", f"{path}/tried")
        stored = [
            (await api.call("POST", path, document(path, everywhere[0]))).status
            for api, path in zip(apis, paths, strict=True)
        ]
        if stored != [201, 201]:
            continue
        body_of = partial(_changed, spec=everywhere[1])
        real, memory = [
            verdict(await api.call("PUT", f"{path}/tried", await body_of(api, path), query={"dryRun": "All"}))
            for api, path in zip(apis, paths, strict=True)
        ]
        assert real == memory, accepted
    for api in apis:
        await api.call("DELETE", f"{CRDS}/{body['metadata']['name']}")


async def _changed(api: Api, path: str, *, spec: Body) -> Body:
    return {**(await api.call("GET", f"{path}/tried")).body, "spec": spec}


@settings(SEARCH, max_examples=2 * EXAMPLES)
@given(rules(), st.lists(values(), min_size=3, max_size=3))
def test_of_a_rule_and_its_opposite_one_refuses_in_memory(asked: list[str], objects: list[Body]) -> None:
    async def main() -> None:
        async with ApiServer() as memory:
            api = Api(memory.transport(), "", server="memory")
            for at, rule in enumerate(asked):
                both = places([rule, f"!({rule})"])
                if (await api.call("POST", CRDS, crd(f"both{'abcdefghijkl'[at]}s", both))).status != 201:
                    continue
                path = await install(api, crd(f"both{'abcdefghijkl'[at]}s", both))
                for each in objects:
                    found = verdict(await create(api, path, {"f0": each, "f1": each}))
                    errors = [field for field, _, message in found if message == "cannot be evaluated"]
                    if "oldSelf" in rule:
                        assert found == [], rule
                    else:
                        assert len(found) == (2 if errors else 1), (rule, each)

    anyio.run(main)
