"""What Postgres may take of a machine: shares of its memory within bounds, and of a container's where that is less."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

from scripts.stack import throwaway, tuning

GB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "buffers", "log"),
    [
        (GB // 2, "128MB", "512MB"),
        (4 * GB, "512MB", "512MB"),
        (24 * GB, "3072MB", "2048MB"),
        (512 * GB, "8192MB", "4096MB"),
    ],
)
def test_shares_have_bounds(memory: int, buffers: str, log: str) -> None:
    found = tuning.settings(memory)
    assert (found["shared_buffers"], found["max_wal_size"]) == (buffers, log)


def test_nothing_of_it_is_about_durability() -> None:
    assert not {"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method"} & tuning.settings().keys()


def written(root: Path, **limits: str) -> Path:
    for place, text in limits.items():
        file = root / place.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root


def test_the_least_limit_above_this_process_counts(tmp_path: Path) -> None:
    limits = {"memory_dot_max": "max", "a__memory_dot_max": f"{GB}", "a__b__memory_dot_max": f"{2 * GB}"}
    root = written(tmp_path / "groups", **limits, c__memory_dot_max="1")
    mine = tmp_path / "mine"
    mine.write_text("0::/a/b\n")
    assert tuning.machine_memory(root, mine) == GB


def test_the_first_version_of_control_groups(tmp_path: Path) -> None:
    root = tmp_path / "groups"
    (root / "memory" / "box").mkdir(parents=True)
    (root / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (root / "memory" / "box" / "memory.limit_in_bytes").write_text(f"{GB}\n")
    mine = tmp_path / "mine"
    mine.write_text("5:cpu,cpuacct:/other\n4:memory:/box\n1:name=systemd:/\n0::/\n")
    assert tuning.machine_memory(root, mine) == GB


def test_a_container_that_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    root = written(tmp_path / "groups", memory_dot_max=str(GB))
    mine = tmp_path / "mine"
    mine.write_text("0::/docker/0123\n")
    assert tuning.machine_memory(root, mine) == GB


def test_without_control_groups_it_is_the_machine(tmp_path: Path) -> None:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert tuning.machine_memory(tmp_path, tmp_path / "none") == whole


def test_postgres_takes_every_setting() -> None:
    with (
        throwaway.services(large=True) as variables,
        psycopg.connect(variables["OPENCOMPOSER_DATABASE_URL"]) as connection,
    ):
        for name, wanted in tuning.settings().items():
            row = connection.execute(
                "SELECT current_setting(%s) = %s OR pg_size_bytes(current_setting(%s)) = pg_size_bytes(%s)"
                if wanted.endswith("MB")
                else "SELECT current_setting(%s) = %s OR current_setting(%s)::interval = %s::interval"
                if wanted.endswith("s")
                else "SELECT current_setting(%s) = %s OR current_setting(%s) = %s",
                [name, wanted, name, wanted],
            ).fetchone()
            assert row == (True,), name
