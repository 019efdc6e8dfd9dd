"""Long requests: bounded before they are read, prepared off the event loop, one of a token at a time."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import openai
import pytest
from pydantic import ValidationError

from composer_web.core import inference
from composer_web.gateway.errors import BadRequest, RateLimited, Unavailable
from composer_web.gateway.serving import transcripts
from composer_web.gateway.serving.openai_types import MAX_BODY, MAX_VALUES, parse
from composer_web.gateway.serving.pipeline import Here
from composer_web.gateway.serving.preparation import Preparation
from tests.web.gateway.test_gateway import BASE, Gateway, gateway, promoted

__all__ = ["gateway", "promoted"]  # fixtures
ASK: dict[str, Any] = {"model": "production", "messages": [{"role": "user", "content": "hello"}]}


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0)


class Gate:
    """Work that waits in its thread until it is let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.open = threading.Event()

    def work(self, name: str) -> str:
        self.begun.append(name)
        assert self.open.wait(10)
        return name


async def test_each_token_has_one_request_in_the_queue() -> None:
    gate, queue = Gate(), Preparation()
    ours = [asyncio.create_task(queue.run(1, lambda n=n: gate.work(f"a{n}"), seconds=10)) for n in range(3)]
    await until(lambda: gate.begun)
    other = asyncio.create_task(queue.run(2, lambda: gate.work("b"), seconds=10))
    await asyncio.sleep(0)
    gate.open.set()
    assert await asyncio.gather(*ours, other) == ["a0", "a1", "a2", "b"]
    assert gate.begun.index("b") < gate.begun.index("a2"), "the other token did not wait for all of the first one's"


async def test_more_than_may_wait_are_refused_and_a_late_one_is_told_so() -> None:
    gate, queue = Gate(), Preparation(max_waiting=1)
    first = asyncio.create_task(queue.run(1, lambda: gate.work("a"), seconds=10))
    await until(lambda: gate.begun)
    with pytest.raises(Unavailable, match="not prepared within"):
        await queue.run(1, lambda: gate.work("late"), seconds=0.01)
    waiting = asyncio.create_task(queue.run(1, lambda: gate.work("b"), seconds=10))
    await asyncio.sleep(0)
    with pytest.raises(RateLimited, match="1 long requests of this token are waiting"):
        await queue.run(1, lambda: gate.work("c"), seconds=10)
    gate.open.set()
    assert await asyncio.gather(first, waiting) == ["a", "b"] and gate.begun == ["a", "b"]
    assert await queue.run(1, lambda: "again", seconds=10) == "again"


async def test_a_client_that_leaves_keeps_its_place_until_its_work_ends() -> None:
    gate, queue = Gate(), Preparation()
    left = asyncio.create_task(queue.run(1, lambda: gate.work("left"), seconds=10))
    await until(lambda: gate.begun)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    after = asyncio.create_task(queue.run(1, lambda: gate.work("after"), seconds=10))
    await asyncio.sleep(0)
    assert gate.begun == ["left"]
    gate.open.set()
    assert await after == "after"


async def test_what_the_work_raises_is_raised_and_the_line_moves_on() -> None:
    def fails() -> None:
        raise BadRequest("no")

    queue = Preparation()
    with pytest.raises(BadRequest, match="no"):
        await queue.run(1, fails, seconds=10)
    assert await queue.run(1, lambda: 1, seconds=10) == 1


