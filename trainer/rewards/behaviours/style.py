"""Coding style of what the patch adds: the few things that any reviewer objects to, whatever the project.

Judged on the lines that were added to code files, so that the style of what was there costs nothing.
"""

from __future__ import annotations

import re

from sandbox.grading.audit.attempt.diff import read
from sandbox.grading.audit.attempt.paths import is_code
from trainer.config import RewardConfig
from trainer.rewards.parts.base import reward_part
from trainer.types import RewardPart, Trajectory

LONGEST_LINE = 120
LONGEST_COMMENT_RUN = 8
"""Comment lines in a row; more is thinking aloud in the code."""
FAULTS: dict[str, re.Pattern[str]] = {
    "too long": re.compile(rf".{{{LONGEST_LINE + 1},}}"),
    "trailing space": re.compile(r".*[ \t]+$"),
    "mixed indentation": re.compile(r" *\t *(?=\S)| +\t"),
    "debug output": re.compile(
        r"\s*(print\(\s*f?['\"](debug|here|xxx)\b|breakpoint\(\)|import pdb\b|console\.log\()", re.I
    ),
    "swallowed error": re.compile(r"\s*except(\s+(Base)?Exception(\s+as\s+\w+)?)?\s*:\s*(pass)?\s*$"),
    "left over": re.compile(r"\s*(#|//)\s*(TODO|FIXME|XXX|HACK)\b"),
}
COMMENT = re.compile(r"\s*(#|//)")


@reward_part("style")
def style(trajectory: Trajectory, config: RewardConfig) -> RewardPart | None:
    """Minus the share of added code lines with a fault; 0 without added lines."""
    weight = config.behaviour.style
    if weight == 0.0:
        return None
    lines = 0
    faults: dict[str, int] = {}
    faulty = 0
    for file in read(trajectory.patch):
        if not is_code(file.path):
            continue
        for block in file.blocks:
            run = 0
            for line in block.text.split("\n"):
                lines += 1
                found = [name for name, fault in FAULTS.items() if fault.match(line)]
                run = run + 1 if COMMENT.match(line) else 0
                found += ["thinking in comments"] if run > LONGEST_COMMENT_RUN else []
                faulty += bool(found)
                for name in found:
                    faults[name] = faults.get(name, 0) + 1
    value = -faulty / lines if lines else 0.0
    return RewardPart(name="style", value=value, weight=weight, detail={"lines": lines, **faults})
