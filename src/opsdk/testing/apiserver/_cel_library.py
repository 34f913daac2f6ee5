"""The CEL library (cel-expr-python, the C++ implementation) with what Kubernetes adds to it.

Two environments: rules are compiled in one that knows the types of a schema, which finds every fault of types; they are
evaluated in one without types, over plain maps, as messages could not say which of their fields are absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import product
from typing import Any, Final, Protocol, cast, final

from cel_expr_python import cel
from google.protobuf import descriptor_pool, duration_pb2, message_factory, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message

from opsdk.testing.apiserver._cel_function import OPAQUE, Function, Opaque
from opsdk.testing.apiserver._cel_functions import functions
from opsdk.testing.apiserver._cel_syntax import children, encode_parsed, parse_checked, parse_parsed
from opsdk.testing.apiserver._cel_types import PACKAGE, CelType, messages_of
from opsdk.testing.apiserver._cel_values import TimeMaker
from opsdk.testing.apiserver._fields import Tree, is_array, is_object

__all__ = ["CelProgramError", "Checked", "Checker", "Program", "program", "times"]

_SCALARS: Final = {
    "bool": cel.Type.BOOL,
    "bytes": cel.Type.BYTES,
    "double": cel.Type.DOUBLE,
    "duration": cel.Type.DURATION,
    "dyn": cel.Type.DYN,
    "int": cel.Type.INT,
    "string": cel.Type.STRING,
    "timestamp": cel.Type.TIMESTAMP,
    "uint": cel.Type.UINT,
}
_EXTENSIONS: Final = [{"name": name} for name in ("optional", "two-var-comprehensions", "sets", "lists")]
_COMPARISONS: Final = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}
_NUMBERS: Final = ("int", "uint", "double")
_MAP_INSERT: Final = "opsdk.mapInsert"
_MILLISECONDS: Final = "opsdk.milliseconds"
_REWRITTEN: Final = ("getMilliseconds", "named", "transformMap", "validate")


class CelProgramError(Exception):
    """An expression cannot be compiled or evaluated; the text says why."""


# Types and values of Kubernetes' own


def _opaque_files() -> Iterable[FileDescriptorProto]:
    for package in ("opsdk.cel", "net"):
        file = FileDescriptorProto(name=f"opsdk_cel_{package}.proto", package=package, syntax="proto3")
        for name in OPAQUE.values():
            if name.startswith(f"{package}."):
                message = file.message_type.add(name=name.rpartition(".")[2])
                field = message.field.add(name="opsdk_cel_text", number=1, json_name="text")
                field.type, field.label = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.LABEL_OPTIONAL
        yield file


def _pool(*more: FileDescriptorProto) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for module in (duration_pb2, struct_pb2, timestamp_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in (*_opaque_files(), *more):
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@cache
def _own_pool() -> descriptor_pool.DescriptorPool:
    return _pool()


@cache
def _opaque_class(kind: str) -> type[Message]:
    return message_factory.GetMessageClass(_own_pool().FindMessageTypeByName(OPAQUE[kind]))


@cache
def times() -> TimeMaker:
    """Makes times for expressions."""
    found = (_own_pool().FindMessageTypeByName(f"google.protobuf.{name}") for name in ("Timestamp", "Duration"))
    return TimeMaker(*map(message_factory.GetMessageClass, found))


_KINDS: Final = {name: kind for kind, name in OPAQUE.items()}


class _WithText(Protocol):
    opsdk_cel_text: str


def _taken(value: object) -> object:
    """An argument, as functions take it."""
    if isinstance(value, Message):
        return Opaque(_KINDS[value.DESCRIPTOR.full_name], cast("_WithText", value).opsdk_cel_text)
    if is_array(value):
        return [_taken(each) for each in value]
    return value


def _given(value: object) -> object:
    """A result, as expressions take it."""
    if isinstance(value, Opaque):
        return _opaque_class(value.kind)(opsdk_cel_text=value.text)
    if isinstance(value, bool | int | float | str | bytes):
        return value
    if is_array(value):
        return [_given(each) for each in value]
    return times().given_back(value)


# Declarations


def _delegate(expression: str) -> Callable[..., object]:
    """A function of an expression that the CEL library knows."""

    def compute(*arguments: object) -> object:
        found = _delegated(expression).eval(data=dict(zip("abcd", map(times().given_back, arguments), strict=False)))
        return _value(found)

    return compute


@cache
def _delegated(expression: str) -> cel.Expression:
    return _strings().compile(expression, disable_check=True)


@cache
def _strings() -> cel.Env:
    config = cel.NewEnvConfigFromYaml("extensions:\n- name: strings\n  version: 2\n")
    return cel.NewEnv(config=config, variables=dict.fromkeys("abcd", cel.Type.DYN))


@cache
def _functions() -> tuple[Function, ...]:
    return functions(_delegate)


@cache
def _declarations() -> list[Tree]:
    """Every overload with its types, as the library's configuration has them, for the check of a rule."""
    by_name: dict[str, list[Tree]] = {}
    for each in _functions():
        takes = [_spelled(one) for one in each.takes]
        overload: Tree = {"id": each.id, "args": takes, "return": _spelled(each.gives)}
        if each.member:
            overload |= {"target": takes[0], "args": takes[1:]}
        by_name.setdefault(each.name, []).append(overload)
    for operator, name in _COMPARISONS.items():  # numbers of all kinds compare
        same = ((kind, kind) for kind in ("bool", "string", "bytes", "timestamp", "duration"))
        by_name[operator] = [
            {
                "id": f"{name}_{one}_{other}",
                "args": [_spelled(one), _spelled(other)],
                "return": _spelled("bool"),
            }
            for one, other in (*same, *product(_NUMBERS, _NUMBERS))
        ]
    return [{"name": name, "overloads": overloads} for name, overloads in by_name.items()]


