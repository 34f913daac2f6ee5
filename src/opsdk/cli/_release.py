"""`opsdk release`: take an operator's finalizers and owner labels off a cluster that it leaves."""

from __future__ import annotations

import argparse
import sys
from typing import Final

import anyio

from opsdk.cli._errors import CommandError
from opsdk.client import ApiClient
from opsdk.errors import ApiError, ConfigurationError
from opsdk.ownership import release

__all__ = ["HELP", "configure", "perform", "run"]

HELP: Final = "take an operator's finalizers and owner labels off a cluster that it leaves"


def configure(parser: argparse.ArgumentParser, /) -> None:
    """Give a parser the arguments of this command."""
    parser.description = (
        f"{HELP[0].upper()}{HELP[1:]}. Stop the operator first, and look at what --dry-run says. Children that the "
        "garbage collector knows still go with their owner, unless --orphan is given."
    )
    parser.add_argument(
        "--finalizer",
        action="append",
        default=[],
        metavar="NAME",
        help="a finalizer, or domain/* for all of a domain; several times for several",
    )
    parser.add_argument(
        "--owner-set",
        action="append",
        default=[],
        metavar="NAME",
        help="the name of a ResourceOwner, whose children lose their owner labels; several times for several",
    )
    parser.add_argument(
        "--kind",
        action="append",
        metavar="PLURAL.GROUP",
        help="look only at this kind, as in widgets.demo.example.com; several times for several (default: all kinds)",
    )
    parser.add_argument("-n", "--namespace", help="look only there (default: the whole cluster)")
    parser.add_argument("--orphan", action="store_true", help="let children outlive their owners")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--context", help="the kubeconfig context (default: the current one)")


def run(arguments: argparse.Namespace, /) -> int:
    """Run the command against the cluster that the environment names; the exit code.

    Raises:
        CommandError: It could not be carried out.
    """

    async def against_the_cluster() -> int:
        async with ApiClient.from_env(context=arguments.context, field_manager="opsdk-release") as client:
            return await perform(client, arguments)

    try:
        return anyio.run(against_the_cluster)
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    except ApiError as error:
        raise CommandError(f"{error}\nWhat was released stays released; run it again.", code=1) from error


async def perform(client: ApiClient, arguments: argparse.Namespace, /) -> int:
    """Run the command through a client; the exit code.

    Raises:
        ConfigurationError: The arguments name nothing that could be released.
        ApiError: The server refused something, or did not answer.
    """
    report = await release(
        client,
        finalizers=arguments.finalizer,
        owner_sets=arguments.owner_set,
        kinds=arguments.kind,
        namespace=arguments.namespace,
        orphan=arguments.orphan,
        dry_run=arguments.dry_run,
    )
    sys.stdout.write(f"{report}\n")
    return 1 if report.silent else 0
