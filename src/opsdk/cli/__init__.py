"""The command `opsdk`.

`opsdk crd` writes, checks and installs CustomResourceDefinitions; `opsdk release` takes an operator's marks off a
cluster; `opsdk explain` tells why an object is where it is and what a reconcile would do now; `opsdk graph` draws a
state machine. `opsdk --help` and `opsdk crd --help` say how.

Exit codes: 0, done and nothing differs; 1, something differs or the cluster refused it; 2, it could not be tried
(usage, modules, models, files, configuration).
For `explain`, what a reconcile would do is no difference: 1 says that the object is not there, that something could not
be told, or that something tried to write.
"""

from opsdk.cli._main import main

__all__ = ["main"]
