"""Benchmark statistics: changed lines and files of the oracle's patches, characters of the prompts."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from statistics import median

from pydantic import BaseModel, ConfigDict

from sandbox.tasks.spec import BuiltEnvironment, TaskSpec


class Measured(BaseModel):
    """One task. `lines` are added plus removed lines of the oracle's patch."""

    model_config = ConfigDict(frozen=True)

    lines: int
    files: int
    prompt_characters: int


class Statistics(BaseModel):
    """Medians over tasks."""

    model_config = ConfigDict(frozen=True)

    tasks: int
    lines: float
    files: float
    prompt_characters: float


class Published(BaseModel):
    """Figures that a paper or report gives for a public suite; None where it gives none."""

    model_config = ConfigDict(frozen=True)

    name: str
    lines: str
    prompt_characters: str
    source: str


PUBLIC = (
    Published(
        name="SWE-bench Verified and Multilingual",
        lines="7 to 10",
        prompt_characters="1,185 to 3,055",
        source="Composer 2 technical report, section 5, and Cursor's article on CursorBench",
    ),
    Published(
        name="CursorBench-3",
        lines="181",
        prompt_characters="390",
        source="Composer 2 technical report, section 5, and Cursor's article on CursorBench",
    ),
)
"""Published medians. For public suites, the sources give a range over suites and no file counts."""


def measure(spec: TaskSpec) -> Measured:
    """Lines and files that the gold patch of one bundle changes. A file that is not in the bundle counts whole: its
    original is in the environment."""
    environment = spec.environment
    before = environment.overrides if isinstance(environment, BuiltEnvironment) else environment.files
    lines = files = 0
    for path, text in spec.gold.items():
        old = before.get(path, "").splitlines()
        diff = difflib.unified_diff(old, text.splitlines(), n=0, lineterm="")
        changed = sum(line[0] in "+-" for line in list(diff)[2:])
        lines, files = lines + changed, files + (changed > 0)
    return Measured(lines=lines, files=files, prompt_characters=len(spec.instruction))


def summarize(tasks: Sequence[Measured]) -> Statistics:
    """Raises ValueError for an empty sequence."""
    if not tasks:
        raise ValueError("a release needs at least one task")
    return Statistics(
        tasks=len(tasks),
        lines=median(task.lines for task in tasks),
        files=median(task.files for task in tasks),
        prompt_characters=median(task.prompt_characters for task in tasks),
    )
