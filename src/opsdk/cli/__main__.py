"""`python -m opsdk.cli`, the same as `opsdk`."""

from __future__ import annotations

import sys

from opsdk.cli import main

if __name__ == "__main__":
    sys.exit(main())
