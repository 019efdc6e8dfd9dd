"""The command line from a team's own repository to a leaderboard, over real workers: what docs/api.md says to type."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from composer_web.accounts.models import User
from composer_web.accounts.services import create_token
from composer_web.env import REPOSITORY, env
from composer_web.policies.services import import_base
from oc.cli import main
from tests.web import workshop
from tests.web.test_oc import connected

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
def line(people: dict[str, User]) -> Callable[[str, str], Line]:
    """line(role, scope) runs `oc … --json` as that person: the objects that it printed, one of a list or of a stream each."""

    def of(role: str, scope: str) -> Line:
        _, secret = create_token(user=people[role], name="oc", scopes=[scope])

        def call(*words: str) -> Any:
            out = io.StringIO()
            status = main([*words, "--json"], client=connected(secret), out=out)
            assert status == 0, (words, out.getvalue())
            text = out.getvalue()
            return [json.loads(row) for row in text.splitlines()] if "--follow" in words else json.loads(text)

        return call

    return of


def test_from_a_repository_to_a_leaderboard(product: None, line: Callable[[str, str], Line], tmp_path: Path) -> None:
    import_base(path=REPOSITORY / "policies" / "base", name="base", toy=True)
    folder = workshop.write_repository(tmp_path / workshop.NAME)
    oc, other = line("operator", "operate"), line("reviewer", "review")

    *log, environment = oc("repositories", "add", "path", str(folder), "--follow")
    assert (environment["name"], environment["state"]) == ("abacus", "ready")
    assert any("goal 10" in one["log"] for one in log) and environment["detail"]["unseen_goals_met"].startswith(
        "7 of 7"
    )
    assert oc("repositories", "list")[0]["licence"] == "MIT"

    (suite,) = oc("tasks", "generate", "fresh", "abacus", "--purpose", "benchmark", "--count", "3", "--follow")
    assert suite["valid_count"] == suite["task_count"] >= 2
    assert oc("tasks", "orders")[0]["state"] == "made"
    assert sum(one["kept"] for one in oc("tasks", "yields")) == suite["task_count"]

    assert oc("suites", "open", "bench", "--reviewed")[0]["reviewed"]
    slugs = [one["slug"] for one in oc("tasks", "list", "--suite", "fresh")]
    for person, state in ((oc, "one"), (other, "admitted")):
        for slug in slugs:
            assert person("tasks", "next", "--suite", "fresh")[0]["waiting"] > 0
            assert person("tasks", "review", slug, "accept", "--into", "bench")[0]["state"] == state
    assert other("tasks", "next", "--suite", "fresh")[0] == {"task": None, "waiting": 0}

    (release,) = oc("releases", "publish", "ours", "bench", "--notes", "from our own code")
    assert (release["benchmark"], release["number"], release["unreviewed"]) == ("ours", 1, 0)
    *_, evaluation = oc("releases", "run", "ours", "1", "base", "--samples", "2", "--price-output", "2", "--follow")
    assert evaluation["state"] == "finished" and evaluation["results"]["verdicts"]["infra_error"] == 0
    board = oc("releases", "standings", "ours", "1")
    (row,) = board["standings"]
    assert (row["name"], row["evaluation"]) == ("base@0", evaluation["id"])
    assert row["score"] == evaluation["results"]["pass1"]
    assert row["tokens"] > 0