@pytest.mark.parametrize(
    "extra",
    [
        {"zz": [[]] * (MAX_VALUES + 1)},
        {"zz": [0] * (MAX_VALUES + 1)},
        {"zz": ["[,"] * (MAX_VALUES + 1), "last": '"' * 700_000},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * (MAX_VALUES // 2)}]},
    ],
)
def test_the_number_of_values_is_bounded_before_they_are_read(extra: dict[str, Any]) -> None:
    body = json.dumps({**ASK, **extra}).encode()
    assert len(body) < MAX_BODY
    with pytest.raises(BadRequest, match=f"JSON values; at most {MAX_VALUES}"):
        parse(body)


def test_only_the_first_invalid_message_is_told() -> None:
    """The errors of 10,000 messages kept every other thread from the interpreter for a quarter of a second."""
    body = {**ASK, "messages": [{"role": "x", "content": {}}] * 9_999}
    with pytest.raises(BadRequest, match=r"^messages\.0\.role: ") as refused:
        parse(json.dumps(body).encode())
    cause = refused.value.__cause__
    assert isinstance(cause, ValidationError)
    assert {error["loc"][:2] for error in cause.errors()} == {("messages", 0)}


@pytest.mark.parametrize("text", ["[{,}]" * 100_000, '"\\",[' * 100_000, "\\" * 100_000 + ",[" * 40_000])
def test_what_strings_hold_is_not_counted(text: str) -> None:
    request = parse(json.dumps({**ASK, "messages": [{"role": "user", "content": text}]}).encode())
    assert request.messages[0].text == text


def test_other_threads_may_run_between_the_messages_of_a_long_body() -> None:
    """Parser and validation are C, and Python hands the interpreter over only where it runs code of its own."""
    count, entered = 5_000, 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal entered
        entered += event == "call"

    body = json.dumps({**ASK, "messages": [{"role": "user", "content": "x" * 100}] * count}).encode()
    sys.setprofile(note)
    try:
        request = parse(body)
    finally:
        sys.setprofile(None)
    assert len(request.messages) == count and entered >= 2 * count


def test_half_of_a_surrogate_pair_becomes_a_replacement_character() -> None:
    request = parse(
        json.dumps({**ASK, "user": "\ud800x", "messages": [{"role": "user", "content": "a\udc00\U0001f600"}]}).encode()
    )
    assert request.user == "\ufffdx" and request.messages[0].text == "a\ufffd\U0001f600"
    request = parse(json.dumps({**ASK, "user": "\\ud800 \n \\\ud800"}).encode())
    assert request.user == "\\ud800 \n \\\ufffd", "an escaped backslash begins no escape"
    with pytest.raises(BadRequest, match="not JSON"):
        parse(b'{"model": "production", "user": "\xed\xa0\x80"}')


def test_values_in_arguments_of_calls_are_counted_before_they_are_read() -> None:
    """A string to the parser of the body, and JSON to the renderer: 4 MB of `{}` took it 20 seconds."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "[" + "{}," * MAX_VALUES + "1]"}}
    body = {**ASK, "messages": [{"role": "assistant", "content": None, "tool_calls": [call]}, *ASK["messages"]]}
    with pytest.raises(BadRequest, match=f"arguments of tool calls hold .* JSON values; at most {MAX_VALUES}"):
        parse(json.dumps(body).encode())


async def test_requests_of_one_event_loop_share_their_state(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(inference, "client", lambda: made.append(1))
    first = Here.of_this_loop()
    assert Here.of_this_loop() is first and len(made) == 1


def test_a_loaded_tokenizer_is_left_out_of_garbage_collections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full collection over its libraries stopped every page for 0.2 s."""
    monkeypatch.setattr(transcripts, "_renderers", {})  # as in a new process
    gc.collect()  # what earlier tests left is not counted as the tokenizer's
    before = gc.get_freeze_count()
    render = transcripts.renderer(Path(shutil.copytree(BASE, tmp_path / "policy")))
    assert gc.get_freeze_count() > before and not any(thing is render for thing in gc.get_objects())


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(300)
def test_a_prompt_longer_than_the_context_is_refused_in_the_words_that_clients_look_for(promoted: Gateway) -> None:
    client = promoted.client()
    for text in ("word " * (MAX_BODY // 6), "x" * (MAX_BODY - 1000), "word " * 1500):
        with pytest.raises(
            openai.BadRequestError, match="This model's maximum context length is 1024 tokens"
        ) as refused:
            client.chat.completions.create(model="production", messages=[{"role": "user", "content": text}])
        assert refused.value.code == "context_length_exceeded" and refused.value.param == "messages"
