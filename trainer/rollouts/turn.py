"""One turn of the policy: the engine continues the episode's tokens, across weight swaps."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sandbox.grading.verdict.outcomes import Cause
from trainer.config import SamplingConfig
from trainer.inference.contract import GenerateRequest, GenerateResponse, InferenceClient, LengthLimit
from trainer.rollouts.limits import ANSWER_SECONDS, EpisodeLimits
from trainer.rollouts.record import Record

CONTINUATIONS = 8
"""Maximum continuations of one interrupted turn before the episode is lost."""


class EpisodeLost(Exception):
    """Infrastructure failure under an episode; the episode says nothing about the policy."""

    def __init__(self, outcome: Cause, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Sampler:
    """Requests continuations of the record's tokens and records the answers."""

    record: Record
    limits: EpisodeLimits
    session_id: str
    sampling: SamplingConfig
    client: InferenceClient
    deployment: str
    stop_ids: tuple[int, ...]
    min_version: int = 0
    """Minimum version of every token; the sampler waits for engines that lag."""

    async def __call__(self, max_tokens: int, seed: int) -> tuple[GenerateResponse, float]:
        """Sample a turn; return it with the seconds waited. Raises InferenceError, EpisodeLost, TimeSpent.

        An engine may interrupt a request for new weights and return a partial answer. Its tokens are kept, each with
        the version that sampled it, and the turn continues from there.
        """
        began = time.monotonic()
        parts: list[GenerateResponse] = []
        while not parts or parts[-1].finish_reason == "abort":
            left = max_tokens - sum(len(part.token_ids) for part in parts)
            if left == 0:
                parts[-1] = parts[-1].model_copy(update={"finish_reason": "length"})
                break
            if parts and self.limits.written_away:  # the rest of its turn has no time left
                parts[-1] = parts[-1].model_copy(update={"finish_reason": "length"})
                break
            if len(parts) > CONTINUATIONS:
                raise EpisodeLost(Cause.ENGINE_FAILED, f"the engine aborted one turn {len(parts)} times")
            before = self.limits.machine.used
            async with self.limits.machine.spending():
                parts.append(await self._ask(left, seed + 7919 * len(parts)))
            if parts[-1].token_ids:
                self.limits.answered += self.limits.machine.used - before
            self.record.wrote(parts[-1])
            if parts[-1].length_limit is LengthLimit.ENGINE_CONTEXT:
                raise EpisodeLost(
                    Cause.ENGINE_CONTEXT,
                    f"the engine's context ended at {len(self.record.tokens)} tokens, and max_context_tokens is "
                    f"{self.sampling.max_context_tokens}: give the engine a longer context, or the run a shorter one",
                )
        seconds = time.monotonic() - began
        self.record.spend("generate", seconds)
        token_ids = [token for part in parts for token in part.token_ids]
        if parts[-1].finish_reason == "length" and len(token_ids) < max_tokens and not self.limits.written_away:
            raise EpisodeLost(
                Cause.ENGINE_CONTEXT,
                f"the engine ended a turn after {len(token_ids)} of {max_tokens} tokens, with {len(self.record.tokens)} in the "
                "context: its context is shorter than the run's; raise it, or lower sampling.max_context_tokens",
            )
        return parts[-1].model_copy(update={"token_ids": token_ids}), seconds

    async def _ask(self, max_tokens: int, seed: int) -> GenerateResponse:
        left_seconds = max(0.1, self.limits.machine.left())
        return await self.client.generate(
            GenerateRequest(
                deployment=self.deployment,
                prompt_ids=self.record.tokens,
                max_tokens=max_tokens,
                temperature=self.sampling.temperature,
                top_k=self.sampling.top_k,
                top_p=self.sampling.top_p,
                experts_from=self.record.choices.experts_known if self.sampling.enable_router_replay else None,
                stop_ids=list(self.stop_ids),
                seed=seed % (1 << 31),
                session=self.session_id,
                min_version=self.min_version,
                timeout_seconds=max(left_seconds / 2, left_seconds - ANSWER_SECONDS),
                partial=True,
            )
        )
