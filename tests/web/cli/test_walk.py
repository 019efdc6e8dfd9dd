"""The command line from a repository to a leaderboard, over real workers: what docs/guides/benchmark.md says to type."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from composer_web.env import REPOSITORY, env
from composer_web.policies.services import import_base
from tests.web import workshop
from tests.web.cli.support import Cli

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.django_db(transaction=True)]

Line = Callable[..., Any]


@pytest.fixture
def product(tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OPENCOMPOSER_GIT_ROOTS", str(tmp_path))
    env.cache_clear()
    with workshop.registry() as index, workshop.workers(tmp_path, free_port, roots=tmp_path, index=index):
        yield
    env.cache_clear()


@pytest.fixture
def answers(line: Callable[[str, str], Cli]) -> Callable[[str, str], Line]:
    """answers(role, scope) runs a command with `--json` as that person: its objects, one of a list or of a stream each."""

    def of(role: str, scope: str) -> Line:
        run = line(role, scope)

        def call(*words: str) -> Any:
            status, text = run(*words, "--json")
            assert status == 0, (words, text)
            return [json.loads(row) for row in text.splitlines()] if "--follow" in words else json.loads(text)

        return call

    return of


def test_from_a_repository_to_a_leaderboard(product: None, answers: Callable[[str, str], Line], tmp_path: Path) -> None:
    import_base(path=REPOSITORY / "policies" / "base", name="base", toy=True)
    folder = workshop.write_repository(tmp_path / workshop.NAME)
    cli, other = answers("operator", "operate"), answers("reviewer", "review")

    *log, environment = cli("repositories", "create", "path", str(folder), "--follow")
    assert (environment["name"], environment["state"]) == ("abacus", "ready")
    assert any("goal 10" in one["log"] for one in log) and environment["detail"]["unseen_goals_met"].startswith(
        "7 of 7"
    )
    assert cli("repositories", "list")[0]["licence"] == "MIT"

    (suite,) = cli("generation-jobs", "create", "fresh", "abacus", "--purpose", "benchmark", "--count", "3", "--follow")
    assert suite["valid_count"] == suite["task_count"] >= 2
    assert cli("generation-jobs", "list")[0]["state"] == "finished"
    assert sum(one["kept"] for one in cli("generator-runs", "list")) == suite["task_count"]

    assert cli("suites", "create", "bench", "--reviewed")[0]["reviewed"]
    slugs = [one["slug"] for one in cli("tasks", "list", "--suite", "fresh")]
    for person, state in ((cli, "one"), (other, "admitted")):
        for slug in slugs:
            assert person("task-reviews", "get", "--suite", "fresh")[0]["waiting"] > 0
            assert person("task-reviews", "create", slug, "accept", "--into", "bench")[0]["state"] == state
    assert other("task-reviews", "get", "--suite", "fresh")[0] == {"task": None, "waiting": 0}

    (release,) = cli("releases", "create", "ours", "bench", "--notes", "from our own code")
    assert (release["benchmark"], release["number"], release["unreviewed"]) == ("ours", 1, 0)
    *_, evaluation = cli(
        "evaluations", "create", "base", "--release", "ours@1", "--samples", "2", "--price-output", "2", "--follow"
    )
    assert evaluation["state"] == "finished" and evaluation["results"]["verdicts"]["infra_error"] == 0
    board = cli("leaderboards", "get", "ours", "1")
    (row,) = board["standings"]
    assert (row["name"], row["evaluation"]) == ("base@0", evaluation["id"])
    assert row["score"] == evaluation["results"]["pass1"]
    assert row["tokens"] > 0