def _spelled(kind: str) -> Tree:
    """A type in the library's configuration."""
    if kind in {"timestamp", "duration"}:
        return {"type_name": f"google.protobuf.{kind.capitalize()}"}
    if kind in _SCALARS:
        return {"type_name": kind}
    if kind in OPAQUE:
        return {"type_name": OPAQUE[kind]}
    match kind[0]:
        case "[":
            return {"type_name": "list", "params": [_spelled(kind[1:-1])]}
        case "{":
            return {"type_name": "map", "params": [_spelled("string"), _spelled(kind[1:-1])]}
        case "?":
            return {"type_name": "optional_type", "params": [_spelled(kind[1:])]}
        case _:
            return {"type_name": kind, "is_type_param": True}


def _config(*, excluded: Iterable[str], **more: object) -> cel.EnvConfig:
    """A configuration of the library, in JSON, which is YAML.

    Args:
        excluded: Functions of its own that it shall not declare.
        more: Variables and functions.
    """
    standard = {"exclude_functions": [{"name": name} for name in excluded]}
    return cel.NewEnvConfigFromYaml(json.dumps({"stdlib": standard, "extensions": _EXTENSIONS, **more}))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What is known of an expression that compiles.

    Args:
        gives: The name of its type.
        tree: `expr`, `reference_map`, `type_map`.
    """

    gives: str
    tree: Tree

    @property
    def uses_old_self(self) -> bool:
        """Whether it refers to `oldSelf`."""
        return any(each.get("name") == "oldSelf" for each in self.tree["reference_map"].values())


@final
class Checker:
    """Compiles the rules of a schema, which finds what is wrong with them.

    Args:
        root: The type of the whole.
    """

    def __init__(self, root: CelType) -> None:
        file, self._names = messages_of(root)
        self._pool = _pool(file)
        self._environments: dict[tuple[int, bool], cel.Env] = {}

    def check(self, expression: str, of: CelType, *, optional_old_self: bool = False) -> Checked:
        """Compile a rule or a messageExpression.

        Args:
            expression: The expression.
            of: The type of `self`; one below the root's.
            optional_old_self: Whether `oldSelf` is an optional value.

        Raises:
            CelProgramError: It does not compile.
        """
        environment = self._environments.get((id(of), optional_old_self))
        if environment is None:
            of_self = self._type(of)
            of_old = {"type_name": "optional_type", "params": [of_self]} if optional_old_self else of_self
            environment = self._environments[id(of), optional_old_self] = cel.NewEnv(
                descriptor_pool=self._pool,
                config=_config(
                    excluded=("string", *_COMPARISONS),
                    variables=[{"name": "self", **of_self}, {"name": "oldSelf", **of_old}],
                    functions=_declarations(),
                ),
            )
        try:
            compiled = environment.compile(expression)
        except RuntimeError as error:
            raise CelProgramError(str(error).removeprefix("INVALID_ARGUMENT: ")) from error
        return Checked(gives=compiled.return_type().name().lower(), tree=parse_checked(compiled.serialize()))

    def _type(self, of: CelType) -> Tree:
        element = of.element
        match of.kind:
            case "object":
                return {"type_name": f"{PACKAGE}.{self._names[id(of)]}"}
            case "list" if element is not None:
                return {"type_name": "list", "params": [self._type(element)]}
            case "map" if element is not None:
                return {"type_name": "map", "params": [_spelled("string"), self._type(element)]}
            case _:
                return _spelled(of.kind)


# Evaluation

_RUNTIME_KINDS: Final = (
    *("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"),
    *("list", "map", "null", "message"),
)


def _runtime_type(kind: str) -> cel.Type:
    match kind:
        case "list":
            return cel.Type.LIST
        case "map":
            return cel.Type.MAP
        case "null":
            return cel.Type.NULL
        case "message":  # any of ours: the library tells only that it is one
            return cel.Type(OPAQUE["ip"])
        case _:
            return _SCALARS[kind]


def _runtime_kinds(spelled: str) -> tuple[str, ...]:
    """What an argument can be when a function is called; the library knows no more of it than that."""
    if spelled in {"dyn", "A"}:
        return _RUNTIME_KINDS
    if spelled in OPAQUE:
        return ("message",)
    return ("list",) if spelled[0] == "[" else (spelled,)


@final
class _Dispatcher:
    """Calls the function whose arguments are of the right kinds."""

    def __init__(self) -> None:
        self.candidates: list[Function] = []

    def __call__(self, *arguments: object) -> object:
        taken = [_taken(each) for each in arguments]
        for each in self.candidates:
            fits = all(
                isinstance(one, Opaque) and one.kind == wanted if wanted in OPAQUE else not isinstance(one, Opaque)
                for one, wanted in zip(taken, each.takes, strict=True)
                if wanted not in {"A", "dyn"}
            )
            if fits and each.compute is not None:
                return _given(each.compute(*taken))
        raise TypeError("no such overload")


@cache
def _implementations() -> list[cel.FunctionDecl]:
    """Every function by kinds of arguments."""
    found: dict[tuple[str, bool, tuple[str, ...]], _Dispatcher] = {}
    for each in _functions():
        if each.compute is None:
            continue
        for kinds in product(*map(_runtime_kinds, each.takes)):
            found.setdefault((each.name, each.member, kinds), _Dispatcher()).candidates.append(each)
    by_name: dict[str, list[cel.Overload]] = {}
    for (name, member, kinds), dispatcher in found.items():
        overload = cel.Overload(
            f"{'.' if member else ''}{name}({','.join(kinds)})",
            return_type=cel.Type.DYN,
            parameters=[_runtime_type(kind) for kind in kinds],
            is_member=member,
            impl=dispatcher,
        )
        by_name.setdefault(name, []).append(overload)
    by_name[_MAP_INSERT] = [
        cel.Overload(
            f"{_MAP_INSERT}({key},{value})",
            return_type=cel.Type.MAP,
            parameters=[cel.Type.MAP, _runtime_type(key), _runtime_type(value)],
            impl=_map_insert,
        )
        for key, value in product(("bool", "int", "string", "uint"), _RUNTIME_KINDS)
    ] + [
        cel.Overload(
            f"{_MAP_INSERT}(map)",
            return_type=cel.Type.MAP,
            parameters=[cel.Type.MAP, cel.Type.MAP],
            impl=_map_merge,
        )
    ]
    by_name[_MILLISECONDS] = [
        cel.Overload(
            f"{_MILLISECONDS}({','.join(kinds)})",
            return_type=cel.Type.INT,
            parameters=[_runtime_type(kind) for kind in kinds],
            is_member=True,
            impl=_milliseconds,
        )
        for kinds in (("duration",), ("timestamp",), ("timestamp", "string"))
    ]
    return [cel.FunctionDecl(name, overloads) for name, overloads in by_name.items()]


def _map_insert(entries: Mapping[object, object], key: object, value: object) -> dict[object, object]:
    if key in entries:
        raise ValueError(f"insert failed: key {key!r} already exists")
    return {**{name: _given(_taken(each)) for name, each in entries.items()}, key: _given(_taken(value))}


def _map_merge(entries: Mapping[object, object], more: Mapping[object, object]) -> Mapping[object, object]:
    merged = entries
    for key, value in more.items():
        merged = _map_insert(merged, key, value)
    return merged


def _milliseconds(value: datetime | timedelta, _zone: str = "") -> int:
    """A whole duration in milliseconds, where the CEL library gives what is beyond its seconds; of a time, that."""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    return value.microsecond // 1000


@cache
def _runtime() -> cel.Env:
    names = ("self", "oldSelf", "opsdk_has_old")
    return cel.NewEnv(
        descriptor_pool=_own_pool(),
        config=_config(excluded=("string",)),
        variables=dict.fromkeys(names, cel.Type.DYN),
        functions=_implementations(),
    )


def _value(found: cel.Value) -> Any:
    if found.type().name() in {"ERROR", "*error*"}:
        raise CelProgramError(_worded(str(found.plain_value())))
    return found.plain_value()


_WORDED: Final = (
    (r'NOT_FOUND: Key not found in map : "?([^"]*)"?', r"no such key: \1"),
    (r"UNKNOWN: No matching overloads found : .*", "no such overload"),
    (r"UNKNOWN: Index error: index=(-?\d+).*", r"index out of bounds: \1"),
    (r"INVALID_ARGUMENT: divide by zero", "division by zero"),
    (
        r"INVALID_ARGUMENT: String to (Duration|Timestamp) conversion failed",
        r"type conversion error from 'string' to 'google.protobuf.\1'",
    ),
    (r"INVALID_ARGUMENT: cannot convert string to (\w+)", r"type conversion error from 'string' to '\1'"),
    (r"[A-Z_]+: (.*)", r"\1"),
)


def _worded(text: str) -> str:
    """The library's errors in the words of the server's, where they are often met."""
    for pattern, words in _WORDED:
        if re.fullmatch(pattern, text, re.DOTALL):
            return re.sub(pattern, words, text, count=1, flags=re.DOTALL)
    return text


@final
class Program:
    """An expression that can be evaluated over and over."""

    def __init__(self, compiled: cel.Expression) -> None:
        self._compiled = compiled

    def evaluate(self, variables: Mapping[str, object]) -> object:
        """The value: plain Python, or a message.

        Raises:
            CelProgramError: It has none.
        """
        try:
            return _value(self._compiled.eval(data=variables))
        except (RuntimeError, TypeError) as error:
            raise CelProgramError(str(error)) from error


@lru_cache(maxsize=2048)
def program(expression: str, *, optional_old_self: bool = False) -> Program:
    """An expression that a `Checker` has accepted, ready for evaluation.

    Args:
        expression: The expression over `self` and `oldSelf`.
        optional_old_self: Whether `oldSelf` is an optional value; `opsdk_has_old` then says if there is one.

    Raises:
        CelProgramError: It is no expression.
    """
    text = expression
    if optional_old_self:  # a list of one item gives a name to a value
        old = "opsdk_has_old ? optional.of(oldSelf) : optional.none()"
        text = f"[{old}].all(oldSelf, (\n{expression}\n))"
    try:
        compiled = _runtime().compile(text, disable_check=True)
        if any(word in expression for word in _REWRITTEN):
            tree = parse_parsed(compiled.serialize())
            _rewrite(tree)
            compiled = _runtime().deserialize(encode_parsed(tree))
    except RuntimeError as error:
        raise CelProgramError(str(error)) from error
    return Program(compiled)


def _rewrite(expr: Tree) -> None:
    """Replace what the library has no implementation of, or another one than the server's, or Python cannot give."""
    for below in list(children(expr)):
        _rewrite(below)
    made = expr.get("call_expr")
    if not is_object(made):
        return
    function = made["function"]
    if function == "cel.@mapInsert":
        made["function"] = _MAP_INSERT
    elif function == "getMilliseconds":
        made["function"] = _MILLISECONDS
    elif function == "validate" or (
        function == "named" and made.get("target", {}).get("ident_expr", {}).get("name") == "format"
    ):
        whole = dict(expr)
        expr.clear()
        optional = {"id": whole["id"], "ident_expr": {"name": "optional"}}
        expr.update(
            {"id": whole["id"], "call_expr": {"target": optional, "function": "ofNonZeroValue", "args": [whole]}}
        )
