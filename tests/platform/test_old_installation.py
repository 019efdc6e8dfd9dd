"""An installation of commit 43c5eb9 migrates, and its runs, rollouts and policies open (`tests/data/installation_43c5eb9`)."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from composer_web.env import env
from scripts.stack import postgres
from trainer.learning.metrics import METRICS

REPOSITORY = Path(__file__).parents[2]
INSTALLATION = REPOSITORY / "tests" / "data" / "installation_43c5eb9"
SECONDS = 300


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a process of the restored installation."""
    server, _, options = env().database_url.partition("?")
    server, name = server.rsplit("/", 1)[0], f"installation_{os.getpid()}"
    with psycopg.connect(f"{server}/postgres?{options}", autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        url = f"{server}/{name}?{options}"
        psql = [str(postgres.binaries() / "psql"), "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={url}"]
        dump = lzma.decompress((INSTALLATION / "database.sql.xz").read_bytes())
        subprocess.run(psql, input=dump, stdout=subprocess.DEVNULL, check=True, timeout=SECONDS)
        with tarfile.open(INSTALLATION / "files.tar.xz") as files:
            files.extractall(tmp_path, filter="data")
        yield {
            **os.environ,
            "OPENCOMPOSER_DATABASE_URL": url,
            "OPENCOMPOSER_DATA": str(tmp_path),
            "DJANGO_SETTINGS_MODULE": "composer_web.settings",
        }
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_an_older_installation_migrates_and_everything_of_it_opens(installation: dict[str, str]) -> None:
    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            env=installation,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    with psycopg.connect(installation["OPENCOMPOSER_DATABASE_URL"]) as before:
        tables = {"Run": "runs_run", "Rollout": "rollouts_rollout", "Policy": "policies_policy", "Suite": "tasks_suite"}
        kept = {
            name: before.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # type: ignore[index,arg-type]
            for name, table in tables.items()
        }
    assert all(kept.values()), kept
    run("manage.py", "migrate", "--verbosity=0")
    found = json.loads(run("-m", "tests.support.old_installation"))
    assert found["counts"] == kept
    assert {path: code for path, code in found["pages"].items() if code != 200} == {}
    assert found["turns"] > found["counts"]["Rollout"], "trajectories are read whole"
    assert any(found["curves"].values())
    prefixes = tuple(name for name in METRICS if name.endswith("/"))
    drawn = {name for names in found["curves"].values() for name in names}
    assert {name for name in drawn if name not in METRICS and not name.startswith(prefixes)} == set()
    told = found["triggers"]
    assert told["not_installed"] == {}
    assert told["undeclared"] == [], "handwritten triggers and their functions are gone"
    assert told["states"] == ["draft"]
    assert told["in_project"]
    assert {row.partition(":")[0] for row in told["noted"]} == {"accounts_project", "runs_run"}
    assert all(told["refused"].values()), told["refused"]
