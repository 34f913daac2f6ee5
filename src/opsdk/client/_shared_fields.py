"""A dictionary that several objects can share, because none of them can change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Never, final

from opsdk.types import Json

__all__ = ["SharedFields"]


@final
class SharedFields(dict[str, Json]):
    """`fieldsV1` of `managedFields` in the objects of a list: equal ones are one, and it cannot be changed.

    It reads, compares and encodes like any other dictionary, and a copy of it is an ordinary one.
    """

    __slots__ = ()

    def __init__(self, fields: Mapping[str, Json]) -> None:
        super().__init__(
            {name: SharedFields(value) if isinstance(value, Mapping) else value for name, value in fields.items()}
        )

    def _refuse(self, *_: object, **__: object) -> Never:
        raise TypeError(
            "fieldsV1 of an object from a list is shared with other objects and cannot be changed; assign a new dict"
        )

    __setitem__ = _refuse
    __delitem__ = _refuse
    __ior__ = _refuse
    clear = _refuse
    pop = _refuse
    popitem = _refuse
    setdefault = _refuse  # pyright: ignore[reportAssignmentType] - it refuses whatever it is called with
    update = _refuse  # pyright: ignore[reportAssignmentType] - the same

    def copy(self) -> dict[str, Json]:
        """An ordinary dictionary with the same content."""
        return {name: value.copy() if isinstance(value, SharedFields) else value for name, value in self.items()}

    def __copy__(self) -> dict[str, Json]:
        return self.copy()

    def __deepcopy__(self, memo: object) -> dict[str, Json]:
        return self.copy()

    def __reduce__(self) -> tuple[type[dict[str, Json]], tuple[dict[str, Json]]]:
        return dict, (self.copy(),)
