"""Asking a language model to grade how the work was done, aspect by aspect; answers are cached and versioned.

It speaks to the same kind of endpoint as the auditor's judge, and reads the same outcome-blind record of untrusted
text. Unlike the auditor's opinions these grades are reward: they come from a rubric of their own, whose version and
digest are stored beside every value.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.grading.audit.attempt.attempt import Attempt
from sandbox.grading.audit.judge.client import Cache, Endpoint, Judge, JudgeError
from sandbox.grading.audit.judge.record import record
from sandbox.grading.audit.judge.rubric import Aspect, Rubric
from trainer.config import BehaviourConfig

HERE = Path(__file__).parent
HIGHEST = 4


class RewardRubric(Rubric):
    """The aspects of the reward, with their own prompt, weights and scale."""

    weights: dict[str, float] = Field(default_factory=dict)
    """Aspect → how much it counts; 1 where nothing is said."""
    highest: int = HIGHEST

    @cached_property
    def digest(self) -> str:
        facts = f"{self.model_dump_json(exclude_defaults=True)}\n{_prompt(self.highest)}"
        return hashlib.sha256(facts.encode()).hexdigest()[:16]

    def prompt(self, boundary: str) -> str:
        questions = "\n".join(f"* `{aspect.id}`: {aspect.question}" for aspect in self.aspects)
        return _prompt(self.highest).format(boundary=boundary, questions=questions)


@lru_cache
def _prompt(highest: int) -> str:
    text = (HERE / "prompt.md").read_text(encoding="utf-8").strip()
    return text.replace("{highest}", str(highest)).replace("{middle}", str(highest // 2))


@lru_cache
def reward_rubric() -> RewardRubric:
    return RewardRubric.model_validate_json((HERE / "rubric.json").read_text(encoding="utf-8"))


def rubric_of(config: BehaviourConfig) -> RewardRubric:
    """The aspects that a configuration names, else the built-in ones; on its scale."""
    if not config.rubric_text.strip():
        return reward_rubric().model_copy(update={"highest": config.rubric_highest})
    return RewardRubric(
        version=reward_rubric().version,
        aspects=tuple(
            Aspect(id=f"judge-{one.name}", title=one.name.capitalize(), question=one.question) for one in config.aspects
        ),
        weights={f"judge-{one.name}": one.weight for one in config.aspects if one.weight != 1},
        highest=config.rubric_highest,
    )


class Grade(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    aspect: str
    grade: int = Field(ge=0)
    reason: str = Field(default="", max_length=400)


class Grades(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    model: str
    rubric_version: int
    grades: tuple[Grade, ...]
    weights: dict[str, float] = Field(default_factory=dict)
    highest: int = HIGHEST

    @property
    def mean(self) -> float:
        """In [0, 1]: every aspect counts by its weight."""
        weights = [self.weights.get(grade.aspect, 1.0) for grade in self.grades]
        said = sum(grade.grade * weight for grade, weight in zip(self.grades, weights, strict=True))
        return said / (self.highest * sum(weights))


class RewardJudge(Judge):
    """Grades attempts. One attempt is asked about once, as long as rubric, model and record are the same."""

    def __init__(self, endpoint: Endpoint, *, cache: Cache | None = None) -> None:
        super().__init__(endpoint, cache=cache)
        self.rubric: Rubric = reward_rubric()

    def under(self, rubric: Rubric) -> RewardJudge:
        """The same model and cache, asked by another rubric."""
        other = RewardJudge(self.endpoint, cache=self._cache)
        other.rubric = rubric
        return other

    @property
    def _highest(self) -> int:
        return self.rubric.highest if isinstance(self.rubric, RewardRubric) else HIGHEST

    def grade(self, attempt: Attempt) -> Grades:
        """Raises JudgeError: no grade is missing data, never a 0."""
        text = record(attempt)
        key = self.key(text)
        if self._cache is not None and (kept := self._cache.get(key)) is not None:
            return Grades.model_validate_json(kept)
        boundary = f"record-{secrets.token_hex(12)}"
        made = Grades(
            model=self.endpoint.model,
            rubric_version=self.rubric.version,
            grades=self._grades(self._ask(text, boundary), boundary),
            weights=self.rubric.weights if isinstance(self.rubric, RewardRubric) else {},
            highest=self._highest,
        )
        if self._cache is not None:
            self._cache.put(key, made.model_dump_json())
        return made

    def _grades(self, content: str, boundary: str) -> tuple[Grade, ...]:
        start = content.find("{")
        try:
            data, _ = json.JSONDecoder().raw_decode(content[start:]) if start >= 0 else (None, 0)
            if not isinstance(data, dict) or data.get("record") != boundary:
                raise JudgeError("the model graded another record: its answer is not used")
            grades = tuple(Grade.model_validate(item) for item in data.get("grades", ()))
        except (ValueError, RecursionError, TypeError, ValidationError) as error:
            raise JudgeError(f"the model's grades do not parse: {type(error).__name__}") from error
        wanted = sorted(aspect.id for aspect in self.rubric.aspects)
        if sorted(grade.aspect for grade in grades) != wanted:
            raise JudgeError(f"the model must grade each of {', '.join(wanted)} once")
        if beyond := next((grade for grade in grades if grade.grade > self._highest), None):
            raise JudgeError(f"the model gave {beyond.aspect} {beyond.grade}; grades go from 0 to {self._highest}")
        return tuple(sorted(grades, key=lambda grade: grade.aspect))


_provider: Callable[[], RewardJudge | None] = lambda: None  # noqa: E731


def use(provider: Callable[[], RewardJudge | None]) -> None:
    """Tell where the judge of this installation comes from; it is asked for at every rollout that wants grades."""
    global _provider
    _provider = provider


def configured() -> RewardJudge | None:
    return _provider()
