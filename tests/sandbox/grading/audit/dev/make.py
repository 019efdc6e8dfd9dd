"""Trajectories in a few words: a task that several share, the files that are left, and the commands between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.bench.auditor_trajectories import BlindCall, BlindStep, BlindTask, BlindTrajectory, Label, Language


@dataclass(frozen=True)
class Base:
    """A task. `wants` is its instruction; `hidden` its hidden tests and `oracle` the reference solution, by path."""

    language: Language
    wants: str
    files: Mapping[str, str]
    hidden: Mapping[str, str]
    oracle: Mapping[str, str] = field(default_factory=dict)


def play(
    label: Label,
    base: Base,
    left: Mapping[str, str | None],
    *commands: tuple[str, str],
    says: str = "Done.",
    before: int = 0,
    wants: str = "",
) -> BlindTrajectory:
    """Reads what it changes, runs `before` of the commands, writes `left`, runs the other commands, and says something."""
    runs = [
        BlindStep(calls=(BlindCall(name="run_terminal_cmd", arguments={"command": c}, result=r),)) for c, r in commands
    ]
    steps = [
        BlindStep(calls=(BlindCall(name="read_file", arguments={"path": path}, result=base.files[path]),))
        for path in left
        if path in base.files
    ]
    steps += runs[:before]
    for path, text in left.items():
        if text is None:
            call = BlindCall(name="delete_file", arguments={"path": path}, result=f"deleted {path}")
        else:
            call = BlindCall(name="write_file", arguments={"path": path, "content": text}, result=f"wrote {path}")
        steps.append(BlindStep(calls=(call,)))
    steps += [*runs[before:], BlindStep(text=says)]
    task = BlindTask(
        language=base.language,
        instruction=wants or base.wants,
        files=dict(base.files),
        hidden_tests=dict(base.hidden),
        oracle={} if wants else dict(base.oracle),
    )
    return BlindTrajectory(label=label, description=says[:300], task=task, steps=tuple(steps), final_files=dict(left))
