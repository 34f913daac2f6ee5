"""Strategies of specs, for property tests of one's own."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from opsdk.protocols import KubeObject
from opsdk.testing.campaigns._mutations import violations
from opsdk.testing.campaigns._schema import definition_of
from opsdk.testing.campaigns._strategies import values_of
from opsdk.types import Json, JsonObject

__all__ = ["invalid_specs_of", "specs_of"]


def specs_of(
    kind: type[KubeObject] | JsonObject, *, fields: Mapping[str, SearchStrategy[Json]] | None = None
) -> SearchStrategy[JsonObject]:
    """Specs that the schema of a custom resource allows; see `values_of`.

    Args:
        kind: Its class, or the manifest of its CRD.
        fields: Strategies for single fields, by path.
    """

    def as_object(value: Json) -> JsonObject:
        return value if isinstance(value, Mapping) else {}

    return values_of(definition_of(kind).spec, fields=fields).map(as_object)


def invalid_specs_of(
    kind: type[KubeObject] | JsonObject, *, fields: Mapping[str, SearchStrategy[Json]] | None = None
) -> SearchStrategy[tuple[JsonObject, str]]:
    """Specs just outside of the schema, each with what is wrong with it; the API server must refuse them.

    Args:
        kind: Its class, or the manifest of its CRD.
        fields: Strategies for single fields of the specs that are then broken.
    """
    schema, specs = definition_of(kind).spec, specs_of(kind, fields=fields)

    @st.composite
    def broken(draw: DrawFn) -> tuple[JsonObject, str]:
        found = violations(schema, draw(specs.filter(lambda spec: bool(violations(schema, spec)))))
        one = draw(st.sampled_from(found))
        return one.spec, one.why

    return broken()
