"""The engine thread between two steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trainer.inference.embedded.runner import Limits, Runner
from trainer.inference.embedded.serving.thread import EngineThread

SECONDS = 20.0


class Steps(Runner):
    """Notes when it is asked for a step; it has no weights yet, and so nothing to do."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__(Limits())
        self.seen = seen

    def step(self) -> int:
        self.seen.append("step")
        return super().step()


@pytest.fixture
def thread() -> Iterator[EngineThread]:
    made = EngineThread()
    yield made
    made.stop()


def test_what_ends_a_pause_comes_after_all_work_and_before_the_next_step(thread: EngineThread) -> None:
    seen: list[str] = []
    thread.runners["x"] = Steps(seen)
    swap = thread.call(lambda: seen.append("swap"), then=lambda: seen.append("goes on"))
    other = thread.call(lambda: seen.append("other"))
    thread.start()
    swap.result(SECONDS)
    other.result(SECONDS)
    assert seen[:3] == ["swap", "other", "goes on"] and "step" not in seen[:3]


def test_work_that_fails_is_told_and_nothing_went_on_by_it(thread: EngineThread) -> None:
    seen: list[str] = []
    failed = thread.call(lambda: 1 // 0, then=lambda: seen.append("goes on"))
    thread.start()
    assert isinstance(failed.exception(SECONDS), ZeroDivisionError)
    thread.call(lambda: None).result(SECONDS)
    assert seen == []


def test_work_that_nobody_waits_for_any_more_harms_nobody_else(thread: EngineThread) -> None:
    seen: list[str] = []
    gone = thread.call(lambda: seen.append("gone"))
    assert gone.cancel()
    thread.start()
    assert thread.call(lambda: "there").result(SECONDS) == "there"
    assert seen == [] and thread.alive
