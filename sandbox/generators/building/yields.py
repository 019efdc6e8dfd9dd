"""What a generator tried, kept and spent, so that people see which one is worth its time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from sandbox.generators.building.drafts import Reason, Rejected
from sandbox.tasks.files import replace_file


class Yield(BaseModel):
    """One run of one generator over one package."""

    model_config = ConfigDict(extra="forbid")
    generator: str
    package: str
    split: str = "train"
    seed: int = 0
    tried: int = 0
    """Drafts whose tests were run, or that were refused before."""
    kept: int = 0
    rejected: dict[str, int] = Field(default_factory=dict)
    """Reason → drafts, and candidates that gave none."""
    operators: dict[str, tuple[int, int]] = Field(default_factory=dict)
    """Operator → (tried, kept)."""
    seconds: float = 0.0
    """Wall time of the whole run."""
    control_seconds: float = 0.0
    """Total time of all controls, summed over concurrent ones."""
    model_tokens: int = 0
    """Language-model tokens, if a model wrote the instructions."""

    def reject(self, operator: str, rejected: Rejected) -> None:
        self._count(operator, 0)
        self.pass_over(rejected.reason)

    def pass_over(self, reason: Reason, candidates: int = 1) -> None:
        """Places that no draft is made of: nothing was tried there."""
        if candidates:
            self.rejected = dict(Counter(self.rejected) + Counter({str(reason): candidates}))

    def keep(self, operator: str) -> None:
        self._count(operator, 1)
        self.kept += 1

    def _count(self, operator: str, kept: int) -> None:
        self.tried += 1
        tried_before, kept_before = self.operators.get(operator, (0, 0))
        self.operators = {**self.operators, operator: (tried_before + 1, kept_before + kept)}

    @contextmanager
    def timed(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds = round(self.seconds + time.monotonic() - began, 3)

    @property
    def share(self) -> float:
        """Kept of tried."""
        return self.kept / self.tried if self.tried else 0.0

    @property
    def per_minute(self) -> float:
        return 60.0 * self.kept / self.seconds if self.seconds else 0.0


class YieldStore:
    """`<root>/yields/<name>.json`, beside the lists of tasks that the runs gave."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "yields"

    def save(self, name: str, found: Yield) -> None:
        replace_file(self._folder / f"{name}.json", found.model_dump_json())

    def load(self, name: str) -> Yield | None:
        """None when that run was never finished here. Raises ValidationError for a file that something else wrote."""
        path = self._folder / f"{name}.json"
        return Yield.model_validate_json(path.read_bytes()) if path.is_file() else None
