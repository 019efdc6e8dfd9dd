"""What a study has done, in `<data>/study/<size>-<seed>.json`. Written after every step, so that it can be stopped anywhere."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scripts.study.errors import StudyError
from scripts.study.plan import Plan


class Done(BaseModel):
    """A step that has ended: what it made, and the seconds that this took over all its attempts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    made: dict[str, Any]
    seconds: float
    at: datetime


class State(BaseModel):
    """The file. `plan` is kept with it: a study whose plan has changed is another study."""

    model_config = ConfigDict(extra="forbid")

    plan: Plan
    seed: int
    teacher: str = ""
    done: dict[str, Done] = Field(default_factory=dict)
    spent: dict[str, float] = Field(default_factory=dict)
    """Seconds of attempts at steps that have not ended."""


class StateFile:
    """A state and the file that it is kept in."""

    def __init__(self, path: Path, state: State) -> None:
        self.path, self.state = path, state

    @classmethod
    def open(cls, path: Path, *, plan: Plan, seed: int, teacher: str = "") -> StateFile:
        """The state that lies there, or a new one. Raises StudyError when it is of another plan, or damaged."""
        if not path.is_file():
            return cls(path, State(plan=plan, seed=seed, teacher=teacher))
        remedy = f"Move {path} away to begin anew."
        try:
            state = State.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError as error:
            raise StudyError("state", f"{path} cannot be read ({error.error_count()} errors)", remedy) from error
        for name, now in {"plan": plan, "seed": seed, "teacher": teacher}.items():
            if (before := getattr(state, name)) != now:
                raise StudyError(name, f"{path} was begun with another {name} ({_difference(before, now)})", remedy)
        return cls(path, state)

    def end(self, step: str, made: dict[str, Any], seconds: float) -> None:
        """Keep what a step made."""
        whole = self.state.spent.pop(step, 0.0) + seconds
        self.state.done[step] = Done(made=made, seconds=round(whole, 1), at=datetime.now(UTC))
        self.save()

    def interrupted(self, step: str, seconds: float) -> None:
        """Keep the time of an attempt that did not end."""
        self.state.spent[step] = round(self.state.spent.get(step, 0.0) + seconds, 1)
        self.save()

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        staged = self.path.with_suffix(".new")
        staged.write_text(self.state.model_dump_json(indent=1) + "\n", encoding="utf-8")
        staged.replace(self.path)


def _difference(before: object, now: object) -> str:
    if not isinstance(before, BaseModel) or not isinstance(now, BaseModel):
        return f"{before!r}, now {now!r}"
    old, new = before.model_dump(), now.model_dump()
    return ", ".join(f"{name}={old[name]!r}, now {new[name]!r}" for name in old if old[name] != new[name])
