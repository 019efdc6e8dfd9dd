"""Checkpoints of runs that somebody uses: the trainer's retention leaves them alone (`trainer.checkpoint.in_use`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from composer_web.core.errors import UserError
from composer_web.env import env
from composer_web.policies.models import Checkpoint
from composer_web.policies.selectors import Weights
from composer_web.policies.services import real_path
from trainer.checkpoint import in_use


@dataclass(frozen=True, slots=True)
class Use:
    """`holder` (such as `run-7`) uses a version of a policy."""

    policy_id: int
    version: int
    holder: str


def hold(weights: Weights, holder: str) -> None:
    """Keep these weights. Raises UserError when retention was quicker."""
    folder = weights.path.parent
    if _made_by_a_run(folder) and not in_use.hold(folder, holder):
        name = weights.policy.at(weights.version)
        raise UserError("policy", f"{name} was just removed by its run's retention; choose a newer version")


def synchronize(uses: Iterable[Use]) -> int:
    """Mark exactly these uses on disk. Returns the number of changed marks."""
    wanted: dict[Path, set[str]] = defaultdict(set)
    of: dict[tuple[int, int], set[str]] = defaultdict(set)
    for use in uses:
        of[use.policy_id, use.version].add(use.holder)
    rows = Checkpoint.objects.filter(removed_at=None, policy__in={policy for policy, _ in of}).order_by("version", "kind")
    for row in rows if of else ():
        folder = real_path(row.path).parent
        if _made_by_a_run(folder):
            wanted[folder] |= of.get((row.policy_id, row.version), set())
    changed = 0
    for folder in {*wanted, *(mark.parent for mark in _root().glob(f"run-*/step-*/{in_use.FOLDER}"))}:
        there = in_use.holders(folder)
        for holder in wanted[folder] - there:
            changed += in_use.hold(folder, holder)
        for holder in there - wanted[folder]:
            in_use.release(folder, holder)
            changed += 1
    return changed


def _root() -> Path:
    return env().data / "checkpoints"


def _made_by_a_run(folder: Path) -> bool:
    return folder.resolve().is_relative_to(_root().resolve())
