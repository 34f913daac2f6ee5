"""The command `opsdk`.

`opsdk crd` writes, checks and installs CustomResourceDefinitions; `opsdk --help` and `opsdk crd --help` say how.

Exit codes: 0, done and nothing differs; 1, something differs or the cluster refused it; 2, it could not be tried
(usage, modules, models, files, configuration).
"""

from opsdk.cli._main import main

__all__ = ["main"]
