"""Arguments in, exit code out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import metadata

from opsdk.cli import _crd, _explain, _graph, _release
from opsdk.cli._errors import CommandError

__all__ = ["main"]

_EPILOG = """\
exit codes:
  0  done, and nothing differs
  1  something differs, or the cluster refused it
  2  it could not be tried: usage, modules, models, files, configuration
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Those after the program's name; None: the process's own.

    Returns:
        The exit code; see `opsdk.cli`.
    """
    parser = argparse.ArgumentParser(
        prog="opsdk",
        description="Tools for operators written with opsdk.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"opsdk {_version()}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    crd = commands.add_parser(
        "crd",
        help="CustomResourceDefinitions from the models of a module",
        description=_crd.DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _crd.add_arguments(crd)
    _release.configure(commands.add_parser("release", help=_release.HELP))
    _explain.configure(commands.add_parser("explain", help=_explain.HELP))
    _graph.configure(commands.add_parser("graph", help=_graph.HELP))
    given = parser.parse_args(arguments)
    try:
        if given.command == "release":
            return _release.run(given)
        if given.command == "explain":
            return _explain.run(given)
        if given.command == "graph":
            return _graph.run(given)
        return _crd.run(_crd.options_of(given))
    except CommandError as error:
        sys.stderr.write(f"opsdk {given.command}: {error}\n")
        return error.code


def _version() -> str:
    try:
        return metadata.version("opsdk")
    except metadata.PackageNotFoundError:
        return "(not installed)"
