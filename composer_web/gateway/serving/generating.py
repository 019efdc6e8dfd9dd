"""Generation of one response: tokens from the engine in growing pieces, and the text that can be shown so far.

The inference contract has no streaming. A stream consists of several requests that continue each other in one engine
session. The session's KV cache is kept, so each request costs one prompt token. The first asks for a single token.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from composer_web.gateway.errors import BadRequest, ContextExceeded, Unavailable
from composer_web.gateway.serving.decoding import UNFINISHED, Growing, Stops, decode
from sandbox.harness.types import ToolCall
from trainer.inference.contract import GenerateRequest, InferenceClient, InferenceError, InferenceRefused
from trainer.inference.errors import ContextExceeded as EngineContext
from trainer.inference.errors import UnknownDeployment
from trainer.routed_experts import RoutedExperts

if TYPE_CHECKING:
    from trainer.policy.rendering.chat import ChatRenderer

PIECES = (1, 4, 8, 16)
"""Token counts of the pieces of a stream. The last size repeats."""
MAX_ABORTS = 8
THINK, THINK_END = "<think>", "</think>"


@dataclass(slots=True)
class Written:
    """Tokens sampled so far. `versions` are versions of the policy, not of the deployment."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    reused: int = 0
    finish: str = ""
    first_token: float | None = None
    """Seconds since the request arrived."""
    engine: float = 0.0
    """Engine seconds so far, by the engine's clock."""
    experts: list[RoutedExperts] = field(default_factory=list)
    """Routed experts in order of arrival; each part starts where the one before stops."""


@dataclass(frozen=True, slots=True)
class Ask:
    deployment: str
    prompt: Sequence[int]
    most_tokens: int
    temperature: float
    top_p: float
    stops: tuple[str, ...]
    seed: int | None
    session: str
    deadline: float
    """Monotonic clock."""
    began: float
    experts_from: int | None = None
    """Answer with the routed experts of positions from this one on, where the policy has any."""


async def generate(client: InferenceClient, ask: Ask, render: ChatRenderer, *, stream: bool) -> AsyncIterator[Written]:
    """Yield the tokens so far after each piece. Raises BadRequest, Unavailable, NotDeployed."""
    written, piece, aborts = Written(), 0, 0
    stops = Stops(Growing(render), ask.stops)
    seed = ask.seed if ask.seed is not None else random.randrange(1 << 31)
    while not written.finish:
        left = ask.most_tokens - len(written.token_ids)
        size = min(left, PIECES[min(piece, len(PIECES) - 1)]) if stream or ask.stops else left
        request = GenerateRequest(
            deployment=ask.deployment,
            prompt_ids=[*ask.prompt, *written.token_ids],
            max_tokens=size,
            temperature=ask.temperature,
            top_p=ask.top_p if ask.temperature > 0 else 1.0,
            stop_ids=render.stop_ids,
            seed=(seed + 7919 * piece) % (1 << 31),
            session=ask.session,
            timeout_seconds=max(0.05, ask.deadline - time.monotonic()),
            experts_from=written.experts[-1].stop if written.experts else ask.experts_from,
        )
        answer = await ask_engine(client, request)
        piece += 1
        if written.first_token is None:
            written.first_token = time.monotonic() - ask.began
            written.reused = answer.reused_tokens
        written.engine += answer.seconds
        written.token_ids += answer.token_ids
        written.logprobs += answer.logprobs
        if answer.experts is not None:
            written.experts.append(answer.experts)
        if answer.finish_reason == "stop":
            written.finish = "stop"
        elif answer.finish_reason == "abort":
            aborts += 1
            if aborts > MAX_ABORTS:
                raise Unavailable(f"the engine stopped the answer {aborts} times; try again in a moment")
        elif len(answer.token_ids) < size or len(written.token_ids) >= ask.most_tokens:
            written.finish = "length"
        if ask.stops and (cut := stops.cut(written.token_ids)) is not None:
            del written.token_ids[cut:], written.logprobs[cut:]
            written.finish = "stop"
        yield written


class NotDeployed(Exception):
    """The server has lost the deployment. Deploy it and retry."""


