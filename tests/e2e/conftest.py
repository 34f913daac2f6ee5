"""The examples on the real control plane that `tests/conftest.py` starts."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: there are sockets and other people's processes."""
    return str(request.param)
