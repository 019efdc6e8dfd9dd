"""The result of an auto-install, stored as JSON under the hash of the checkout."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from sandbox.install.recipes.errors import Reason
from sandbox.install.recipes.goals import GoalSet
from sandbox.packages.build import BuiltPackage


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Attempt(_Frozen):
    number: int
    tier: str
    reason: Reason | None = None
    """Why it failed; None for the one that was taken."""
    problem: str = ""
    seconds: float


class Evidence(_Frozen):
    """What the best attempt shows, measured in fresh sandboxes without network."""

    importable: bool = False
    collected: int = 0
    """Tests that the first run reports."""
    not_loaded: int = 0
    """Test files that could not be loaded."""
    left_out: int = 0
    """Further tests of a long suite, for which those that ran stand."""
    passed: int = 0
    skipped: int = 0
    repeats: int = 0
    set_aside: int = 0
    """Tests that were not the same in every repeat; those that are counted here are without them, in repeats of their own."""
    repeatable: bool = False
    """Every repeat gave each test the same outcome."""
    unseen_met: int = 0
    unseen: int = 0
    suite_seconds: float = 0.0

    @property
    def share(self) -> float:
        """Share of non-skipped tests that pass; each file that fails to load counts as one failed test."""
        counted = self.collected - self.skipped + self.not_loaded
        return self.passed / counted if counted else 0.0


class InstallRecord(_Frozen):
    """The result of both stages. `built` is set when the environment was accepted."""

    name: str
    version: str
    checkout: str
    """Digest of the files it began with."""
    language: str
    goals: GoalSet
    attempts: tuple[Attempt, ...]
    evidence: Evidence
    built: BuiltPackage | None = None
    reason: Reason | None = None
    problem: str = ""
    framework: str = ""
    test_command: str = ""
    image_bytes: int = 0
    packages: tuple[str, ...] = ()
    """What is installed beside the checkout, as `name==version`."""
    seconds: float = 0.0
    provenance: dict[str, str] = {}
