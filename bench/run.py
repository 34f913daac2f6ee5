"""Run the benchmarks and print their figures: `python bench/run.py [NAME…]`. Fails when a goal is missed.

Every module here with a `measure()` is one. Costs are compared within one run, because machines differ and are shared.
With `--docs` the tables of the docs are written anew.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from figures import Figure, table

_BENCHMARKS: Final = ("client", "operators", "micro", "simulator")
_BY_NAME_ONLY: Final = ("growth",)
_DOCS: Final = Path(__file__).parents[1] / "docs"


def main() -> int:
    """Run those that were named, or all but those that take long and compare nothing."""
    there = [name for name in (*_BENCHMARKS, *_BY_NAME_ONLY) if importlib.util.find_spec(name)]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which to run, of {', '.join(there)}")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/benchmarks.md and docs/growth.md")
    given = parser.parse_args()
    chosen: list[str] = given.name or [name for name in there if name not in _BY_NAME_ONLY]
    print(_machine(), flush=True)
    figures: list[Figure] = []
    for name in chosen:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        module = importlib.import_module(name)
        found: list[Figure] = module.measure()
        figures += found
        texts = [f"{_machine()}\n{table(found)}"]
        if hasattr(module, "details"):
            texts.append(module.details())
        text = "\n\n".join(texts)
        print(f"{text}\n", flush=True)
        if given.docs:
            _write(name, text)
    missed = [one for one in figures if one.missed]
    if missed:
        print(f"{len(missed)} of {len(figures)} goals are missed:\n{table(missed)}")
    return 1 if missed else 0


def _write(name: str, text: str) -> None:
    """Put a benchmark's tables between its marks in the document."""
    page = _DOCS / ("growth.md" if name == "growth" else "benchmarks.md")
    document = page.read_text(encoding="utf-8")
    between = re.compile(rf"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)", re.DOTALL)
    page.write_text(between.sub(lambda marks: f"{marks[1]}{text}\n{marks[2]}", document), encoding="utf-8")


def _machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("lightkube", "httpx2", "msgspec", "pydantic", "anyio"))
    cores = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    return f"Python {platform.python_version()} on {platform.machine()} {platform.system()}, {cores}; {packages}\n"


if __name__ == "__main__":
    sys.exit(main())
