"""CEL, spelled: names, literals, and the rules that stand for what a schema's keywords cannot say."""

from __future__ import annotations

import json
import re
from typing import Final

from opsdk.models._struct_schema import Schema

__all__ = ["RULES", "cel_literal", "cel_name", "guarded", "keys_rule", "uses_old_self", "with_rules"]

RULES: Final = "x-kubernetes-validations"

_KEYWORDS: Final = {
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
    "namespace", "null", "package", "return", "true", "var", "void", "while",
}  # fmt: skip
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')


def cel_name(name: str) -> str:
    """A field's name as CEL wants it."""
    if name in _KEYWORDS:
        return f"__{name}__"
    return (
        name.replace("__", "__underscores__").replace(".", "__dot__").replace("-", "__dash__").replace("/", "__slash__")
    )


def cel_literal(value: object) -> str:
    """A text, number or boolean as CEL writes it."""
    return json.dumps(value, ensure_ascii=False)  # all three are spelled alike


def with_rules(schema: Schema, *rules: Schema) -> None:
    """Add rules to a schema, each once."""
    if rules:
        there: list[Schema] = list(schema.get(RULES, ()))
        schema[RULES] = [*there, *(rule for rule in rules if rule not in there)]


def guarded(rule: Schema, condition: str) -> Schema:
    """The rule, asked only where `condition` does not hold."""
    return {**rule, "rule": f"{condition} || ({rule['rule']})"}


def keys_rule(test: str, message: str) -> Schema:
    """The rule that each key of a map passes a test on `key`."""
    return {"rule": f"self.all(key, {test})", "message": message}


def uses_old_self(rule: Schema) -> bool:
    """Whether a rule is about what was there before."""
    return re.search(r"\boldSelf\b", _TEXT.sub("", str(rule.get("rule", "")))) is not None
