"""What caches are told wrongly, by code without a type checker, is refused at once and says what to give."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest

from opsdk.cache import Informers, ReflectorOptions, selector_of
from opsdk.client import ApiClient
from opsdk.errors import ConfigurationError, ObjectError
from opsdk.testing import ApiServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("namespaces", "told"),
    [
        ("staging", r"namespaces is 'staging'; give a list of names, such as \['staging'\]"),
        (None, "namespaces is None; give a list"),
        ([""], "namespaces has ''; give names"),
        ([None], "namespaces has None; give names"),
        (["a", "b", "a"], "namespaces names 'a' twice"),
    ],
)
async def test_namespaces_that_are_no_list_of_different_names(namespaces: object, told: str) -> None:
    untyped = cast("Callable[..., Informers]", Informers)
    async with ApiServer() as server:
        client: ApiClient = server.client()
        with pytest.raises(ConfigurationError, match=told):
            untyped(client, namespaces=namespaces)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"page_size": "5"}, "page_size is '5'; give an int"),
        ({"page_size": 2.5}, r"page_size is 2\.5; give an int"),
        ({"page_size": 0}, "page_size is 0; it must be at least 1"),
        ({"stream_lists": "no"}, "stream_lists is 'no'; give True or False"),
        ({"watch_timeout": 5}, "watch_timeout is 5; give a timedelta"),
        ({"inactivity": timedelta(0)}, "inactivity is 0:00:00; it must be positive"),
    ],
)
def test_options_of_a_reflector_that_make_no_sense(options: dict[str, object], told: str) -> None:
    untyped = cast("Callable[..., ReflectorOptions]", ReflectorOptions)
    with pytest.raises(ConfigurationError, match=told):
        untyped(**options)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (5, "label selector 5: give a text such as 'app=web', or a mapping of texts"),
        (["app=web"], r"label selector \['app=web'\]: give a text"),
        ({"replicas": 1}, "'replicas': 1 are not both texts; write 'replicas': '1'"),
    ],
)
def test_labels_that_are_no_selector(labels: object, told: str) -> None:
    untyped = cast("Callable[[object], object]", selector_of)
    with pytest.raises(ObjectError, match=told):
        untyped(labels)
