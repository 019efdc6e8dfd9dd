"""A policy that says what the test wrote down, over the real inference contract types."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sandbox.harness.types import ToolCall
from sandbox.tasks.spec import TaskSpec
from trainer.inference.contract import GenerateRequest, GenerateResponse, InferenceError, VersionSpan
from trainer.policy import ChatRenderer

Say = Sequence[ToolCall] | str | list[int] | Exception | None
"""A turn: calls, plain text, raw tokens (cut off, no turn end), a failure of the engine, or None: never answer."""


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id="call_0", name=name, arguments=dict(arguments))


def solution(task: TaskSpec) -> list[Say]:
    """Write the oracle's files and finish."""
    return [*([call("write_file", path=path, content=text)] for path, text in task.gold.items()), [call("finish")]]


class ScriptedClient:
    """Plays `scripts[k % len]` to the k-th session that it meets; log-probabilities are -0.25 a token."""

    def __init__(self, renderer: ChatRenderer, *scripts: Sequence[Say], versions: Sequence[int] = (3,)) -> None:
        self.renderer = renderer
        self.scripts = scripts
        self.versions = versions
        self.requests: list[GenerateRequest] = []
        self._played: dict[str, tuple[int, int]] = {}

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        self.requests.append(request)
        assert request.session is not None
        script, turn = self._played.get(request.session, (len(self._played), 0))
        self._played[request.session] = (script, turn + 1)
        said = self.scripts[script % len(self.scripts)][turn]
        if said is None:
            await asyncio.sleep(request.timeout_seconds)
            raise InferenceError("no answer within the deadline")
        if isinstance(said, Exception):
            raise said
        return self._answer(said, request)

    def _answer(self, said: Say, request: GenerateRequest) -> GenerateResponse:
        if isinstance(said, str):
            tokens, reason = self.renderer.turn([], said), "stop"
        elif isinstance(said, list) and said and isinstance(said[0], int):
            tokens, reason = said[: request.max_tokens], "length"
        else:
            tokens, reason = self.renderer.turn(said), "stop"
        if len(tokens) > request.max_tokens:
            tokens, reason = tokens[: request.max_tokens], "length"
        cut = [round(i * len(tokens) / len(self.versions)) for i in range(len(self.versions) + 1)]
        spans = [
            VersionSpan(version=v, start=a, end=b)
            for v, a, b in zip(self.versions, cut[:-1], cut[1:], strict=True)
            if b > a
        ]
        return GenerateResponse.model_validate(
            {"token_ids": tokens, "logprobs": [-0.25] * len(tokens), "spans": spans, "finish_reason": reason}
        )
