"""Commands on repositories, tasks, suites, review queues and saved addresses: each command against the real API."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_web.accounts.models import User
from composer_web.env import env
from composer_web.repositories.models import Environment, Repository
from composer_web.review import services as review
from composer_web.review.questions import EXAMPLE
from composer_web.rollouts.models import Rollout
from composer_web.runs.models import Run
from composer_web.tasks import generation_jobs
from composer_web.tasks.models import Suite, Task
from tests.web.cli.support import Cli, data, error
from tests.web.repositories.test_repositories import archive, repository

pytestmark = pytest.mark.django_db


def test_repositories(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(env(), "git_roots", str(tmp_path))
    folder = repository(tmp_path / "shop", {"shop.py": "x = 1\n"})
    (made,) = data(cli("repositories", "create", "path", str(folder), "--revision", "HEAD", "--json"))
    assert (made["name"], made["state"]) == ("shop", "requested")
    packed = tmp_path / "cart-1.0.tar.gz"
    packed.write_bytes(archive({"cart/cart.py": "x = 1\n"}))
    (packaged,) = data(cli("repositories", "create", "archive", str(packed), "--name", "cart", "--json"))
    assert packaged["location"] == "cart-1.0.tar.gz"
    assert {one["name"] for one in data(cli("repositories", "list", "--json"))} == {"shop", "cart"}
    assert data(cli("builds", "stop", "shop", "--json"))[0]["state"] == "failed"
    assert cli("builds", "get", "shop", "--follow", "--json")[0] == 1
    assert error(capsys) == {"code": "failed", "message": "the build of shop is failed: cancelled before it began"}
    assert data(cli("builds", "start", "shop", "--json"))[0]["state"] == "requested"
    assert cli("builds", "get", "shop", "--follow", "--timeout", "0", "--json")[0] == 3
    assert "has not ended after 0 s" in error(capsys)["message"]
    assert data(cli("repositories", "get", "shop", "--json"))["source"] == f"path {folder} at HEAD"
    assert data(cli("builds", "get", "shop", "--json")) == {"log": ""}
    assert cli("repositories", "create", "path", "/etc", "--json")[0] == 1
    assert "location" in error(capsys)["fields"]
    assert cli("repositories", "create", "archive", str(tmp_path / "none"))[0] == 2
    assert Repository.objects.count() == Environment.objects.count() == 2


def test_generation_jobs_say_how_far_they_are(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    package = data(cli("generation-jobs", "list", "--json"))
    assert package == []
    assert cli("generation-jobs", "create", "mine", "no-such-package", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"packages"}
    empty, broken, slow = (create_job(name) for name in ("empty", "broken", "slow"))
    generation_jobs.finish(empty, tasks=0, why="nothing was kept")
    generation_jobs.fail(broken, why="no sandbox")
    found = {one["name"]: (one["state"], one["why"]) for one in data(cli("generation-jobs", "list", "--json"))}
    assert found == {
        "empty": ("empty", "nothing was kept"), "broken": ("failed", "no sandbox"), "slow": ("queued", ""),
    }  # fmt: skip
    again = create_job("broken")
    assert data(cli("generation-jobs", "list", "--json"))[0]["state"] == "queued", "asked for once more"
    generation_jobs.start(slow)
    generation_jobs.progress(slow, kept=1, tried=3, current="mutation · toolz")
    shown = data(cli("generation-jobs", "get", str(slow), "--json"))
    assert (shown["kept"], shown["tried"], shown["state"], shown["current"]) == (1, 3, "running", "mutation · toolz")
    assert shown["eta_seconds"] > 0 and shown["per_minute"] > 0
    assert cli("generation-jobs", "stop", str(again))[0] == 0
    assert generation_jobs.get(again).state == "stopped" and not generation_jobs.start(again)
    assert cli("generation-jobs", "stop", str(again))[0] == 1
    assert "has ended (stopped)" in capsys.readouterr().err


def create_job(name: str) -> int:
    job = generation_jobs.create(name=name, generators=["mutation"], packages=["toolz"], requested=4, actor=None)
    return job.pk


def test_tasks_are_curated(
    cli: Cli, reviewer: Cli, draft: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = [one["slug"] for one in data(cli("tasks", "list", "--suite", "train", "--json"))]
    assert data(cli("tasks", "get", first, "--json"))["slug"] == first
    (done,) = data(cli("tasks", "update", first, second, "--add-tags", "odd, plain", "--json"))
    assert done["changed"] == 2 and Task.objects.filter(tags__contains=["odd"]).count() == 2
    assert len(data(cli("tasks", "list", "--tag", "odd", "--json"))) == 2
    assert data(cli("task-changes", "delete", done["id"], "--json"))[0]["changed"] == 2
    assert not Task.objects.filter(tags__contains=["odd"]).exists()
    history = data(cli("task-changes", "list", "--task", first, "--json"))
    assert [one["undoes_id"] is not None for one in history] == [True, False]
    assert data(cli("suites", "create", "bench", "--reviewed", "--json"))[0]["purpose"] == "benchmark"
    assert data(reviewer("task-reviews", "get", "--suite", "train", "--json"))[0]["waiting"] == 12
    assert data(cli("task-reviews", "create", first, "accept", "--note", "good", "--json"))[0]["state"] == "one"
    assert data(reviewer("task-reviews", "create", first, "reject", "--json"))[0]["state"] == "disputed"
    assert data(cli("task-reviews", "list", "--json"))[0]["task"] == first
    assert data(reviewer("task-reviews", "delete", first, "--json"))[0]["mine"] == ""
    words = tmp_path / "words"
    words.write_text("Say it in other words.")
    assert data(cli("tasks", "update", second, "--instruction", str(words), "--json"))[0]["version"] == 2
    parts = data(cli("tasks", "get", second, "--compare", "1", "2", "--json"))
    assert any("+Say it in other words." in part["diff"] for part in parts)
    assert "+Say it in other words." in cli("tasks", "get", second, "--compare", "1", "2")[1]
    assert cli("tasks", "update", second, "--instruction", str(tmp_path / "none"))[0] == 2
    assert data(cli("controls", "start", "--suite", "train", "--json"))["requested"] > 0
    assert cli("releases", "create", "ours", "train", "--json")[0] == 1
    assert "passed validation" in error(capsys)["message"]
    assert Suite.objects.filter(name="bench", reviewed=True).exists()


def test_labels(cli: Cli, reviewer: Cli, trained: Run, people: dict[str, User]) -> None:
    queue = review.create_queue(name="quality", questionnaire=EXAMPLE, actor=people["operator"])
    review.fill(queue=queue, rollouts=Rollout.objects.all(), limit=2, actor=people["operator"])
    assert data(cli("review-queues", "list", "--json"))[0]["rollouts"] == 2
    assert data(cli("review-queues", "get", "quality", "--json"))["questions"][0]["id"] == "verdict"
    rollout = data(reviewer("review-queues", "get", "quality", "--next", "--json"))[0]["rollout"]
    answers = ("verdict=wrong", "quality=2", "flags=reward_hack,eager")
    made = data(reviewer("labels", "create", "quality", str(rollout), *answers, "--json"))
    assert made["answers"] == {"verdict": "wrong", "quality": "2", "flags": ["reward_hack", "eager"]}
    assert reviewer("labels", "create", "quality", str(rollout), "verdict")[0] == 2
    assert data(cli("review-queues", "get", "quality", "--rewards", "quality", "--json")) == [
        {"rollout": rollout, "value": 0.25}
    ]
    agreement = data(cli("review-queues", "get", "quality", "--agreement", "--json"))
    assert {one["question"] for one in agreement} >= {"verdict", "quality"}
    assert data(cli("labels", "list", "quality", "--json")) == []
    assert data(cli("rollouts", "list", "--label", "quality:flags=eager", "--json"))[0]["id"] == rollout
    assert data(cli("exclusions", "create", "quality", "flags", "reward_hack", "--json")) == [{"count": 1}]


def test_saved_views(cli: Cli, reviewer: Cli, draft: Run) -> None:
    for table, address in (("runs", "state=running"), ("findings", "severity=high&sort=-created_at")):
        (made,) = data(cli("views", "create", table, "mine", address, "--json"))
        assert (made["table"], made["query"], made["shared"], made["owner"]) == (table, address, False, "operator")
        assert data(reviewer("views", "list", "--json")) == []
        data(cli("views", "create", table, "mine", address, "--shared", "--json"))
        (seen,) = data(reviewer("views", "list", "--table", table, "--json"))
        assert (seen["id"], seen["shared"]) == (made["id"], True)
        assert reviewer("views", "delete", str(made["id"]))[0] == 1, "somebody else's"
        assert data(cli("views", "delete", str(made["id"]), "--json")) == {"deleted": made["id"]}
        assert cli("views", "list") == (0, "nothing\n")
    assert cli("views", "create", "policies", "mine", "")[0] == 1
