"""The history of measurements, docs/benchmarks.jsonl, and the table of docs/benchmarks.md that is made from it.

`RECORD=1 make bench NAME=…` appends its result, on a clean tree only: a commit then says exactly what was measured.
`RECORD=dirty` appends from a changed tree, and the record says so. `NOTE="…"` is kept with it.
`python -m tests.bench.history` writes the table again.
"""

from __future__ import annotations

import json
import operator
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
HISTORY = REPOSITORY / "docs/benchmarks.jsonl"
PAGE = REPOSITORY / "docs/benchmarks.md"
BEGIN, END = "<!-- newest: made by `python -m tests.bench.history` -->", "<!-- end of newest -->"
COMPARE = {"<=": operator.le, ">=": operator.ge, "==": operator.eq, ">": operator.gt}
MAX_CELL = 60

HEADLINES = {
    "learning": "pass1_after_min",
    "demo": "minutes",
    "trainer": "ratio_to_trl",
    "engine": "ratio_to_transformers",
    "real": "engine_ratio_to_generate_min",
    "async": "ratio_to_sync",
    "codec": "encode_mb_s_fast",
    "parity": "k3_fp32",
    "parallel": "memory_per_rank",
    "gpu": "dense_ratio_to_trl",
    "sandbox": "start_ms_p50",
    "grading": "cpu_ratio",
    "redteam": "scored",
    "auditor": "recall",
    "fidelity": "classifier_auc",
    "install": "yields_task",
    "taskgen": "valid_per_minute",
    "feedback": "habit_area_ratio_max",
    "summaries": "trained_over_untrained_min",
    "hacking": "hackable_reward_last",
    "midtrain-study": "rank_correlation",
    "gateway": "gateway_added_ms_p95",
    "web": "live_p95_ms",
    "tables": "p95_ms_max",
    "dispatch": "trained_twice",
    "house": "test_minutes",
    "fuzz-api": "operations",
}
"""Bench → the one of its metrics that the table shows. The order is the table's; other benches follow by name."""

Record = Mapping[str, Any]


def read(path: Path = HISTORY) -> list[Record]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(result: Record, *, command: str, note: str, dirty_too: bool, path: Path = HISTORY) -> None:
    """Add what `report.emit` printed. Raises SystemExit on a changed tree, unless `dirty_too`."""
    changed = subprocess.run(
        ["git", "status", "--porcelain"], capture_output=True, text=True, cwd=path.parent, check=True
    )
    dirty = [line for line in changed.stdout.splitlines() if not line.endswith(path.name)]
    if dirty and not dirty_too:
        raise SystemExit("not recorded: the tree has changes that no commit names; commit them, or set RECORD=dirty")
    machine = result["machine"]
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": result["commit"] + (" with changes" if dirty else ""),
        "machine": ", ".join(f"{key} {machine[key]}" for key in ("cpus", "arch", "kernel", "load_1m")),
        "bench": result["bench"],
        "command": command,
        **{key: result[key] for key in ("metrics", "goals", "peers")},
        "note": note,
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def newest(records: Sequence[Record]) -> dict[str, Record]:
    """The last record of each bench that has the bench's headline. Partial measurements have none."""
    found: dict[str, Record] = {}
    for record in records:
        if headline(record) in record["metrics"]:
            found[record["bench"]] = record
    order = [*HEADLINES, *sorted(set(found) - set(HEADLINES))]
    return {bench: found[bench] for bench in order if bench in found}


def headline(record: Record) -> str:
    return HEADLINES.get(record["bench"]) or next(iter(record["metrics"]), "")


def missed(record: Record) -> list[str]:
    return [
        name
        for name, (sign, bound) in record["goals"].items()
        if name in record["metrics"] and not COMPARE[sign](record["metrics"][name], bound)
    ]


def table(records: Sequence[Record]) -> str:
    """One row a bench: its headline, the goal of it, how many of all goals were missed, and a peer in the same run."""
    lines = ["| bench | newest | headline | goal | missed goals | peer |", "|---|---|---|---|---|---|"]
    for bench, record in newest(records).items():
        name, goals = headline(record), record["goals"]
        measured = re.split(r"beside|\(|, the bench", record["commit"])[0]  # older records say more than a commit
        commit = re.findall(r"\b[0-9a-f]{7,12}\b", measured) or ["?"]
        goal = f"{goals[name][0]} {goals[name][1]:g}" if name in goals else "–"
        wrong = missed(record)
        counted = f"{len(wrong)} of {len(goals)}" + (f": {', '.join(wrong)}" if wrong else "") if goals else "–"
        peer = "; ".join(f"{who} {value:g}" for who, value in record["peers"].items()) or "–"
        cells = [
            bench,
            f"{record['date']} {commit[-1]}",
            f"`{name}` {record['metrics'][name]:g}",
            goal,
            shortened(counted),
            shortened(peer),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def shortened(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1].rstrip()}…"


def page(text: str, records: Sequence[Record]) -> str:
    """The page with its table made anew."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table(records)}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), read()), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
