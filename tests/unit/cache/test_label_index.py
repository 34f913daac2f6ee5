"""Reads by label find the same with the index as by looking at every object.

Invariant: after any history of puts and drops, the candidates for a selector include every object that matches it, and
only keys that are there; and a store's selection is exactly the objects that match.
"""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from lightkube.resources.core_v1 import ConfigMap

from opsdk.cache import Store
from opsdk.cache._label_index import LabelIndex
from opsdk.cache.selectors import selector_of

_LABELS = st.dictionaries(st.sampled_from(["app", "tier", "owner"]), st.sampled_from(["a", "b", "c"]))
_KEYS = st.tuples(st.sampled_from(["one", "two"]), st.sampled_from(["x", "y", "z"]))
_SELECTORS = st.sampled_from(["app=a", "owner=b", "app=a,owner=b", "tier in (a,b)", "!app", "app!=a,tier=c", "owner"])
_STEPS = st.lists(st.one_of(st.tuples(_KEYS, _LABELS), st.tuples(_KEYS, st.none()), _SELECTORS), max_size=40)


def document(key: tuple[str, str], labels: dict[str, str], version: int) -> bytes:
    metadata = {"namespace": key[0], "name": key[1], "uid": "/".join(key), "resourceVersion": str(version)}
    return json.dumps({"metadata": {**metadata, "labels": labels}}).encode()


@given(_STEPS)
def test_a_selection_is_what_matches(
    steps: list[tuple[tuple[str, str], dict[str, str] | None] | str],
) -> None:
    store = Store(ConfigMap)
    model: dict[tuple[str, str], dict[str, str]] = {}
    for version, step in enumerate(steps, 1):
        if isinstance(step, str):
            selector = selector_of(step)
            for namespace in (None, "one"):
                wanted = {
                    key for key, labels in model.items() if selector.matches(labels) and namespace in {None, key[0]}
                }
                found = [
                    (cached.header.namespace, cached.header.name)
                    for cached in store.select(namespace=namespace, labels=selector)
                ]
                assert len(found) == len(wanted)
                assert set(found) == wanted
            continue
        key, labels = step
        if labels is None:
            model.pop(key, None)
            cached = store.read(document(key, {}, version))
            assert cached is not None
            store.discard(cached)
        else:
            model[key] = labels
            cached = store.read(document(key, labels, version))
            assert cached is not None
            store.put(cached)


def test_a_read_by_the_value_of_a_label_looks_at_what_has_it_and_no_more() -> None:
    index = LabelIndex()
    objects = [(("one", f"x{number}"), {"owner": str(number), "app": "web"}) for number in range(100)]
    assert index.candidates(selector_of("owner=7,app=web"), objects) == (("one", "x7"),)


def test_labels_beyond_what_is_covered_are_looked_for_object_by_object() -> None:
    index = LabelIndex()
    for number in range(8):
        assert index.candidates(selector_of(f"label{number}=a"), ()) == ()
    assert index.candidates(selector_of("label8=a"), ()) is None
