"""From `MODULE[:CLASS,…]` to classes."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec
from lightkube.core.resource import ApiInfo

from opsdk.cli._errors import CommandError
from opsdk.errors import OpsdkError
from opsdk.models import CustomResource
from opsdk.protocols import KubeObject

__all__ = ["imported", "load_kinds", "told"]


def load_kinds(targets: Sequence[str]) -> list[type[KubeObject]]:
    """The classes that the targets name, each once.

    Args:
        targets: `package.module`, `package.module:Class,Other`, or a path that ends in `.py` instead of the module.
            Without classes: those of the module, or of the package and its modules, that stand for a kind.

    Raises:
        CommandError: A module cannot be imported, or has no such class.
    """
    found: dict[type[KubeObject], None] = {}
    for target in targets:
        name, _, classes = target.partition(":")
        module = imported(name)
        if classes:
            found.update((_named(module, each.strip(), name), None) for each in classes.split(","))
        else:
            found.update((kind, None) for kind in _own_kinds(module, name))
    return list(found)


def imported(name: str) -> ModuleType:
    """The module of that name, or in that file.

    Raises:
        CommandError: It cannot be imported.
    """
    if not name:
        raise CommandError("say which module, as in `opsdk crd myoperator.api` and `opsdk graph myoperator:Reconciler`")
    try:
        return _from_file(Path(name)) if name.endswith(".py") else _from_path(name)
    except CommandError:
        raise
    except OpsdkError as error:
        raise CommandError(f"{name} cannot be imported: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"; did you mean {name.replace('/', '.')}?" if "/" in name else ""
            raise CommandError(
                f"there is no module {error.name!r} here or among what is installed for {sys.executable}{hint}"
            ) from error
        raise CommandError(f"{name} cannot be imported: {told(error)}") from error
    except (Exception, SystemExit) as error:
        raise CommandError(f"{name} cannot be imported: {told(error)}") from error


def _from_path(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # as `python -m` does
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise CommandError(f"there is no file {path}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # as `python FILE` does
        sys.path.insert(0, folder)
    module = importlib.import_module(path.stem)
    if module.__file__ is None or not path.samefile(module.__file__):
        raise CommandError(f"{path} is hidden by another module {path.stem!r}, {module.__file__}; name it as a module")
    return module


def told(error: BaseException) -> str:
    """The error and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def _own_kinds(module: ModuleType, name: str) -> list[type[KubeObject]]:
    kinds = list(_kinds_in(module))
    inside = module.__name__
    own = [kind for kind in kinds if kind.__module__ == inside or kind.__module__.startswith(f"{inside}.")]
    if own:
        return own
    if kinds:
        names = ",".join(sorted(kind.__name__ for kind in kinds))
        raise CommandError(f"{name} defines no custom resource; it imports some: ask for them by name, {name}:{names}")
    raise CommandError(
        f"{name} has no custom resource in it: a subclass of opsdk.CustomResource with group= and version=, or a "
        "struct with lightkube's _api_info"
    )


def _kinds_in(module: ModuleType) -> Iterator[type[KubeObject]]:
    seen: set[object] = set()
    for value in vars(module).values():
        if isinstance(value, type) and value not in seen and _is_kind(value):
            seen.add(value)
            yield cast("type[KubeObject]", value)


def _is_kind(cls: type[Any]) -> bool:
    info: object = getattr(cls, "_api_info", None)
    if not isinstance(info, ApiInfo) or info.action is not None:
        return False
    return issubclass(cls, CustomResource) or (issubclass(cls, msgspec.Struct) and "." in info.resource.group)


def _named(module: ModuleType, name: str, target: str) -> type[KubeObject]:
    value: object = getattr(module, name, None)
    known = sorted(kind.__name__ for kind in _kinds_in(module))
    there = f"; it has {', '.join(known)}" if known else ""
    if value is None:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else there
        raise CommandError(f"{target} has no {name!r}{hint}")
    if not isinstance(value, type) or not _is_kind(value):
        raise CommandError(f"{target}:{name} is no custom resource{there}")
    return cast("type[KubeObject]", value)
