"""What a server process loads before its first request."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from composer_web.asgi import application
from composer_web.env import REPOSITORY
from composer_web.gateway.serving import routing, startup, transcripts
from composer_web.policies.promotion import services as promotion
from composer_web.policies.services import import_base

pytestmark = pytest.mark.django_db(transaction=True)
COMPLETE = ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.fixture
def promoted(tmp_path: Path) -> Path:
    """The promoted policy's folder, which no other test has loaded."""
    made = tmp_path / "policy"
    shutil.copytree(REPOSITORY / "policies" / "base", made)
    import_base(path=made, name="fresh", toy=True)
    promotion.promote(reference="fresh@0")
    return made


async def started() -> list[str]:
    """What the application says from a server's start to its end."""
    said: list[str] = []
    came = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(came)

    async def send(message: Any) -> None:
        said.append(message["type"])

    await application({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
    return said


async def test_a_start_loads_the_promoted_tokenizer(promoted: Path) -> None:
    assert transcripts.at_hand(promoted) is None
    assert await started() == COMPLETE
    assert transcripts.at_hand(promoted) is not None
    assert promoted in routing.policy_folders.values(), "the first request asks for no folder either"


async def test_a_start_without_a_promotion_loads_nothing() -> None:
    assert await started() == COMPLETE
    assert await startup.prepare() == []


async def test_a_policy_that_cannot_be_read_stops_no_start(promoted: Path, caplog: pytest.LogCaptureFixture) -> None:
    (promoted / "tokenizer.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert await started() == COMPLETE
    assert "is not loaded yet" in caplog.text and "tokenizer" in caplog.text
    await sync_to_async(shutil.rmtree)(promoted)
    assert await started() == COMPLETE


async def test_a_start_has_a_deadline(promoted: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert await startup.prepare(seconds=0.0) == []
    assert "it took too long" in caplog.text
