"""A running rollout in a browser: its turn grows token by token, in place, until the whole turn replaces it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Page, expect

from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.dispatch.services import pump
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.worker.live_turns import Onlookers
from composer_web.rollouts.worker.open_turns import OpenTurns
from sandbox.harness.types import ToolCall
from tests.browser.conftest import Product
from tests.browser.episodes import finish_claimed
from tests.browser.pages.test_every_page import AUDIT
from tests.browser.walks.test_trajectory import long
from trainer.rollouts.open_turn import OpenTurn

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]
T = TypeVar("T")

THOUGHT = "<think>\nThe helper adds where it should multiply. I look at its source before I change it.\n</think>\n\n"
CALL = '{"name": "read_file", "arguments": {"path": "helpers/m1.py"}}'


@dataclass
class Read:
    text: str
    calls: tuple[ToolCall, ...] = ()
    thinking_tokens: int = 0


def parse(token_ids: Sequence[int]) -> Read:
    """A token is a character."""
    text = "".join(map(chr, token_ids))
    calls = (ToolCall(id="1", name="read_file", arguments={"path": "helpers/m1.py"}),) if text.endswith(CALL) else ()
    return Read(text, calls, min(len(text), len(THOUGHT)))


@dataclass
class Engine:
    """Samples what the test says, at the test's pace."""

    text: str = ""

    async def partial(self, deployment: str, session: str, *, timeout: float) -> list[int]:
        return list(map(ord, self.text))


@dataclass
class Worker:
    """A rollout worker's loop with the group's onlookers."""

    group: int
    engine: Engine = field(default_factory=Engine)

    def __post_init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.onlookers = Onlookers(self.group, OpenTurns(self.engine))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=30)

    def opens(self, sample: int, index: int) -> OpenTurn:
        self.engine.text = ""
        window: list[int] = []
        turn = OpenTurn(sample, "policy", "s", index, 0, window, 0, parse)

        async def tell() -> None:
            self.onlookers.opened(turn)

        self.do(tell())
        return turn

    def records(self, sample: int, messages: tuple[dict[str, Any], ...], turns: Sequence[Any]) -> None:
        async def tell() -> None:
            await self.onlookers(sample, messages, turns)
            self.onlookers.closed(sample)

        self.do(tell())


@pytest.fixture
def claimed(product: Product) -> tuple[Rollout, Any]:
    pump(run_id=product.world.run.pk)
    rollout = Rollout.objects.filter(group__run=product.world.run, verdict="").earliest("pk")
    claim = services.claim(group_id=rollout.group_id, owner="tests@live/2", seconds=600)
    assert claim is not None
    return rollout, claim


@pytest.fixture
def worker(claimed: tuple[Rollout, Any]) -> Iterator[Worker]:
    made = Worker(claimed[0].group_id)
    yield made
    made.loop.call_soon_threadsafe(made.loop.stop)
    made.thread.join(timeout=10)
    made.loop.close()


def test_a_turn_grows_in_place_until_it_is_whole(
    operator: Page, product: Product, claimed: tuple[Rollout, Any], worker: Worker
) -> None:
    page, (rollout, claim) = operator, claimed
    sample, whole = rollout.sample, selectors.trajectory(long(product))
    text = page.locator("#partial [data-text]")
    worker.opens(sample, 0)
    page.goto(f"{product.url}/rollouts/{rollout.pk}/")
    worker.engine.text = "The first"
    expect(text).to_have_text("The first")  # there is no transcript yet
    expect(page.locator("[data-trajectory]")).to_have_count(0)
    worker.records(sample, whole.messages, whole.turns[:1])
    expect(page.locator("#turns [data-turn]")).to_have_count(1)
    expect(text).to_have_count(0)
    expect(page.locator("[data-trajectory][data-ready]")).to_be_visible()

    turn = worker.opens(sample, 1)
    worker.engine.text = THOUGHT[:40]
    expect(text).to_have_text(THOUGHT[:40].strip())
    expect(page.locator("#partial .badge")).to_have_text("sampling")
    expect(page.locator("#partial h3")).to_have_text("Turn 2")
    expect(page.locator("#partial-says")).to_have_text("Turn 2 is being sampled.")
    page.evaluate("window.before = document.querySelector('#partial [data-text]')")
    worker.engine.text = THOUGHT + "line\n" * 80
    expect(text).to_contain_text("line\nline")
    assert page.evaluate("window.before.isConnected"), "it grew in place"
    expect(page.locator("#partial .end")).to_contain_text("of them thinking")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    worker.engine.text += "more\n" * 60
    expect(text).to_contain_text("more\nmore")
    at_end = "document.querySelector('#partial [data-open]').getBoundingClientRect().bottom <= innerHeight"
    page.wait_for_function(at_end)  # whoever is at the end stays there
    page.evaluate("scrollTo(0, 120)")
    worker.engine.text += "again\n" * 60
    expect(text).to_contain_text("again\nagain")
    assert page.evaluate("scrollY") == 120, "whoever reads elsewhere stays there"
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        assert page.evaluate(AUDIT) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 900})

    answer = THOUGHT + CALL
    turn.window.extend(map(ord, answer))  # type: ignore[attr-defined]
    turn.sampled = True
    expect(page.locator("#partial .badge")).to_have_text("tools run")
    expect(page.locator("#partial .call__name")).to_have_text("read_file")
    worker.records(sample, whole.messages, whole.turns[:2])
    expect(page.locator("#turns [data-turn='1']")).to_be_attached()
    expect(page.locator("#partial [data-open]")).to_have_count(0)
    finish_claimed(claim, draw=random.Random(2))
    expect(page.locator("#report")).to_be_visible()
    expect(page.locator("#partial")).to_have_count(0)
