"""LLM grades of a rollout under the behaviour rubric, through any OpenAI-compatible endpoint."""

from __future__ import annotations

import hashlib
from functools import cached_property, lru_cache
from pathlib import Path

from sandbox.grading.audit.judge.client import Cache, Endpoint
from sandbox.grading.audit.judge.rubric import Rubric
from trainer.rewards.rubric import RewardJudge

HERE = Path(__file__).parent / "rubric"


class SideRubric(Rubric):
    """Its version is stored with every grade; its digest also covers the prompt."""

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.model_dump_json()}\n{_prompt()}".encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        return f"{self.version}/{self.digest}"

    def prompt(self, boundary: str) -> str:
        questions = "\n".join(f"* `{aspect.id}`: {aspect.question}" for aspect in self.aspects)
        return _prompt().format(boundary=boundary, questions=questions)


@lru_cache
def _prompt() -> str:
    return (HERE / "prompt.md").read_text(encoding="utf-8").strip()


@lru_cache
def side_rubric() -> SideRubric:
    return SideRubric.model_validate_json((HERE / "rubric.json").read_text(encoding="utf-8"))


class SideJudge(RewardJudge):
    """Requests outcome-blind grades of an attempt. Grades are cached."""

    def __init__(self, endpoint: Endpoint, *, cache: Cache | None = None) -> None:
        super().__init__(endpoint, cache=cache)
        self.rubric: Rubric = side_rubric()
