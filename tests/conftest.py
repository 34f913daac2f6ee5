"""Every async test runs on both backends, on virtual time; folders that need sockets choose real time themselves."""

from __future__ import annotations

import pytest

from opsdk.testing.virtual_time import BackendOptions, virtual_asyncio_options, virtual_trio_options

_BACKENDS = {"asyncio": virtual_asyncio_options, "trio": virtual_trio_options}


@pytest.fixture(params=sorted(_BACKENDS))
def anyio_backend(request: pytest.FixtureRequest) -> BackendOptions:
    name = str(request.param)
    return _BACKENDS[name]()
