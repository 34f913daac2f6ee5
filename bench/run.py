"""Run the benchmarks and print their figures: `python bench/run.py [NAME…]`. Fails when a goal is missed.

Every module here with a `measure()` is one. Costs are compared within one run, because machines differ and are shared.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from figures import Figure, table

_PARTS = {"figures", "cluster", "run"}


def main() -> int:
    """Run those that were named, or all."""
    names = sorted(one.stem for one in Path(__file__).parent.glob("*.py") if one.stem not in _PARTS)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which to run: {', '.join(names)}; all by default")
    chosen: list[str] = parser.parse_args().name or names
    print(_machine(), flush=True)
    figures: list[Figure] = []
    for name in chosen:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        figures += importlib.import_module(name).measure()
    print(table(figures))
    return 1 if any(one.missed for one in figures) else 0


def _machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("lightkube", "httpx2", "msgspec", "pydantic", "anyio"))
    return f"Python {platform.python_version()} on {platform.machine()} {platform.system()}; {packages}\n"


if __name__ == "__main__":
    sys.exit(main())
