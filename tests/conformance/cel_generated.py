"""Generated rules over one schema, and values to hold them against."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from conformance.harness import Body

__all__ = ["FIELDS", "rules", "values"]

FIELDS: Final[dict[str, Body]] = {
    "i": {"type": "integer"},
    "j": {"type": "integer", "default": 3},
    "n": {"type": "number"},
    "s": {"type": "string", "maxLength": 10},
    "b": {"type": "boolean"},
    "l": {"type": "array", "maxItems": 4, "items": {"type": "integer"}},
    "t": {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 5}},
    "m": {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "integer"}},
    "o": {"type": "object", "properties": {"x": {"type": "integer"}, "y-z": {"type": "string", "maxLength": 5}}},
    "p": {"x-kubernetes-int-or-string": True},
    "d": {"type": "string", "format": "duration"},
    "w": {"type": "string", "format": "date-time"},
}

_LEAVES: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("self.b", "has(self.i)", "has(self.o)", "has(self.o.x)", "true", "has(self.s)", "has(self.p)"),
    "int": ("self.i", "self.j", "self.o.x", "0", "1", "-2", "self.m['a']", "self.?i.orValue(7)", "self.l[0]"),
    "double": ("self.n", "0.5", "-1.0", "2.0"),
    "string": ("self.s", "''", "'a'", "'abc'", "self.o.y__dash__z", "self.t[0]"),
    "duration": ("self.d", "duration('1h')", "duration('90s')"),
    "time": ("self.w", "timestamp('2020-01-01T00:00:00Z')"),
    "ints": ("self.l", "[1, 2]", "[self.i]"),
    "strings": ("self.t", "['a', 'b']"),
}
_MADE: Final[dict[str, tuple[str, ...]]] = {
    "bool": (
        *("{bool} && {bool}", "{bool} || {bool}", "!({bool})", "({bool} ? {bool} : {bool})"),
        *("{int} < {int}", "{int} == {int}", "{int} >= {double}", "{double} != {double}", "{string} == {string}"),
        *(
            "{string} < {string}",
            "{string}.contains({string})",
            "{string}.startsWith('a')",
            "{string}.matches('^[ab]*$')",
        ),
        *("{int} in {ints}", "{string} in {strings}", "{ints} == {ints}", "{strings} == {strings}"),
        *("{ints}.all(e, e > {int})", "{ints}.exists(e, e == {int})", "{strings}.exists_one(e, e == {string})"),
        *("{ints}.isSorted()", "{strings}.isSorted()", "self.m.all(k, self.m[k] > {int})", "'a' in self.m"),
        *("type(self.p) == int", "self.p == {int}", "self.p == {string}", "isQuantity({string})", "isIP({string})"),
        *(
            "{duration} < {duration}",
            "{time} > {time}",
            "{time} + {duration} > {time}",
            "sets.intersects({ints}, {ints})",
        ),
        *(
            "{ints}.all(x, v, x < v)",
            "{string}.find('[a-z]+') == {string}",
            "self.o == self.o",
            "self.m == {{'a': {int}}}",
        ),
        "format.dns1123Label().validate({string}).hasValue()",
    ),
    "int": (
        *("{int} + {int}", "{int} * {int}", "{int} / {int}", "{int} % {int}", "-({int})", "size({string})"),
        *("{ints}.size()", "{ints}.sum()", "{ints}.max()", "{string}.indexOf({string})", "self.m.size()"),
        *("({bool} ? {int} : {int})", "int({double})", "{ints}.indexOf({int})", "{duration}.getMinutes()"),
    ),
    "double": ("{double} + {double}", "{double} / {double}", "double({int})", "{double} * {double}"),
    "string": (
        *("{string} + {string}", "{string}.lowerAscii()", "string({int})", "{string}.substring(1)", "{string}.trim()"),
        *(
            "{strings}.join('-')",
            "{string}.replace('a', 'b')",
            "({bool} ? {string} : {string})",
            "{string}.charAt({int})",
        ),
    ),
    "duration": ("{duration} + {duration}",),
    "time": ("{time} + {duration}",),
    "ints": ("{ints} + {ints}", "{ints}.map(e, e + {int})", "{ints}.filter(e, e > {int})", "{ints}.distinct()"),
    "strings": ("{strings} + {strings}", "{string}.split('b')", "{strings}.filter(e, e != {string})"),
}
_KINDS: Final = tuple(_MADE)


@st.composite
def _expression(draw: st.DrawFn, kind: str, depth: int) -> str:
    if draw(st.integers(0, 60)) == 0:
        kind = draw(st.sampled_from(_KINDS))  # of the wrong type
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(_LEAVES[kind]))
    template = draw(st.sampled_from(_MADE[kind]))
    parts = {
        name: _Parts([f"({draw(_expression(name, depth - 1))})" for _ in range(template.count(f"{{{name}}}"))])
        for name in _KINDS
    }
    return template.format_map(parts)


class _Parts:
    """Gives another expression at every mention."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = iter(texts)

    def __format__(self, _spec: str) -> str:
        return next(self._texts)


def rules() -> st.SearchStrategy[list[str]]:
    """Some rules, now and then about the old value."""
    plain = st.integers(1, 3).flatmap(lambda depth: _expression("bool", depth))
    old = plain.map(lambda text: text.replace("self.i", "oldSelf.i").replace("self.s", "oldSelf.s"))
    return st.lists(st.one_of(plain, plain, plain, old), min_size=6, max_size=12, unique=True)


def values() -> st.SearchStrategy[Body]:
    """Objects that fit the schema."""
    small, text = st.integers(-3, 5), st.text("ab-A1.", max_size=4)
    fields: dict[str, st.SearchStrategy[Any]] = {
        "i": small,
        "j": small,
        "n": st.sampled_from([-1.5, 0, 0.5, 1, 2.25]),
        "s": text,
        "b": st.booleans(),
        "l": st.lists(small, max_size=4),
        "t": st.lists(text, max_size=4),
        "m": st.dictionaries(st.sampled_from(["a", "b", "c d"]), small, max_size=3),
        "o": st.fixed_dictionaries({}, optional={"x": small, "y-z": text}),
        "p": st.one_of(small, text),
        "d": st.sampled_from(["1h", "90s", "1h30m", "0s"]),
        "w": st.sampled_from(["2020-01-01T00:00:00Z", "2021-05-06T07:08:09.123456789+02:00"]),
    }
    return st.fixed_dictionaries({}, optional=fields)
