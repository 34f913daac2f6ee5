"""Keys by the values of the labels that reads select by, so that a read costs what it finds, not what there is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias, final

from opsdk.cache.selectors import Selector

__all__ = ["LabelIndex"]

_Key: TypeAlias = tuple[str, str]

_MOST_LABELS: Final = 8
"""A program selects by few labels; one that selects by any, as users ask for them, is not to pay for all at once."""


@final
class LabelIndex:
    """Finds what may match a selector. Covers a label from the first read on that asks for one value of it."""

    def __init__(self) -> None:
        # One set for each object would be a burden to the collector, so a key that is alone stands for itself.
        self._labels: dict[str, dict[str, _Key | set[_Key]]] = {}

    def candidates(
        self, selector: Selector, objects: Iterable[tuple[_Key, Mapping[str, str]]]
    ) -> Collection[_Key] | None:
        """Keys among which everything is that matches; None: no label of the selector is covered.

        Args:
            selector: What is asked for.
            objects: All keys and labels, for a label that is new here. Read at most once.
        """
        best: Collection[_Key] | None = None
        for requirement in selector.requirements:
            if requirement.operator != "in" or len(requirement.values) != 1:
                continue
            values = self._labels.get(requirement.key)
            if values is None:
                if len(self._labels) >= _MOST_LABELS:
                    continue
                objects = list(objects)
                values = self._cover(requirement.key, objects)
            (value,) = requirement.values
            keys = values.get(value, ())
            found: Collection[_Key] = (keys,) if isinstance(keys, tuple) and keys else keys
            if best is None or len(found) < len(best):
                best = found
        return best

    def put(self, key: _Key, labels: Mapping[str, str]) -> None:
        """An object came, with these labels."""
        for label, values in self._labels.items():
            value = labels.get(label)
            if value is not None:
                _add(values, value, key)

    def drop(self, key: _Key, labels: Mapping[str, str]) -> None:
        """An object with these labels went."""
        for label, values in self._labels.items():
            value = labels.get(label)
            if value is None:
                continue
            keys = values.get(value)
            if isinstance(keys, set):
                keys.discard(key)
                if not keys:
                    del values[value]
            elif keys == key:
                del values[value]

    def _cover(self, label: str, objects: Iterable[tuple[_Key, Mapping[str, str]]]) -> dict[str, _Key | set[_Key]]:
        values: dict[str, _Key | set[_Key]] = {}
        self._labels[label] = values
        for key, labels in objects:
            value = labels.get(label)
            if value is not None:
                _add(values, value, key)
        return values


def _add(values: dict[str, _Key | set[_Key]], value: str, key: _Key) -> None:
    keys = values.get(value)
    if keys is None:
        values[value] = key
    elif isinstance(keys, set):
        keys.add(key)
    elif keys != key:
        values[value] = {keys, key}
