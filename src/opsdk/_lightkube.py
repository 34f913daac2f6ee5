"""lightkube's models without its clients, until somebody asks for those.

`import lightkube.models.core_v1` runs `lightkube/__init__.py`, which imports both clients and with them httpx2: a
quarter of an operator's start and 7 MB, for something that opsdk has its own of. When opsdk is imported before
lightkube, that file is run when the first of its names is asked for, and not before.

*Guarantees*: `import lightkube`, `from lightkube import Client`, `import *`, `dir()` and submodules do what they always
do, on any thread; the module and its spec are the usual ones. Nothing happens when lightkube was there first.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader, find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from importlib.abc import Loader  # its module loads a dozen others

__all__ = ["load_clients_when_asked"]

_PACKAGE: Final = "lightkube"
_ASKED_FOR_WITHIN: Final = frozenset({"operators"})
"""What lightkube's own modules take from the package while they are loaded: running it then would be a circle."""


def load_clients_when_asked() -> None:
    """From now on; harmless when called twice, or when lightkube is loaded."""
    if _PACKAGE not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


@final
class _Finder:
    """Finds the package once, with the help of all other finders, and leaves."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname != _PACKAGE:
            return None
        with suppress(ValueError):  # somebody else looks at the same time
            sys.meta_path.remove(self)
        spec = find_spec(_PACKAGE)
        # What is loaded later is not to be loaded later still: this module itself may have been imported twice.
        if spec is not None and spec.loader is not None and not isinstance(spec.loader, LazyLoader):
            spec.loader = _Loader(spec.loader)
        return spec


@final
class _Loader(LazyLoader):
    """Loads a package later, and not when submodules are imported, for which the base would."""

    def __init__(self, loader: Loader) -> None:
        super().__init__(loader)
        self._loader = loader

    def exec_module(self, module: ModuleType) -> None:
        """Have the module load itself when it is asked."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        later = _Later(module, self._loader)
        vars(module).update(__getattr__=later.attribute, __dir__=later.names)


@final
class _Later:
    def __init__(self, module: ModuleType, loader: Loader) -> None:
        self._module = module
        self._loader = loader
        self._lock = threading.RLock()
        self._executing = False

    def attribute(self, name: str) -> object:
        """What the package has of that name, once its own code has run; that also loads most submodules."""
        if name.startswith("__") and name != "__all__":
            raise self._missing(name)
        if name in _ASKED_FOR_WITHIN:
            return import_module(f"{_PACKAGE}.{name}")
        self._execute()
        try:
            found: object = vars(self._module)[name]
        except KeyError:
            raise self._missing(name) from None
        return found

    def names(self) -> list[str]:
        """For `dir()`."""
        self._execute()
        return sorted(vars(self._module))

    def _execute(self) -> None:
        with self._lock:
            members = vars(self._module)
            if self._executing or "__getattr__" not in members:
                return
            self._executing = True
            try:
                assigned = {name: value for name, value in members.items() if not name.startswith("__")}
                self._loader.exec_module(self._module)
                members.update(assigned)  # what the program has put there stays
                del members["__getattr__"], members["__dir__"]
            finally:
                self._executing = False

    def _missing(self, name: str) -> AttributeError:
        return AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}", name=name, obj=self._module)
