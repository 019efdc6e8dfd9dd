"""The rubric: one question an aspect, versioned, in `rubric.json`; the prompt around it in `prompt.md`."""

from __future__ import annotations

import hashlib
from functools import cached_property, lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

HERE = Path(__file__).parent


class Aspect(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str = Field(pattern=r"^judge-[a-z-]{1,30}$")
    title: str
    question: str


class Rubric(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    version: int = Field(ge=1)
    aspects: tuple[Aspect, ...] = Field(min_length=1)

    @cached_property
    def digest(self) -> str:
        """Names rubric and prompt: answers under another name are not the same question."""
        return hashlib.sha256(f"{self.model_dump_json()}\n{_prompt()}".encode()).hexdigest()[:16]

    def prompt(self, boundary: str) -> str:
        """The system message; `boundary` marks the record."""
        questions = "\n".join(f"* `{aspect.id}`: {aspect.question}" for aspect in self.aspects)
        return _prompt().format(boundary=boundary, questions=questions)


@lru_cache
def _prompt() -> str:
    return (HERE / "prompt.md").read_text(encoding="utf-8").strip()


@lru_cache
def rubric() -> Rubric:
    return Rubric.model_validate_json((HERE / "rubric.json").read_text(encoding="utf-8"))


def titles() -> dict[str, str]:
    """Aspect → what people read."""
    return {aspect.id: aspect.title for aspect in rubric().aspects}
