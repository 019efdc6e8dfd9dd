"""Several seeds of one size as one table: the mean of pass@1 over seeds, its range, and RL's gain seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from scripts.study.report import TITLES, Report
from scripts.study.steps import PHASES, SUITES


def reports(folder: Path, size: str) -> list[Report]:
    """The finished studies of a size, by seed."""
    found = [Report.model_validate_json(path.read_text()) for path in folder.glob(f"{size}-*.report.json")]
    return sorted(found, key=lambda report: report.seed)


def write(folder: Path, size: str) -> Path | None:
    """`SIZE.md` in the folder. None, and no file, for fewer than two seeds."""
    found = reports(folder, size)
    if len(found) < 2:
        return None
    path = folder / f"{size}.md"
    path.write_text(markdown(found), encoding="utf-8")
    return path


def markdown(found: Sequence[Report]) -> str:
    seeds = ", ".join(str(report.seed) for report in found)
    lines = [
        f"# {found[0].model}, {found[0].size} study, seeds {seeds}",
        "",
        "| Suite | Policy | pass@1, mean over seeds | Lowest and highest seed |",
        "|---|---|---|---|",
    ]
    for suite in SUITES:
        for phase in PHASES:
            scores = [score for report in found if (score := report.table[suite][phase].pass1) is not None]
            row = f"{fmean(scores):.1%} | {min(scores):.1%} to {max(scores):.1%}" if scores else "none | none"
            lines.append(f"| {TITLES[suite]} | {phase} | {row} |")
    gains = fmean(report.rl_gain for report in found)
    lines += [
        "",
        f"RL's gain on held-out procedural tasks: {gains:+.1%}, mean over seeds.",
        "",
        "| Seed | Gain | 95 % interval, over tasks |",
        "|---|---|---|",
    ]
    for report in found:
        low, high = report.rl_gain_interval
        lines.append(f"| {report.seed} | {report.rl_gain:+.1%} | {low:+.1%} to {high:+.1%} |")
    return "\n".join(lines) + "\n"
