"""`opsdk crd`: write, check or install CustomResourceDefinitions."""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, final

import anyio
import yaml

from opsdk.cli._errors import CommandError
from opsdk.cli._loading import load_kinds
from opsdk.client import ApiClient, InstalledCrd, install_crds
from opsdk.errors import (
    ApiError,
    ConfigurationError,
    ConflictError,
    CrdChangeError,
    CrdNotEstablishedError,
    CrdSchemaError,
    ResourceDefinitionError,
)
from opsdk.models import crd_manifests, crd_yaml, manifests_yaml
from opsdk.patches import is_array, is_object
from opsdk.protocols import KubeObject
from opsdk.types import Json, JsonObject

__all__ = ["DESCRIPTION", "Options", "add_arguments", "options_of", "run"]

DESCRIPTION = """\
Makes CustomResourceDefinitions from the models of a module, one YAML document for
each kind, always in the same order. Classes of one group and kind are its versions.

  opsdk crd myoperator.api                          write them to the standard output
  opsdk crd myoperator.api --output crds.yaml       or into a file
  opsdk crd myoperator.api:Widget --check crds.yaml fail if the file says something else
  opsdk crd myoperator.api --install                apply them to the cluster and wait
"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for."""

    targets: Sequence[str]
    output: Path | None
    check: Path | None
    install: bool
    context: str | None
    field_manager: str
    allow_data_loss: bool
    force: bool
    dry_run: bool
    timeout: timedelta


def add_arguments(parser: ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="MODULE[:CLASS,...]",
        help="a module, or a path that ends in .py; without classes, all that it defines",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-o", "--output", type=Path, metavar="PATH", help="write a file, unless it says the same already")
    what.add_argument(
        "--check", type=Path, metavar="PATH", help="compare with a file; a diff, and exit code 1, if it drifted"
    )
    what.add_argument("--install", action="store_true", help="apply to the cluster, wait until it is served")
    cluster = parser.add_argument_group("with --install")
    cluster.add_argument("--context", metavar="NAME", help="the kubeconfig's context (default: its current one)")
    cluster.add_argument("--field-manager", default="opsdk", metavar="NAME", help="who applies (default: opsdk)")
    cluster.add_argument("--force", action="store_true", help="take over fields that others own")
    cluster.add_argument("--allow-data-loss", action="store_true", help="apply also what may cost objects data")
    cluster.add_argument("--dry-run", action="store_true", help="only ask the server")
    cluster.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="how long to wait (30)")


def options_of(given: Namespace) -> Options:
    """The arguments, typed."""
    members: dict[str, Any] = vars(given)
    return Options(
        targets=members["targets"],
        output=members["output"],
        check=members["check"],
        install=members["install"],
        context=members["context"],
        field_manager=members["field_manager"],
        allow_data_loss=members["allow_data_loss"],
        force=members["force"],
        dry_run=members["dry_run"],
        timeout=timedelta(seconds=members["timeout"]),
    )


def run(options: Options) -> int:
    """Carry out the command.

    Raises:
        CommandError: It could not be carried out.
    """
    kinds = load_kinds(options.targets)
    try:
        text = crd_yaml(*kinds)
    except (CrdSchemaError, ResourceDefinitionError) as error:
        raise CommandError(str(error)) from error
    if options.install:
        return anyio.run(_install, options, kinds)
    if options.check is not None:
        return _check(options.check, kinds, text)
    if options.output is not None:
        _write(options.output, text)
    else:
        sys.stdout.write(text)
    return 0


def _write(path: Path, text: str) -> None:
    """Write the file whole or not at all, and not if it is equal: tools that watch it stay asleep."""
    try:
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error}") from error


def _check(path: Path, kinds: Sequence[type[KubeObject]], text: str) -> int:
    """Compare what a file says, not how it says it: comments and the order of its documents do not matter."""
    try:
        found = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        sys.stderr.write(f"{path} does not exist; make it with --output {path}\n")
        return 1
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from error
    if found == text:
        return 0
    try:
        documents = [document for document in yaml.safe_load_all(found) if _is_crd(document)]
    except yaml.YAMLError as error:
        raise CommandError(f"{path} is no YAML: {error}") from error
    there = {_name(document): document for document in documents}
    wanted = {_name(manifest): manifest for manifest in crd_manifests(*kinds)}
    if there == wanted and len(documents) == len(there):
        return 0
    before = manifests_yaml([_document_like(there[name], wanted.get(name, {})) for name in sorted(there)])
    after = manifests_yaml([wanted[name] for name in sorted(wanted)])
    sys.stdout.writelines(
        difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            fromfile=str(path),
            tofile="the models",
        )
    )
    sys.stderr.write(f"{path} differs from the models; make it again with --output {path}\n")
    return 1


def _is_crd(document: Json) -> bool:
    return isinstance(document, Mapping) and document.get("kind") == "CustomResourceDefinition"


def _name(document: JsonObject) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, Mapping) else ""


def _document_like(document: JsonObject, model: JsonObject) -> JsonObject:
    found = _like(document, model)
    return found if is_object(found) else document


def _like(value: Json, model: Json) -> Json:
    """The value with its keys in the model's order, so that a diff shows differences only."""
    if is_object(value) and is_object(model):
        ordered = [key for key in model if key in value] + [key for key in value if key not in model]
        return {key: _like(value[key], model.get(key)) for key in ordered}
    if is_array(value) and is_array(model):
        return [_like(item, model[index] if index < len(model) else None) for index, item in enumerate(value)]
    return value


async def _install(options: Options, kinds: Sequence[type[KubeObject]]) -> int:
    try:
        client = ApiClient.from_env(context=options.context, field_manager=options.field_manager)
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    async with client:
        try:
            installed = await install_crds(
                client,
                *kinds,
                allow_data_loss=options.allow_data_loss,
                force=options.force,
                dry_run=options.dry_run,
                timeout=options.timeout,
            )
        except CrdChangeError as error:
            raise CommandError(f"{error}\n(--allow-data-loss does it all the same)", code=1) from error
        except ConflictError as error:
            raise CommandError(f"{error}\n(--force takes over what others own)", code=1) from error
        except (ApiError, CrdNotEstablishedError) as error:
            raise CommandError(str(error), code=1) from error
    for crd in installed:
        sys.stdout.write(_told(crd, dry_run=options.dry_run))
    return 0


def _told(crd: InstalledCrd, *, dry_run: bool) -> str:
    what = "created" if crd.created else "changed" if crd.changes else "unchanged"
    lines = [f"{crd.name} {what}{' (dry run)' if dry_run else ''}", *(f"  {change}" for change in crd.changes)]
    lines += [f"  data may be lost: {loss}" for loss in crd.losses]
    return "\n".join(lines) + "\n"
