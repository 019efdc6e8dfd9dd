"""The report of a study: one table as JSON and Markdown, with 95 % intervals, tokens and seconds."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from scripts.study import evaluations, figure
from scripts.study.evaluations import Results
from scripts.study.state import State
from scripts.study.steps import PHASES, SUITES
from scripts.study.study import Study

GOAL = 0.15
"""Smallest gain of RL in held-out pass@1 on procedural tasks that the project aims at."""
TITLES = {
    "held-out": "Procedural, held out",
    "packages-held-out": "Trained packages, held-out functions",
    "packages-new": "New packages",
}


class Cell(BaseModel):
    """One policy on one suite."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    evaluation: int
    pass1: float | None
    low: float | None
    high: float | None
    tasks: int
    rollouts: int
    tokens_per_rollout: float | None
    seconds: float


class Report(BaseModel):
    """The final line of `make study`, and the JSON file beside the state."""

    model_config = ConfigDict(extra="forbid")

    study: str
    size: str
    seed: int
    model: str
    teacher: str
    packages: dict[str, list[str]]
    table: dict[str, dict[str, Cell]]
    """Suite → phase → figures."""
    rl_gain: float
    rl_gain_interval: tuple[float, float]
    """Over tasks: difference of pass@1 on the held-out procedural tasks, after RL less after SFT."""
    demonstrations: dict[str, float | int | None]
    curves: dict[str, dict[str, list[tuple[int, float]]]]
    seconds: dict[str, float]
    seconds_total: float


def build(study: Study, state: State) -> Report:
    """Asks the product for the comparison; everything else is in the state."""
    plan, made = study.plan, study.made
    ids = {phase: int(made[f"{phase} held-out"]["id"]) for phase in PHASES}
    gain = evaluations.compare(study.requests, ids["after SFT"], ids["after RL"])
    return Report(
        study=study.name,
        size=plan.size,
        seed=study.seed,
        model="SmolLM2-135M-Instruct",
        teacher=study.teacher or f"scripted expert, accuracy {plan.accuracy:g}",
        packages={
            "trained": [package.name for package in plan.train_packages],
            "new": [package.name for package in plan.new_packages],
        },
        table={suite: {phase: _cell(made[f"{phase} {suite}"]) for phase in PHASES} for suite in SUITES},
        rl_gain=gain.difference,
        rl_gain_interval=(gain.low, gain.high),
        demonstrations=_demonstrations(made),
        curves={step: made[step]["curves"] for step in ("sft", "rl")},
        seconds={name: done.seconds for name, done in state.done.items()},
        seconds_total=round(sum(done.seconds for done in state.done.values()), 1),
    )


def _cell(made: Mapping[str, object]) -> Cell:
    found = Results.model_validate(made["results"])
    rollouts = found.verdicts.get("passed", 0) + found.verdicts.get("failed", 0)
    return Cell(
        evaluation=int(str(made["id"])),
        pass1=found.pass1,
        low=found.pass1_low,
        high=found.pass1_high,
        tasks=found.tasks,
        rollouts=rollouts,
        tokens_per_rollout=round(found.tokens / rollouts, 1) if rollouts else None,
        seconds=round(found.seconds, 1),
    )


def _demonstrations(made: Mapping[str, Mapping[str, object]]) -> dict[str, float | int | None]:
    found, dataset = Results.model_validate(made["demonstrations"]["results"]), made["dataset"]
    return {
        "pass1": found.pass1,
        "conversations": int(str(dataset["conversations"])),
        "dropped": int(str(dataset["dropped"])),
    }


def write(report: Report, folder: Path) -> list[Path]:
    """`NAME.report.json`, `NAME.md` and `NAME.svg` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{report.size}-{report.seed}"
    files = {
        f"{name}.report.json": report.model_dump_json(indent=1) + "\n",
        f"{name}.md": markdown(report),
        f"{name}.svg": figure.svg(report.table, TITLES),
    }
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    return [folder / file for file in files]


def markdown(report: Report) -> str:
    low, high = report.rl_gain_interval
    lines = [
        f"# {report.study}",
        "",
        f"{report.model}; demonstrations by: {report.teacher}. Intervals are of 95 %, over tasks.",
        "",
        "| Suite | Policy | pass@1 | 95 % interval | Tasks | Rollouts | Tokens a rollout | Seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for suite, phases in report.table.items():
        lines += [f"| {TITLES[suite]} | {phase} | {_row(cell)} |" for phase, cell in phases.items()]
    lines += [
        "",
        f"RL's gain on held-out procedural tasks: {report.rl_gain:+.1%} ({low:+.1%} to {high:+.1%}).",
        f"Packages trained on: {', '.join(report.packages['trained'])}; new: {', '.join(report.packages['new'])}.",
        f"The whole study took {report.seconds_total:.0f} s.",
        "",
        "| Step | Seconds |",
        "|---|---|",
        *(f"| {step} | {seconds:.0f} |" for step, seconds in report.seconds.items()),
    ]
    return "\n".join(lines) + "\n"


def _row(cell: Cell) -> str:
    def share(value: float | None) -> str:
        return "none" if value is None else f"{value:.1%}"

    tokens = "none" if cell.tokens_per_rollout is None else f"{cell.tokens_per_rollout:.0f}"
    interval = f"{share(cell.low)} to {share(cell.high)}"
    return f"{share(cell.pass1)} | {interval} | {cell.tasks} | {cell.rollouts} | {tokens} | {cell.seconds:.0f}"


def line(report: Report) -> str:
    """One JSON object in the form of the benches' last line."""
    metrics: dict[str, float | None] = {
        "rl_gain": round(report.rl_gain, 4),
        "rl_gain_low": round(report.rl_gain_interval[0], 4),
        "seconds": report.seconds_total,
    }
    for suite, phases in report.table.items():
        for phase, cell in phases.items():
            metrics[f"pass1_{suite}_{phase}".replace(" ", "_").replace("-", "_").lower()] = cell.pass1
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    result = {
        "bench": "study",
        "metrics": metrics,
        "goals": {"rl_gain": [">=", GOAL], "rl_gain_low": [">", 0]},
        "study": report.study,
        "machine": {"cpus": os.cpu_count(), "arch": platform.machine(), "load_1m": round(os.getloadavg()[0], 2)},
        "commit": commit.stdout.strip() or None,
    }
    return json.dumps(result, separators=(",", ":"))
