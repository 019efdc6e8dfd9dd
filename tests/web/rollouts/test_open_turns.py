"""Unfinished turns: read from the engine while somebody watches, told to the page, and of no matter to the rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
import redis

from composer_web.live import hints
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch.services import pump
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.trajectory import partial_turns, trajectory_store
from composer_web.rollouts.worker import live_turns, open_turns
from composer_web.rollouts.worker.live_turns import Onlookers
from composer_web.rollouts.worker.open_turns import OpenTurns
from sandbox.harness.types import ToolCall
from tests.browser import seed
from tests.web import seeded
from tests.web.seeded import client
from trainer.inference.contract import InferenceError, InferenceRefused
from trainer.rollouts.open_turn import OpenTurn
from trainer.types import Turn

world = seeded.world
GROUP = 7_000_001
PLACE = (GROUP, 2)


@dataclass
class Read:
    text: str
    calls: tuple[ToolCall, ...]
    thinking_tokens: int = 0


def parse(token_ids: Sequence[int]) -> Read:
    """A token is a character; each line that is whole is a call, and half a line makes none of them readable."""
    text = "".join(map(chr, token_ids))
    *lines, rest = text.split("\n")
    return Read(text, () if rest else tuple(ToolCall(id=str(i), name=line) for i, line in enumerate(lines)))


@dataclass
class Engine:
    """Tells `running`, or fails."""

    running: str = ""
    error: InferenceError | None = None
    asked: list[str] = field(default_factory=list)

    async def partial(self, deployment: str, session: str, *, timeout: float) -> list[int]:
        assert deployment == "policy" and timeout <= 1.0
        self.asked.append(session)
        if self.error is not None:
            raise self.error
        return list(map(ord, self.running))


def opened(*, answered: str = "", index: int = 4, sample: int = 2) -> OpenTurn:
    return OpenTurn(
        sample=sample,
        deployment="policy",
        session="s",
        index=index,
        segment=1,
        window=[1, 2, 3, *map(ord, answered)],
        start=3,
        parse=parse,
    )


async def nothing(sample: int) -> None:
    """The page lacks no whole turn."""


def shown() -> partial_turns.PartialTurn:
    found = partial_turns.get(PLACE)
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def forgotten() -> None:
    partial_turns._valkey().delete(*(partial_turns._key(kind, PLACE) for kind in ("watched", "turn")))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Topics of which pages were told."""
    topics: list[str] = []
    monkeypatch.setattr(open_turns, "publish", lambda *names: topics.extend(names))
    return topics


async def test_a_turn_grows_while_it_is_watched_and_costs_nothing_while_it_is_not(told: list[str]) -> None:
    engine = Engine("gre")
    turns, turn = OpenTurns(engine), opened()
    turns.opened(GROUP, turn, nothing)
    await turns.look()
    assert (engine.asked, told, partial_turns.get(PLACE)) == ([], [], None), "nobody looks"
    partial_turns.watch(PLACE)
    await turns.look()
    assert (engine.asked, told) == (["s"], [f"tokens:{GROUP}"])
    first = shown()
    assert (first.turn.text, first.turn.index, first.turn.segment, first.turn.token_end) == ("gre", 4, 1, 6)
    await turns.look()
    assert len(told) == 1, "nothing new"
    engine.running = "grep\n"
    await turns.look()
    engine.running = "grep\nls\N{REPLACEMENT CHARACTER}"
    await turns.look()
    assert (shown().turn.text, shown().name) == ("grep\nls", first.name), "half a character waits for its other half"
    assert [call.name for call in shown().turn.calls] == ["grep"], "the next call has begun, and this one stands"
    engine.running = "gr"  # the answer is on its way
    await turns.look()
    assert shown().turn.text == "grep\nls" and len(told) == 3
    cast(list[int], turn.window).extend(map(ord, "grep\nls\n"))
    turn.sampled = True
    await turns.look()
    assert shown().sampled and [call.name for call in shown().turn.calls] == ["grep", "ls"]
    assert len(engine.asked) == 5, "the answer is here: the engine is not asked"
    turns.closed(GROUP, 2)
    await turns.look()
    assert len(told) == 4


async def test_a_turn_that_begins_again_has_another_name(told: list[str]) -> None:
    engine = Engine("one way")
    turns = OpenTurns(engine)
    turns.opened(GROUP, opened(), nothing)
    partial_turns.watch(PLACE)
    await turns.look()
    before = shown().name
    engine.running = "other"
    await turns.look()
    assert shown().turn.text == "other" and shown().name != before
    again = shown().name
    await asyncio.sleep(0.002)  # names are of milliseconds
    turns.opened(GROUP, opened(), nothing)  # the episode was lost and played again
    await turns.look()
    assert shown().turn.text == "other" and shown().name not in (before, again)


async def test_a_continued_turn_is_shown_from_its_beginning(told: list[str]) -> None:
    turns = OpenTurns(Engine(" and more"))
    turns.opened(GROUP, opened(answered="a part"), nothing)
    partial_turns.watch(PLACE)
    await turns.look()
    assert shown().turn.text == "a part and more"


async def test_an_engine_that_fails_or_cannot_tell_costs_the_view_alone(told: list[str]) -> None:
    engine = Engine(error=InferenceError("no answer"))
    turns, turn = OpenTurns(engine), opened()
    turns.opened(GROUP, turn, nothing)
    partial_turns.watch(PLACE)
    await turns.look()
    engine.error = InferenceRefused("not found")
    await turns.look()
    await turns.look()
    assert len(engine.asked) == 2 and partial_turns.get(PLACE) is None, "not asked again for a while"
    cast(list[int], turn.window).extend(map(ord, "ls\n"))
    turn.sampled = True
    await turns.look()
    assert shown().turn.text == "ls\n", "known without the engine while its tools run"


