"""The history of measurements and the table of docs/benchmarks.md."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.bench import history

KEYS = {"date", "commit", "machine", "bench", "command", "metrics", "goals", "peers", "note"}
RESULT = {
    "bench": "sandbox",
    "metrics": {"start_ms_p50": 7.0, "mb_each": 5.0},
    "goals": {"start_ms_p50": ["<=", 10.7], "mb_each": ["<=", 4.0]},
    "peers": {"docker run": 220.0},
    "machine": {"cpus": 2, "arch": "x86_64", "kernel": "6.1", "load_1m": 0.2},
    "commit": "0123abc",
}


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """An empty history in a repository of its own, with nothing uncommitted."""
    path = tmp_path / "benchmarks.jsonl"
    path.write_text("")
    (tmp_path / "code.py").write_text("one = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    return path


def test_every_record_is_whole() -> None:
    records = history.read()
    assert len(records) > 100
    assert [record for record in records if set(record) != KEYS or not (record["metrics"] or record["note"])] == []
    assert [record["date"] for record in records] == sorted(record["date"] for record in records)


def test_the_page_has_the_table_of_the_history() -> None:
    text = history.PAGE.read_text(encoding="utf-8")
    assert history.page(text, history.read()) == text, "run `python -m tests.bench.history`"
    assert all(f"\n| {bench} | " in text for bench in history.newest(history.read()))


def test_a_result_is_recorded_from_a_clean_tree(kept: Path) -> None:
    history.append(RESULT, command="make bench NAME=sandbox", note="quiet", dirty_too=False, path=kept)
    history.append(
        RESULT, command="make bench NAME=sandbox", note="again", dirty_too=False, path=kept
    )  # it alone changed
    first, second = history.read(kept)
    assert set(first) == KEYS and (first["commit"], first["note"]) == ("0123abc", "quiet")
    assert history.newest([first, second]) == {"sandbox": second}
    row = history.table([first]).splitlines()[-1]
    assert row.endswith("0123abc | `start_ms_p50` 7 | <= 10.7 | 1 of 2: mb_each | docker run 220 |")


def test_a_changed_tree_is_refused_unless_asked_for(kept: Path) -> None:
    (kept.parent / "code.py").write_text("one = 2\n")
    with pytest.raises(SystemExit, match="not recorded"):
        history.append(RESULT, command="x", note="", dirty_too=False, path=kept)
    assert history.read(kept) == []
    history.append(RESULT, command="x", note="", dirty_too=True, path=kept)
    assert history.read(kept)[0]["commit"] == "0123abc with changes"


def test_a_part_of_a_bench_is_not_its_newest_result(kept: Path) -> None:
    part = {**RESULT, "metrics": {"mb_each": 3.0}}
    for result in (RESULT, part):
        history.append(result, command="x", note="", dirty_too=False, path=kept)
    assert history.newest(history.read(kept))["sandbox"]["metrics"] == RESULT["metrics"]
