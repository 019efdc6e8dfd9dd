"""Work beside a caller: one piece at a time, in order, and nothing that it raises is lost."""

from __future__ import annotations

import logging
from threading import Event, Lock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.weights import StoreUnavailable
from trainer.weights.async_publish import Background

SECONDS = 60.0


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["", "check", "wait", "end"])), max_size=12))
def test_pieces_run_in_order_one_at_a_time_and_each_failure_is_raised_once(pieces: list[tuple[bool, str]]) -> None:
    background, busy = Background("test"), Lock()
    done: list[int] = []
    failed: list[int] = []
    heard: list[int] = []

    def piece(number: int, fails: bool) -> None:
        assert busy.acquire(blocking=False), "two at once"
        done.append(number)
        busy.release()
        if fails:
            failed.append(number)
            raise StoreUnavailable(str(number))

    for number, (fails, asked) in enumerate(pieces):
        while True:
            try:
                background.begin(lambda number=number, fails=fails: piece(number, fails))  # type: ignore[misc]
                break
            except StoreUnavailable as error:
                heard.append(int(str(error)))
        try:
            if asked:
                getattr(background, asked)()
        except StoreUnavailable as error:
            heard.append(int(str(error)))
    try:
        background.wait()
    except StoreUnavailable as error:
        heard.append(int(str(error)))
    background.wait()
    assert done == list(range(len(pieces)))
    assert heard == failed == [number for number, (fails, _) in enumerate(pieces) if fails]


def test_the_next_piece_waits_for_the_last_and_is_not_begun_after_a_failure() -> None:
    background, go = Background("test"), Event()

    def fails() -> None:
        assert go.wait(SECONDS)
        raise StoreUnavailable("the store is full")

    background.begin(fails)
    background.check()  # is not done: nothing to say, and nothing is waited for
    go.set()
    with pytest.raises(StoreUnavailable, match="the store is full"):
        background.begin(lambda: pytest.fail("begun"))
    background.check()
    background.wait()


def test_an_end_waits_no_longer_than_its_patience(caplog: pytest.LogCaptureFixture) -> None:
    background, go, over = Background("publishing"), Event(), Event()

    def hangs() -> None:
        try:
            assert go.wait(SECONDS)
            raise StoreUnavailable("too late")
        finally:
            over.set()

    with caplog.at_level(logging.ERROR):
        background.begin(hangs)
        background.end(patience=0.01)
        assert "publishing is not done after 0.01 s and is left to itself" in caplog.text
        go.set()
        assert over.wait(SECONDS)
        with pytest.raises(StoreUnavailable):  # who asks after all hears it, too
            background.wait()
    assert "publishing, left to itself, ended in: too late" in caplog.text
