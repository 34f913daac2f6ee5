"""Objects as rows of text: the answer to `kubectl get`, which leaves printing to the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from opsdk import clock
from opsdk.testing.apiserver._fields import (
    Tree,
    go_json,
    go_number,
    is_number,
)
from opsdk.testing.apiserver._jsonpath import find_all
from opsdk.testing.apiserver._kinds import KindInfo, PrintColumn
from opsdk.testing.apiserver._table_builtin import BUILTIN_PRINTERS, DEFAULT_PRINTER
from opsdk.testing.apiserver._table_cells import (
    NAME,
    Cell,
    Column,
    Printer,
    human_duration,
    name_of,
    time_of,
)
from opsdk.testing.apiserver._table_workloads import pod_conditions
from opsdk.types import JsonObject

__all__ = ["IncludeObject", "human_duration", "render_table"]

IncludeObject: TypeAlias = Literal["None", "Metadata", "Object"]
"""How much of each object its row carries."""

_AGE: Final = PrintColumn(name="Age", type="date", json_path=".metadata.creationTimestamp")


def render_table(
    info: KindInfo,
    objects: Iterable[Mapping[str, Any]],
    list_meta: JsonObject,
    *,
    include_object: IncludeObject = "Metadata",
    headers: bool = True,
) -> JsonObject:
    """The `Table` (`meta.k8s.io/v1`) that shows some objects of a kind.

    Args:
        info: The kind; custom resources are shown by its print columns.
        objects: The objects, whole.
        list_meta: The list's metadata (`resourceVersion`, `continue`, `remainingItemCount`); for one object, as in a
            watch, its resourceVersion.
        include_object: What the request's `includeObject` says.
        headers: Whether to send column definitions; a watch sends them with its first event only.
    """
    printer = _printer(info)
    now = clock.now()
    table: Tree = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(list_meta),
        "columnDefinitions": [column.definition() for column in printer.columns] if headers else None,
        "rows": [_row(printer, dict(each), include_object, now) for each in objects],
    }
    return table


def _row(printer: Printer, obj: Tree, include_object: IncludeObject, now: datetime) -> Tree:
    row: Tree = {"cells": list(printer.cells(obj, now))}
    if obj.get("kind") == "Pod" and (done := pod_conditions(obj)):
        row["conditions"] = done
    match include_object:
        case "Object":
            row["object"] = obj
        case "Metadata":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj.get("metadata"),
            }
        case "None":
            row["object"] = None
    return row


def _printer(info: KindInfo) -> Printer:
    if info.builtin:
        return BUILTIN_PRINTERS.get(info.resource, DEFAULT_PRINTER)
    columns = info.print_columns or (_AGE,)
    heads = [NAME]
    for column in columns:
        text = column.description or f"Custom resource definition column (in JSONPath format): {column.json_path}"
        heads.append(Column(column.name, column.type, column.format, text, column.priority))

    def cells(obj: Tree, now: datetime) -> list[Cell]:
        return [name_of(obj), *(_custom_cell(column, obj, now) for column in columns)]

    return Printer(tuple(heads), cells)


def _custom_cell(column: PrintColumn, obj: Tree, now: datetime) -> Cell:
    """What a CRD's column shows: the first value at its path, if it is of the column's type."""
    found = find_all(column.json_path, obj)
    value = found[0] if found else None
    if value is None:
        return None
    match column.type:
        case "string":
            return _printed(value)
        case "integer":
            return int(value) if is_number(value) else None
        case "number":
            return float(value) if is_number(value) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            if not isinstance(value, str):
                return None
            moment = time_of(value)
            return human_duration(now - moment) if moment is not None else "<invalid>"
        case _:
            return None


def _printed(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return go_number(value) if is_number(value) else go_json(value)
