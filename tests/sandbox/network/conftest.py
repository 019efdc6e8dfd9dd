"""A registry with nothing in it, on the loopback; every sandbox test here runs on each backend."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.sandbox.backends.conftest import backend as backend
from tests.sandbox.network.local_registry import LocalRegistry


@pytest.fixture
async def registry() -> AsyncIterator[LocalRegistry]:
    async with LocalRegistry() as made:
        yield made
