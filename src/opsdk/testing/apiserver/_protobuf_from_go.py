"""Makes `protobuf.json` from the Go sources of Kubernetes' types: field numbers, JSON names and types.

Run as `python -m opsdk.testing.apiserver._protobuf_from_go FOLDER` when the Kubernetes version moves; the folder holds
the modules `api@…` and `apimachinery@…`. Struct tags say everything: `json:"replicas,omitempty"
protobuf:"varint,1,opt,name=replicas"`. Only stable versions are taken.

The table: types by name, each a map from field number to `[JSON name, type]`. A type is a code for a scalar
(`s`tring, `i`nteger, `b`ool, b`y`tes, `f`loat) or the name of another type, with a prefix: `[]` repeated, `{}` a map's
value, `*` a pointer, which is kept when it is zero, `!` always kept (no `omitempty`),
`<>` a message whose field 1 repeats. An empty JSON name is an inlined struct.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from opsdk.testing.apiserver._json import Document, encode

__all__ = ["main", "table"]

_SCALARS = {
    "string": "s",
    "bool": "b",
    "int": "i",
    "int32": "i",
    "int64": "i",
    "uint32": "i",
    "uint64": "i",
    "float64": "f",
    "[]byte": "y",
}
_FIELD = re.compile(r'^\s+(?:(\w+)\s+)?(\S+)\s+`.*?json:"([^"]*)".*?protobuf:"(\w+),(\d+),\w+,')
_STABLE = re.compile(r"v\d+$")
_SPECIAL = {
    "meta.v1": {"Time", "MicroTime", "Duration", "FieldsV1"},
    "resource": {"Quantity"},
    "intstr": {"IntOrString"},
    "runtime": {"RawExtension"},
}


@final
@dataclass(slots=True)
class _Package:
    key: str
    structs: dict[str, list[tuple[str, str, str, str]]] = field(
        default_factory=dict[str, list[tuple[str, str, str, str]]]
    )
    named: dict[str, str] = field(default_factory=dict[str, str])
    imports: dict[str, str] = field(default_factory=dict[str, str])


def table(folder: Path) -> Document:
    """The table of all types of the modules in a folder."""
    packages = {package.key: package for package in _packages(folder)}
    types: Document = {}
    for package in packages.values():
        for name, fields in package.structs.items():
            described: Document = {
                number: [json_name, _code(packages, package, go_type, keep="omitempty" not in options)]
                for number, json_name, options, go_type in fields
            }
            types[f"{package.key}.{name}"] = described
    return types


def _packages(folder: Path) -> Iterator[_Package]:
    (api,) = folder.glob("api@*")
    (machinery,) = folder.glob("apimachinery@*")
    for version in sorted(path for path in api.glob("*/*") if path.is_dir() and _STABLE.match(path.name)):
        yield _package(f"{version.parent.name}.{version.name}", version)
    yield _package("meta.v1", machinery / "pkg/apis/meta/v1")
    yield _package("types", machinery / "pkg/types")
    for name, path in (("resource", "pkg/api/resource"), ("intstr", "pkg/util/intstr"), ("runtime", "pkg/runtime")):
        yield _package(name, machinery / path)


def _package(key: str, path: Path) -> _Package:
    package = _Package(key)
    for source in sorted(path.glob("*.go")):
        if source.name.startswith(("zz_", "generated", "register")) or source.name.endswith("_test.go"):
            continue
        _read(package, source.read_text())
    return package


def _read(package: _Package, text: str) -> None:
    for alias, path in re.findall(r'^\s+(\w+)?\s*"(k8s\.io/[^"]+)"$', text, re.MULTILINE):
        parts = path.split("/")
        last = f"{parts[-2]}.{parts[-1]}" if re.match(r"v\d", parts[-1]) else parts[-1]
        package.imports[alias or parts[-1]] = last
    for name, go_type in re.findall(r"^type (\w+) ([\[\]\w.*]+)$", text, re.MULTILINE):
        package.named[name] = go_type
    for name, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields: list[tuple[str, str, str, str]] = []
        for line in body.splitlines():
            found = _FIELD.match(line)
            if found is not None:
                _, go_type, json_tag, _, number = found.groups()
                json_name, _, options = json_tag.partition(",")
                fields.append((number, "" if "inline" in options else json_name, options, go_type))
        if fields:
            package.structs[name] = fields


def _code(packages: dict[str, _Package], package: _Package, go_type: str, *, keep: bool = False) -> str:
    if go_type in _SCALARS:
        return ("!" if keep else "") + _SCALARS[go_type]
    if go_type.startswith("*"):
        return "*" + _code(packages, package, go_type[1:])
    if go_type.startswith("[]"):
        return ("!" if keep else "") + "[]" + _code(packages, package, go_type[2:])
    if found := re.match(r"map\[[\w.]+\](.*)", go_type):
        return ("!" if keep else "") + "{}" + _code(packages, package, found[1])
    alias, _, name = go_type.rpartition(".")
    home = packages.get(package.imports.get(alias, alias) if alias else package.key)
    if home is None:
        return ("!" if keep else "") + "s"
    if name in home.structs or name in _SPECIAL.get(home.key, ()):
        return f"{home.key}.{name}"
    named = home.named.get(name, "string")
    if named.startswith("[]") and named != "[]byte":
        return "<>" + _code(packages, home, named[2:])  # a message whose field 1 repeats
    return _code(packages, home, named, keep=keep)


def main() -> None:
    """Write the table beside this module."""
    target = Path(__file__).with_name("protobuf.json")
    target.write_bytes(encode(table(Path(sys.argv[1]))) + b"\n")


if __name__ == "__main__":
    main()
