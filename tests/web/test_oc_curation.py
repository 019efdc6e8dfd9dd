"""`oc` on repositories, tasks, suites, review queues and saved addresses: each command against the real API."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from composer_web.accounts.models import User
from composer_web.accounts.services import create_token
from composer_web.env import env
from composer_web.repositories.models import Environment, Repository
from composer_web.review import services as review
from composer_web.review.questions import EXAMPLE
from composer_web.rollouts.models import Rollout
from composer_web.runs.models import Run
from composer_web.tasks import orders
from composer_web.tasks.models import Suite, Task
from oc.cli import main
from tests.web.test_oc import Oc, connected, data, oc, trained
from tests.web.test_repositories import archive, repository

__all__ = ["oc", "trained"]  # fixtures
pytestmark = pytest.mark.django_db


@pytest.fixture
def reviewer(people: dict[str, User]) -> Oc:
    _, secret = create_token(user=people["reviewer"], name="oc", scopes=["review"])

    def call(*words: str) -> tuple[int, str]:
        out = io.StringIO()
        return main(words, client=connected(secret), out=out), out.getvalue()

    return call


def error(captured: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(captured.readouterr().err.splitlines()[-1])["error"]
    return found


def test_repositories(
    oc: Oc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(env(), "git_roots", str(tmp_path))
    folder = repository(tmp_path / "shop", {"shop.py": "x = 1\n"})
    (made,) = data(oc("repositories", "add", "path", str(folder), "--revision", "HEAD", "--json"))
    assert (made["name"], made["state"]) == ("shop", "requested")
    packed = tmp_path / "cart-1.0.tar.gz"
    packed.write_bytes(archive({"cart/cart.py": "x = 1\n"}))
    assert (
        data(oc("repositories", "upload", str(packed), "--name", "cart", "--json"))[0]["location"] == "cart-1.0.tar.gz"
    )
    assert {one["name"] for one in data(oc("repositories", "list", "--json"))} == {"shop", "cart"}
    assert data(oc("repositories", "cancel", "shop", "--json"))[0]["state"] == "failed"
    assert oc("repositories", "follow", "shop", "--json")[0] == 1
    assert error(capsys) == {"code": "failed", "message": "shop: cancelled before it began"}
    assert data(oc("repositories", "again", "shop", "--json"))[0]["state"] == "requested"
    assert oc("repositories", "follow", "shop", "--timeout", "0", "--json")[0] == 3
    assert "has not ended after 0 s" in error(capsys)["message"]
    assert data(oc("repositories", "show", "shop", "--json"))["source"] == f"path {folder} at HEAD"
    assert data(oc("repositories", "log", "shop", "--json")) == {"log": ""}
    assert oc("repositories", "add", "path", "/etc", "--json")[0] == 1
    assert "location" in error(capsys)["fields"]
    assert oc("repositories", "upload", str(tmp_path / "none"))[0] == 2
    assert Repository.objects.count() == Environment.objects.count() == 2


def test_orders_say_what_became_of_them(oc: Oc, capsys: pytest.CaptureFixture[str]) -> None:
    package = data(oc("tasks", "orders", "--json"))
    assert package == []
    assert oc("tasks", "generate", "mine", "no-such-package", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"packages"}
    for name in ("empty", "broken", "slow"):
        orders.asked(name=name, generators=["mutation"], actor=None)
    orders.ended(name="empty", tasks=0, why="nothing was kept")
    orders.failed(name="broken", why="no sandbox")
    found = {one["name"]: (one["state"], one["why"]) for one in data(oc("tasks", "orders", "--json"))}
    assert found == {
        "empty": ("no task", "nothing was kept"), "broken": ("failed", "no sandbox"), "slow": ("under way", ""),
    }  # fmt: skip
    orders.asked(name="broken", generators=["mutation"], actor=None)
    assert data(oc("tasks", "orders", "--json"))[0]["state"] == "under way", "asked for once more"


def test_tasks_are_curated(
    oc: Oc, reviewer: Oc, draft: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = [one["slug"] for one in data(oc("tasks", "list", "--suite", "train", "--json"))]
    assert data(oc("tasks", "show", first, "--json"))["slug"] == first
    (done,) = data(oc("tasks", "change", "tag", "odd, plain", first, second, "--json"))
    assert done["changed"] == 2 and Task.objects.filter(tags__contains=["odd"]).count() == 2
    assert len(data(oc("tasks", "list", "--tag", "odd", "--json"))) == 2
    assert data(oc("tasks", "undo", done["id"], "--json"))[0]["changed"] == 2
    assert not Task.objects.filter(tags__contains=["odd"]).exists()
    history = data(oc("tasks", "history", "--task", first, "--json"))
    assert [one["undoes_id"] is not None for one in history] == [True, False]
    assert data(oc("suites", "open", "bench", "--reviewed", "--json"))[0]["purpose"] == "benchmark"
    assert data(reviewer("tasks", "next", "--suite", "train", "--json"))[0]["waiting"] == 12
    assert data(oc("tasks", "review", first, "accept", "--note", "good", "--json"))[0]["state"] == "one"
    assert data(reviewer("tasks", "review", first, "reject", "--json"))[0]["state"] == "disputed"
    assert data(oc("tasks", "disagreements", "--json"))[0]["task"] == first
    assert data(reviewer("tasks", "review", first, "withdraw", "--json"))[0]["mine"] == ""
    words = tmp_path / "words"
    words.write_text("Say it in other words.")
    assert data(oc("tasks", "edit", second, str(words), "--json"))[0]["version"] == 2
    parts = data(oc("tasks", "compare", second, "1", "2", "--json"))
    assert any("+Say it in other words." in part["diff"] for part in parts)
    assert "+Say it in other words." in oc("tasks", "compare", second, "1", "2")[1]
    assert oc("tasks", "edit", second, str(tmp_path / "none"))[0] == 2
    assert data(oc("suites", "controls", "train", "--json"))["requested"] > 0
    assert oc("releases", "publish", "ours", "train", "--json")[0] == 1
    assert "controls" in error(capsys)["message"]
    assert Suite.objects.filter(name="bench", reviewed=True).exists()


def test_labels(oc: Oc, reviewer: Oc, trained: Run, people: dict[str, User]) -> None:
    queue = review.create_queue(name="quality", questionnaire=EXAMPLE, actor=people["operator"])
    review.fill(queue=queue, rollouts=Rollout.objects.all(), limit=2, actor=people["operator"])
    assert data(oc("review", "list", "--json"))[0]["rollouts"] == 2
    assert data(oc("review", "show", "quality", "--json"))["questions"][0]["id"] == "verdict"
    rollout = data(reviewer("review", "next", "quality", "--json"))[0]["rollout"]
    answers = ("verdict=wrong", "quality=2", "flags=reward_hack,eager")
    made = data(reviewer("review", "label", "quality", str(rollout), *answers, "--json"))
    assert made["answers"] == {"verdict": "wrong", "quality": "2", "flags": ["reward_hack", "eager"]}
    assert reviewer("review", "label", "quality", str(rollout), "verdict")[0] == 2
    assert data(oc("review", "rewards", "quality", "quality", "--json")) == [{"rollout": rollout, "value": 0.25}]
    assert {one["question"] for one in data(oc("review", "agreement", "quality", "--json"))} >= {"verdict", "quality"}
    assert data(oc("review", "disagreements", "quality", "--json")) == []
    assert data(oc("rollouts", "list", "--label", "quality:flags=eager", "--json"))[0]["id"] == rollout
    assert data(oc("review", "exclude", "quality", "flags", "reward_hack", "--json")) == [{"count": 1}]


def test_views_and_queries(oc: Oc, reviewer: Oc, draft: Run) -> None:
    for noun, address in (("views", "state=running"), ("queries", "verdict=failed&sort=-reward")):
        (made,) = data(oc(noun, "save", "mine", address, "--json"))
        assert (made["query"], made["shared"], made["owner"]) == (address, False, "operator")
        assert data(reviewer(noun, "list", "--json")) == []
        data(oc(noun, "save", "mine", address, "--shared", "--json"))
        (seen,) = data(reviewer(noun, "list", "--json"))
        assert (seen["id"], seen["shared"]) == (made["id"], True)
        assert reviewer(noun, "delete", str(made["id"]))[0] == 1, "somebody else's"
        assert data(oc(noun, "delete", str(made["id"]), "--json")) == {"deleted": made["id"]}
        assert oc(noun, "list") == (0, "nothing\n")
