"""A growing answer is decoded piece by piece, and is what a decoder of the whole makes of it."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from composer_web.env import REPOSITORY
from composer_web.gateway.errors import BadRequest, ContextExceeded
from composer_web.gateway.serving import transcripts
from composer_web.gateway.serving.decoding import UNFINISHED, Growing, Stops, decode
from composer_web.gateway.serving.generating import Ask, generate
from trainer.inference.contract import GenerateRequest, GenerateResponse, InferenceRefused
from trainer.policy.rendering.chat import ChatRenderer

TEXT = "First é → ü \U0001f980 I look.\nSTOP 👩‍👩‍👧 naïve 中文 and on. " * 4


@pytest.fixture(scope="module")
def render() -> ChatRenderer:
    return transcripts.renderer(REPOSITORY / "policies" / "base")


def pieces(ids: Sequence[int], seed: int) -> list[list[int]]:
    """Ever longer beginnings of `ids`, in steps of 1 to 9 tokens."""
    draw, ends = random.Random(seed), [0]
    while ends[-1] < len(ids):
        ends.append(min(len(ids), ends[-1] + draw.randint(1, 9)))
    return [list(ids[:end]) for end in ends[1:]]


@pytest.mark.parametrize("seed", range(4))
def test_every_piece_is_the_text_of_the_whole_up_to_there(render: ChatRenderer, seed: int) -> None:
    growing = Growing(render)
    for part in pieces(render.turn((), TEXT), seed):
        assert growing.text(part).rstrip(UNFINISHED) == decode(part, render).rstrip(UNFINISHED)
        assert len(decode(part, render)) - len(growing.settled) < 40, "what is behind is not decoded again"


def brute(ids: Sequence[int], render: ChatRenderer, stops: Sequence[str]) -> int | None:
    return next((n for n in range(1, len(ids) + 1) if any(stop in decode(ids[:n], render) for stop in stops)), None)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "stops", [("STOP",), ("look.\nST", "OP"), ("\U0001f980",), ("中文 and", "zzz"), ("not there",)]
)
def test_an_answer_is_cut_at_the_first_stop_exactly(render: ChatRenderer, seed: int, stops: tuple[str, ...]) -> None:
    ids = render.turn((), TEXT)
    found = Stops(Growing(render), stops)
    cuts = (found.cut(part) for part in pieces(ids, seed))
    assert next((cut for cut in cuts if cut is not None), None) == brute(ids, render, stops)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            InferenceRefused("words of any kind", code="context_exceeded", details={"tokens": 900, "context": 512}),
            ContextExceeded,
        ),
        (InferenceRefused("prompt has 900 tokens, the context holds 512", code="bad_request"), BadRequest),
    ],
)
async def test_an_engine_with_less_context_is_told_by_its_code(
    render: ChatRenderer, error: InferenceRefused, told: type[Exception]
) -> None:
    class Refusing:
        async def generate(self, request: GenerateRequest) -> GenerateResponse:
            raise error

    ask = Ask("d", [1], 4, 1.0, 1.0, (), 0, "s", deadline=time.monotonic() + 5, began=0.0)
    with pytest.raises(told) as refused:
        await anext(generate(Refusing(), ask, render, stream=False))
    assert type(refused.value) is told
    assert told is BadRequest or "maximum context length is 512 tokens" in str(refused.value)


class Counted:
    """The tokenizer of a policy, which counts what it decodes."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.tokens = tokenizer, 0

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        self.tokens += len(ids)
        return str(self.tokenizer.decode(ids, **options))


@pytest.mark.parametrize("noise", [False, True])
def test_a_long_answer_costs_as_much_a_token_as_a_short_one(
    render: ChatRenderer, noise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is no text at all: half of a character, again and again."""
    half = render.tokenizer.encode("\U0001f980", add_special_tokens=False)[:1]
    long = half * 4000 if noise else render.turn((), TEXT * 40)
    counted = Counted(render.tokenizer)
    monkeypatch.setattr(render, "tokenizer", counted)
    stops = Stops(Growing(render), ("not there",))
    for end in range(8, len(long), 8):
        assert stops.cut(long[:end]) is None
    assert counted.tokens < (300 if noise else 16) * len(long)
