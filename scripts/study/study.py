"""What every step of a study works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.study.plan import Plan
from scripts.study.requests import Requests

Made = dict[str, Any]
"""What a step gives: plain JSON, which the state file keeps."""


@dataclass(frozen=True, slots=True)
class Study:
    """What every step works with. `made` holds what each ended step gave, by name."""

    requests: Requests
    plan: Plan
    seed: int
    folder: Path
    """Where the downloaded model lies. The product's workers must see it under the same path."""
    teacher: str
    """Policy behind an endpoint that demonstrates instead of the scripted expert; empty: the expert."""
    made: Mapping[str, Made]

    @property
    def name(self) -> str:
        return f"study-{self.plan.size}-{self.seed}"

    @property
    def expert(self) -> str:
        """Name of the scripted expert's policy."""
        return f"{self.name}-expert"

    def suite(self, name: str) -> str:
        """Suites that are measured, and those of packages, are shared by all seeds of a size."""
        own = name in ("demonstrations", "train")
        return f"{self.name if own else f'study-{self.plan.size}'}-{name}"