async def test_a_defect_in_one_turn_leaves_the_others(told: list[str], caplog: pytest.LogCaptureFixture) -> None:
    turns, broken = OpenTurns(Engine("text")), opened(sample=3)

    async def fails(sample: int) -> None:
        raise ValueError("no")

    turns.opened(GROUP, broken, fails)
    turns.opened(GROUP, opened(), nothing)
    for sample in (2, 3):
        partial_turns.watch((GROUP, sample))
    await turns.look()
    assert shown().turn.text == "text" and f"group {GROUP}, sample 3" in caplog.text


async def test_without_valkey_nobody_watches(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    nowhere = redis.Redis.from_url("redis://127.0.0.1:1", socket_connect_timeout=0.5, retry=None)
    monkeypatch.setattr(partial_turns, "_valkey", lambda: nowhere)
    engine = Engine("text")
    turns = OpenTurns(engine)
    turns.opened(GROUP, opened(), nothing)
    partial_turns.watch(PLACE)
    await turns.look()
    assert engine.asked == [] and partial_turns.get(PLACE) is None


def test_what_is_kept_is_bounded_and_stays_as_it_is_while_it_grows() -> None:
    turn = Turn(index=0, text="x" * 300_000, token_start=0, token_end=1)
    kept, cut = partial_turns.bounded(turn)
    assert cut and kept.text == "x" * partial_turns.MAX_TEXT
    calls = tuple(ToolCall(id=str(i), name="write_file", arguments={"text": "y" * 90_000}) for i in range(20))
    partial_turns.put(PLACE, partial_turns.PartialTurn(turn=kept.model_copy(update={"calls": calls})))
    assert shown().turn.calls == () and shown().turn.text == kept.text
    for key in ("watched", "turn"):
        partial_turns.watch(PLACE)
        assert 0 < cast(int, partial_turns._valkey().ttl(partial_turns._key(key, PLACE))) <= 20


async def test_a_page_that_is_open_gets_the_turns_that_came_too_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(live_turns, "publish", said.append)
    turns = OpenTurns(Engine("text"))
    onlookers = Onlookers(GROUP, turns)
    made = [Turn(index=i, text=f"turn {i}", token_start=i, token_end=i + 1) for i in range(3)]
    running = Rollout(group_id=GROUP, sample=2, state="running")
    for count in (1, 2):
        await onlookers(2, ({"role": "user", "content": "go"},), made[:count])
    assert trajectory_store.of(running).total == 1 and len(said) == 1
    onlookers.opened(opened(index=2))
    await turns.look()
    assert trajectory_store.of(running).total == 1, "nobody looks"
    partial_turns.watch(PLACE)
    await turns.look()
    assert trajectory_store.of(running).total == 2 and len(said) == 2
    onlookers.closed(2)


@pytest.fixture
def running(world: seed.World) -> Rollout:
    pump(run_id=world.run.pk)
    return Rollout.objects.filter(group__run=world.run, verdict="").earliest("pk")


@pytest.mark.django_db
def test_the_page_asks_for_the_rest_of_a_turn(world: seed.World, running: Rollout) -> None:
    place, viewer = (running.group_id, running.sample), client(world)
    url = f"/rollouts/{running.pk}/partial/"
    assert viewer.get(url).status_code == 204
    assert partial_turns.watched([place, (GROUP, 9)]) == [place]
    call = ToolCall(id="1", name="grep", arguments={"pattern": "<b>"})
    turn = Turn(index=5, text="<i>\N{PILE OF POO} so", calls=(call,), token_start=10, token_end=14)
    partial_turns.put(place, partial_turns.PartialTurn(turn=turn, revision=8))
    html = viewer.get(url).content.decode()
    for words in (
        "Turn 6",
        "4 tokens",
        "sampling",
        "&lt;i&gt;\N{PILE OF POO} so",
        "grep",
        'data-open="5.8"',
        'data-end="7"',
    ):
        assert words in html, words
    assert "<i>\N{PILE OF POO}" not in html and "<b>" not in html
    rest = viewer.get(url, {"of": "5.8", "from": "4"}).content.decode()
    assert 'data-from="4"> so<' in rest
    for other in ({"of": "5.7", "from": "4"}, {"of": "5.8", "from": "99"}, {"of": "5.8", "from": "x"}):
        assert 'data-from="0">&lt;i' in viewer.get(url, other).content.decode()
    partial_turns.put(place, partial_turns.PartialTurn(turn=turn, revision=8, sampled=True))
    assert "tools run" in viewer.get(url).content.decode()


@pytest.mark.django_db
def test_a_recorded_rollout_has_no_unfinished_turn(world: seed.World) -> None:
    rollout = Rollout.objects.exclude(artifact_key="").filter(group__run=world.run).latest("pk")
    assert selectors.trajectory(rollout).turns
    assert client(world).get(f"/rollouts/{rollout.pk}/partial/").status_code == 204
    assert partial_turns.watched([(rollout.group_id, rollout.sample)]) == []


def test_the_topic_is_one_of_the_live_topics() -> None:
    assert hints.TOPIC.fullmatch(partial_turns.topic(12))
