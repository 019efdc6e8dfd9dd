"""Base model candidates on a team's codebase: measures them here and reads the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from composer_web.accounts.scoping import project_now
from composer_web.core.errors import UserError
from composer_web.policies.models import Measurement, Policy
from composer_web.policies.selectors import resolve
from trainer.model_selection.scores import Difference, Selection, compare

MAX_TEXTS = 5
MAX_RIVALS = 9


@dataclass(frozen=True, slots=True)
class Row:
    """One measured policy version. `apart` is its distance from the policy in question."""

    row: Measurement
    found: Selection
    apart: Difference | None

    @property
    def name(self) -> str:
        return self.row.policy.at(self.row.version)


def measure(
    *,
    references: Sequence[str],
    path: Path,
    commits: int | None,
    since: str,
    window: int,
    most_bytes: int,
    items: int,
    changes: int,
    device: Literal["auto", "cpu", "cuda"],
    name: str = "",
    said: Callable[[Selection], None] = lambda _: None,
) -> list[Measurement]:
    """Measure policy versions on one text and store the results. `said` is called with each result. Raises
    UserError."""
    from trainer.errors import StageError
    from trainer.model_selection.selection import asked_codebase, select  # torch: only where something is measured

    candidates = list(
        dict.fromkeys((weights.policy, weights.version, weights.whole()) for weights in map(resolve, references))
    )
    rows: list[Measurement] = []
    try:
        codebase = asked_codebase(
            path, commits=commits, since=since, window=window, max_bytes=most_bytes, items=items, name=name
        )
        for policy, version, folder in candidates:
            found = select(
                folder, codebase, name=policy.at(version), window=window, items=items, changes=changes, device=device
            )
            rows.append(keep(policy, version, found, project=project_now()))
            said(found)
    except (ValueError, StageError) as error:
        raise UserError("codebase", str(error)) from error
    return rows


def keep(policy: Policy, version: int, found: Selection, *, project: int) -> Measurement:
    """Store a measurement, replacing an earlier one."""
    row, _ = Measurement.objects.update_or_create(
        project_id=project,
        policy=policy,
        version=version,
        text_digest=found.text_digest,
        before=found.before,
        window=found.window,
        defaults={"codebase": found.codebase[:200], "result": found.model_dump()},
    )
    return row


def measured(policy: Policy) -> list[list[Row]]:
    """Latest texts that a policy was measured on: its own newest row, then others on the same text, best first."""
    groups: list[list[Row]] = []
    own: dict[tuple[str, str], Measurement] = {}
    for row in policy.measurements.select_related("policy").order_by("-created_at")[:50]:
        own.setdefault((row.text_digest, row.before), row)
    texts = dict(list(own.items())[:MAX_TEXTS])
    others = Measurement.objects.filter(text_digest__in={digest for digest, _ in texts}).exclude(policy=policy)
    rivals = list(others.select_related("policy").order_by("-created_at")[:200]) if texts else []
    for key, mine in texts.items():
        found = Selection.model_validate(mine.result)
        near = [
            Row(row, theirs := Selection.model_validate(row.result), compare(theirs, found))
            for row in rivals
            if (row.text_digest, row.before) == key
        ][:MAX_RIVALS]
        near.sort(key=lambda other: other.found.bits_per_byte.value)
        groups.append([Row(mine, found, None), *near])
    return groups
