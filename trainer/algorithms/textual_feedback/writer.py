"""LLM-written hints: a model reads a whole rollout and names the turns that a short reminder would have corrected.

The writer calls the same endpoint as the auditor's judge, on the same outcome-blind record of untrusted text. A hint is
advice to the same weights on one turn. A wrong hint costs little, and the loss drops a hint that changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from functools import cached_property, lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.grading.audit.judge.client import Cache, Endpoint, Judge, JudgeError
from sandbox.grading.audit.judge.record import record
from sandbox.grading.audit.judge.rubric import Aspect, Rubric
from trainer.algorithms.textual_feedback.find import HINT_CHARS, Hint
from trainer.attempt import attempt_of
from trainer.types import Trajectory

MAX_HINTS = 3
"""Maximum hints per rollout: small local corrections, not a review."""
VERSION = 1


class Advice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    turn: int = Field(ge=0)
    hint: str = Field(min_length=8, max_length=HINT_CHARS)


class AdviceRubric(Rubric):
    """The prompt that asks for hints; it has no aspects of its own."""

    aspects: tuple[Aspect, ...] = ()

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(_prompt().encode()).hexdigest()[:16]

    def prompt(self, boundary: str) -> str:
        return _prompt().format(boundary=boundary, most=MAX_HINTS, chars=HINT_CHARS)


@lru_cache
def _prompt() -> str:
    return (Path(__file__).parent / "prompt.md").read_text(encoding="utf-8").strip()


class HintWriter(Judge):
    """Requests hints for a rollout once and reuses the answer while question, model and record are unchanged."""

    def __init__(self, endpoint: Endpoint, *, cache: Cache | None = None) -> None:
        super().__init__(endpoint, cache=cache)
        self.rubric: Rubric = AdviceRubric(version=VERSION)

    def hints(self, trajectory: Trajectory) -> list[Hint]:
        """Return hints in turn order. Raises JudgeError; a missing answer never becomes a guessed hint."""
        text = record(attempt_of(trajectory, None))
        key = self.key(text)
        kept = self._cache.get(key) if self._cache is not None else None
        if kept is None:
            boundary = f"record-{secrets.token_hex(12)}"
            kept = json.dumps([a.model_dump() for a in self._advice(self._ask(text, boundary), boundary)])
            if self._cache is not None:
                self._cache.put(key, kept)
        advice = {a.turn: a for a in map(Advice.model_validate, json.loads(kept))}
        return [
            Hint(turn, "model", advice[turn].hint)
            for turn in sorted(advice)
            if turn < len(trajectory.turns) and not trajectory.turns[turn].summary
        ][:MAX_HINTS]

    def _advice(self, content: str, boundary: str) -> list[Advice]:
        start = content.find("{")
        try:
            data, _ = json.JSONDecoder().raw_decode(content[start:]) if start >= 0 else (None, 0)
            if not isinstance(data, dict) or data.get("record") != boundary:
                raise JudgeError("the model wrote hints for another record: they are not used")
            return [Advice.model_validate(item) for item in data.get("hints", ())]
        except (ValueError, RecursionError, TypeError, ValidationError) as error:
            raise JudgeError(f"the model's hints do not parse: {type(error).__name__}") from error
