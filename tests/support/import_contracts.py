"""An import contract that import-linter does not bring: private modules stay within their package."""

from __future__ import annotations

from typing import final

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output
from typing_extensions import override


@final
class PrivateModulesContract(Contract):
    """`a.b._c` may be imported by `a.b` and everything in it, by nobody else."""

    @override
    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        broken = [
            (importer, imported)
            for imported in sorted(graph.modules)
            if (home := _home(imported)) is not None
            for importer in sorted(graph.find_modules_that_directly_import(imported))
            if importer != home and not importer.startswith(f"{home}.")
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    @override
    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["broken"]:
            output.print_error(f"{importer} imports {imported}, which is private to {_home(imported)}")


def _home(module: str) -> str | None:
    """The package of ours that a private module belongs to; None for a public module, and for other people's."""
    parts = module.split(".")
    for index, part in enumerate(parts):
        if index and part.startswith("_") and not part.startswith("__"):
            return ".".join(parts[:index])
    return None