async def ask_engine(client: InferenceClient, request: GenerateRequest):  # type: ignore[no-untyped-def]
    try:
        async with asyncio.timeout(request.timeout_seconds + 5.0):
            return await client.generate(request)
    except InferenceRefused as error:
        if error.code == UnknownDeployment.code:
            raise NotDeployed(str(error)) from error
        if error.code == EngineContext.code:
            raise ContextExceeded(context=error.details["context"], tokens=error.details["tokens"]) from error
        raise BadRequest(f"the inference engine refuses the request: {error}") from error
    except (InferenceError, TimeoutError) as error:
        raise Unavailable(f"the inference engine gives no answer: {error or 'its time has passed'}") from error


@dataclass(frozen=True, slots=True)
class Shown:
    reasoning: str
    text: str


@dataclass(slots=True)
class Reader:
    """Parses one growing response. The text shown for a part is always a prefix of the text shown for the whole."""

    render: ChatRenderer
    tools: bool
    """Whether the policy was offered tools. Without them, a call is plain text."""
    thinking: bool
    """Whether the prompt has opened a thinking block."""
    stops: tuple[str, ...] = ()
    offered: Sequence[Mapping[str, Any]] = ()
    """Schemas of the tools."""
    prompt: Sequence[int] = ()
    """The end of the prompt."""
    _growing: Growing = field(init=False)

    def __post_init__(self) -> None:
        self._growing = Growing(self.render)

    def partial(self, token_ids: Sequence[int]) -> Shown:
        """For ever more tokens of the response."""
        if not self.render.streams and self.render.call_marks:
            return Shown("", "")  # what is said stands among the marks: it is shown when it is parsed
        text = _held(_before(self._growing.text(token_ids).rstrip(UNFINISHED), self.stops), self.stops)
        reasoning, said, open_ = self._split(text)
        if open_ or (not said and THINK.startswith(text.lstrip()) and self.render.thinks):
            return Shown(_held(reasoning, (THINK_END,)).rstrip("\n"), "")
        if self.tools:
            said = self._before_calls(said, final=False)
        return Shown(reasoning, said.rstrip())

    def final(self, written: Written, *, prefix: str) -> tuple[Shown, tuple[ToolCall, ...], str | None]:
        """Final result: shown text, calls with ids that begin with `prefix`, and the reason if a call does not
        parse."""
        parsed = self.render.parse(written.token_ids, tools=self.offered, prompt=self.prompt)
        if not self.render.streams and self.render.call_marks:
            calls = _numbered(parsed.calls, prefix) if self.tools else ()
            return Shown(parsed.reasoning, parsed.content), calls, parsed.error if self.tools else None
        reasoning, said, open_ = self._split(_before(decode(written.token_ids, self.render), self.stops))
        if open_:
            return Shown(reasoning, ""), (), None
        if not self.tools:
            return Shown(reasoning, said), (), None
        if parsed.error:
            return Shown(reasoning, said), (), parsed.error
        calls = _numbered(parsed.calls, prefix)
        return Shown(reasoning, self._before_calls(said, final=True).rstrip() if calls else said), calls, None

    def _split(self, text: str) -> tuple[str, str, bool]:
        """(thinking, text after it, whether the thinking block is still open)."""
        if not self.render.thinks:
            return "", text, False
        begun = text.lstrip()
        if not (self.thinking or begun.startswith(THINK)):
            return "", text, False
        thought, ended, said = begun.removeprefix(THINK).partition(THINK_END)
        return thought.strip("\n"), said.lstrip("\n"), not ended

    def _before_calls(self, said: str, *, final: bool) -> str:
        marks = self.render.call_marks
        if not marks:  # bare calls: the whole turn is calls or it is none
            return "" if said.lstrip().startswith("{") or not said.strip() else said
        before = _before(said, marks)
        return before if before != said or final else _held(said, marks)


def _numbered(calls: Sequence[ToolCall], prefix: str) -> tuple[ToolCall, ...]:
    """Calls with ids that begin with `prefix`; an id in the model's own form is kept, because its template shows it."""
    return tuple(
        call if call.id.startswith("functions.") else call.model_copy(update={"id": f"{prefix}_{place}"})
        for place, call in enumerate(calls)
    )


def _before(text: str, stops: Sequence[str]) -> str:
    """`text` before the first occurrence of any of `stops`."""
    return text[: min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))]


def _held(text: str, marks: Sequence[str]) -> str:
    """`text` without a suffix that could become one of `marks`."""
    keep = len(text)
    for mark in marks:
        for size in range(min(len(mark), len(text)), 0, -1):
            if text.endswith(mark[:size]):
                keep = min(keep, len(text) - size)
                break
    return text[:keep]
