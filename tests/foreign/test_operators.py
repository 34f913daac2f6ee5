"""Other people's operators: a ConfigMap and a status for each resource, a finalizer."""

from __future__ import annotations

import anyio
import pytest

from foreign.conftest import Operator, Place, patience, running

pytestmark = pytest.mark.anyio


async def has_echoed(place: Place, operator: Operator, name: str, text: str) -> None:
    """Wait for the child and the status."""
    async with patience(operator):
        while True:
            operator.require_alive()
            child, echo = await place.api.get("configmaps", name), await place.echo(name)
            if child.status == 200 and child.body["data"] == {"text": text}:
                (owner,) = child.body["metadata"]["ownerReferences"]
                assert owner["uid"] == echo.uid
                if echo.body.get("status", {}).get("observed") == text:
                    return
            await anyio.sleep(0.1)


async def has_said_farewell(place: Place, operator: Operator, name: str) -> None:
    """Wait until the finalizer has done its work, and the child is collected."""
    async with patience(operator):
        while (await place.echo(name)).status != 404 or (await place.api.get("configmaps", name)).status != 404:
            operator.require_alive()
            await anyio.sleep(0.1)
    assert (await place.api.get("configmaps", f"farewell-{name}")).body["data"] == {"to": name}


async def a_life(program: str, place: Place) -> None:
    await place.create("early", "before")
    with running(program, place) as operator:
        await has_echoed(place, operator, "early", "before")
        await place.create("a", "one")
        await has_echoed(place, operator, "a", "one")
        await place.say("a", "two")
        await has_echoed(place, operator, "a", "two")
        place.cut()
        await place.say("a", "three")
        await has_echoed(place, operator, "a", "three")
        if place.memory is not None:
            await place.say("a", "four")
            place.forget()  # before anybody has heard: who goes on from an older version is answered with 410
            await has_echoed(place, operator, "a", "four")
            assert program == "with_kopf" or "410" in operator.said, operator.said  # kopf lists anew without a word
        await place.create("late", "after")
        await has_echoed(place, operator, "late", "after")
        await place.delete("a")
        await has_said_farewell(place, operator, "a")
        assert await operator.end() == 0, operator.said
        assert "Traceback" not in operator.said, operator.said


async def test_an_operator_on_kopf_converges_survives_cut_watches_and_ends(place: Place) -> None:
    await a_life("with_kopf", place)


async def test_an_operator_on_kubernetes_asyncio_converges_survives_cut_watches_and_ends(place: Place) -> None:
    await a_life("with_kubernetes_asyncio", place)


async def test_an_operator_on_lightkube_converges_survives_cut_watches_and_ends(place: Place) -> None:
    await a_life("with_lightkube", place)
