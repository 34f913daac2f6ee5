"""The way to CEL rules: what evaluates them comes with an extra, and is loaded when a schema has some."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from opsdk.testing.apiserver._fields import Tree, entries, is_object, members
from opsdk.testing.apiserver._status import StatusError

if TYPE_CHECKING:
    from opsdk.testing.apiserver._cel_rules import RuleSet

__all__ = ["RULES", "has_rules", "require_rules", "rules_of"]

RULES: Final = "x-kubernetes-validations"


def _below(schema: Tree) -> Iterator[Tree]:
    properties: Tree = members(schema, "properties")
    yield from properties.values()
    for name in ("items", "additionalProperties"):
        if is_object(schema.get(name)):
            yield schema[name]


def has_rules(schema: Tree) -> bool:
    """Whether a schema has rules, itself or below."""
    return bool(entries(schema, RULES)) or any(map(has_rules, _below(schema)))


def rules_of(schema: Tree) -> RuleSet:
    """The compiled rules of a schema.

    Raises:
        StatusError: The extra is not installed.
    """
    require_rules()
    from opsdk.testing.apiserver import _cel_rules  # needs the extra

    return _cel_rules.rules_of(schema)


def require_rules() -> None:
    """Refuse to go on without what evaluates rules.

    Raises:
        StatusError: 501; the text says what to do.
    """
    if not _installed():
        text = (
            f"the schema has CEL rules ({RULES}), and what evaluates them is not installed: pip install 'opsdk[cel]'; "
            'or have them ignored: ApiServer(cel_rules="ignore"), or OPSDK_CEL_RULES=ignore in the environment'
        )
        raise StatusError(501, "NotImplemented", text)


@cache
def _installed() -> bool:
    return find_spec("cel_expr_python") is not None
