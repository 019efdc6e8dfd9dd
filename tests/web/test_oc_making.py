"""`oc` on what is made and comes in or leaves: templates, sweeps, drafts, endpoints, suites, queues, rewards, projects."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import Project, User
from composer_web.accounts.projects import create_project
from composer_web.policies import endpoints
from composer_web.policies.models import Policy
from composer_web.repositories.models import Environment
from composer_web.review import promoting
from composer_web.rollouts.models import Rollout
from composer_web.runs.models import Run, RunTemplate
from composer_web.runs.text import render
from composer_web.tasks import importing
from composer_web.tasks.models import Suite
from tests.chat_server import ChatServer
from tests.sandbox.tasks.formats.examples import RECORD
from tests.web.making import SMALL
from tests.web.test_drafts import rollout
from tests.web.test_evals_endpoints import KEY, allowed, server
from tests.web.test_importing import checkout, lines, row
from tests.web.test_oc import Oc, data, oc, trained
from tests.web.test_oc_curation import error, reviewer
from tests.web.test_oc_installation import line
from trainer.config import RunConfig

__all__ = ["allowed", "checkout", "line", "oc", "reviewer", "rollout", "server", "trained"]  # fixtures
pytestmark = pytest.mark.django_db


def test_templates_are_kept_changed_and_deleted(
    draft: Run, oc: Oc, reviewer: Oc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(render(RunConfig(name="ours", stage=SMALL), "yaml"))
    (made,) = data(oc("templates", "save", "ours", str(file), "--set", "seed=7", "--description", "to start", "--json"))
    assert (made["name"], made["description"], made["config"]["seed"]) == ("ours", "to start", 7)
    assert data(oc("templates", "show", "ours", "--json")) == made
    (changed,) = data(oc("templates", "change", "ours", "--set", "seed=8", "--json"))
    assert (changed["config"]["seed"], changed["config"]["stage"]) == (8, made["config"]["stage"])
    (changed,) = data(oc("templates", "change", "ours", "--name", "theirs", "--description", "", "--json"))
    assert (changed["id"], changed["name"], changed["config"]["seed"]) == (made["id"], "theirs", 8)
    assert oc("templates", "change", "theirs")[0] == 2 and "what to change" in capsys.readouterr().err
    assert oc("templates", "show", "ours")[0] == 2 and "there are: theirs" in capsys.readouterr().err
    assert reviewer("templates", "delete", "theirs", "--json")[0] == 1, "operators may"
    assert error(capsys)["code"] == "forbidden"
    assert data(oc("templates", "delete", "theirs", "--json")) == {"deleted": made["id"]}
    assert not RunTemplate.objects.exists()


def test_a_sweep_is_shown_with_what_it_varies(draft: Run, oc: Oc, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(render(RunConfig(name="ours", stage=SMALL), "yaml"))
    assert oc("sweeps", "list") == (0, "nothing\n")
    made = data(oc("runs", "sweep", str(file), "--vary", "seed=1,2,3", "--draft", "--json"))
    assert [one["id"] for one in data(oc("sweeps", "list", "--json"))] == [made["id"]]
    found = data(oc("sweeps", "show", str(made["id"]), "--json"))
    assert [one["values"] for one in found["runs"]] == [[1], [2], [3]] and found["sweep"]["runs"] == 3
    shown = oc("sweeps", "show", str(made["id"]))[1].splitlines()
    assert shown[3].split() == ["id", "state", "step", "seed"]
    assert [one.split()[1::2] for one in shown[4:]] == [["draft", "1"], ["draft", "2"], ["draft", "3"]]


def test_the_reward_of_a_live_run(running: Run, oc: Oc, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pk, file = str(running.pk), tmp_path / "reward.json"
    reward = data(oc("runs", "reward", pk, "--json"))
    assert reward["length_coefficient"] != 0.25
    file.write_text(json.dumps({**reward, "length_coefficient": 0.25}))
    assert data(oc("runs", "set-reward", pk, str(file), "--json"))["kind"]
    assert data(oc("runs", "reward", pk, "--json"))["length_coefficient"] == 0.25
    file.write_text('{"length_coefficient": "much"}')
    assert oc("runs", "set-reward", pk, str(file), "--json")[0] == 1
    assert "reward.length_coefficient" in error(capsys)["fields"]


def test_a_draft_becomes_a_task(
    rollout: Rollout, oc: Oc, reviewer: Oc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words"
    words.write_text("Finish what was begun.")
    (made,) = data(reviewer("drafts", "make", str(rollout.pk), "1", "begun", str(words), "--json"))
    assert (made["slug"], made["state"], made["instruction"]) == ("begun", "collecting", "Finish what was begun.")
    pk = str(made["id"])
    assert reviewer("drafts", "publish", pk, "--json")[0] == 1
    assert "it is collecting" in error(capsys)["message"]
    promoting.collect(made["id"])
    assert [one["state"] for one in data(oc("drafts", "list", "--json"))] == ["open"]
    gold = tmp_path / "gold.json"
    gold.write_text('{"a.py": "x = 2\\n"}')
    (changed,) = data(reviewer("drafts", "change", pk, "--category", "feature", "--gold", str(gold), "--json"))
    assert (changed["category"], changed["instruction"]) == ("feature", "Finish what was begun.")
    (done,) = data(reviewer("drafts", "publish", pk, "--json"))
    assert (done["state"], done["task"]) == ("published", "begun")
    task = data(reviewer("tasks", "show", "begun", "--json"))
    assert (task["category"], task["spec"]["gold"]) == ("feature", {"a.py": "x = 2\n"})
    assert data(oc("drafts", "show", pk, "--json"))["task"] == "begun"
    (other,) = data(reviewer("drafts", "make", str(rollout.pk), "0", "other", str(words), "--json"))
    assert data(reviewer("drafts", "discard", str(other["id"]), "--json"))[0]["state"] == "discarded"
    assert reviewer("drafts", "make", str(rollout.pk), "9", "late", str(words), "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"turn"}
    assert reviewer("drafts", "make", str(rollout.pk), "1", "x", str(tmp_path / "none"))[0] == 2


def test_endpoints_keep_their_keys_to_themselves(
    server: ChatServer,
    people: dict[str, User],
    oc: Oc,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{KEY}\n"))
    words = ("--key", "--price-output", "3", "--no-temperature", "--parameter", "top_p=0.9")
    (made,) = data(oc("endpoints", "add", "remote", server.url, "m-1", *words, "--json"))
    assert (made["has_key"], made["price_output"], made["takes_temperature"]) == (True, 3.0, False)
    assert made["parameters"] == {"top_p": 0.9}
    assert endpoints.asked(endpoints.get("remote")).key.get_secret_value() == KEY
    listed, shown = oc("endpoints", "list", "--json"), oc("endpoints", "show", "remote", "--json")
    assert data(listed) == [data(shown)] == [made]
    assert KEY not in listed[1] + shown[1] + oc("endpoints", "list")[1]
    (changed,) = data(oc("endpoints", "change", "remote", "--effort", "high", "--json"))
    assert changed == {**made, "effort": "high"}, "what is not named stays, the key too"
    assert oc("endpoints", "change", "remote", "--key")[0] == 2, "standard input is empty now"
    assert "--no-key" in capsys.readouterr().err
    assert data(oc("endpoints", "change", "remote", "--no-key", "--json"))[0]["has_key"] is False
    assert oc("endpoints", "add", "inside", "http://10.0.0.7/v1", "m", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"url"}
    elsewhere = create_project(slug="elsewhere", name="Elsewhere", actor=None)
    Project.objects.exclude(pk=elsewhere.pk).update(library=False)
    with acting(Access(0, "operator", elsewhere.pk, scope=elsewhere.pk)):
        assert list(endpoints.endpoints()) == [], "another project's"


def test_suites_leave_and_come_in(
    draft: Run, oc: Oc, reviewer: Oc, checkout: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.zip"
    assert reviewer("suites", "export", "train")[0] == 2
    assert "name a file with -o" in capsys.readouterr().err
    assert reviewer("suites", "export", "train", "-o", str(file)) == (0, "")
    (made,) = data(reviewer("suites", "import", "again", str(file), "--purpose", "train", "--json"))
    assert (made["suite"], made["tasks"]) == ("again", 12)
    assert Suite.objects.get(name="again").purpose == "train"
    members = data(oc("suites", "members", "again", "--json"))
    assert [one["position"] for one in members] == list(range(12))
    assert data(oc("suites", "members", "again", "--limit", "5", "--json")) == members[:5]
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(lines(row()))
    words = ("suites", "import", "benches", str(rows), "--format", "swe-bench")
    assert reviewer(*words, "--json")[0] == 1
    assert "environment" in error(capsys)["fields"]
    assert data(reviewer(*words, "--environment", "add", "--json"))[0]["tasks"] == 1
    (slug,) = [one["task"] for one in data(oc("suites", "members", "benches", "--json"))]
    text = reviewer("tasks", "export", slug, "--format", "swe-bench")[1]
    assert json.loads(text)["problem_statement"] == "Adding is wrong."
    bundle = tmp_path / "bundles.json"
    spec = data(reviewer("tasks", "show", slug, "--json"))["spec"]
    bundle.write_text(json.dumps([{**spec, "id": "by-hand"}]))
    assert data(reviewer("suites", "make", "made", str(bundle), "--json"))[0]["task_count"] == 1
    assert data(oc("tasks", "controls", "by-hand", "--json"))["requested"] > 0
    assert data(oc("environments", "list", "--json"))[0]["name"] == "add"
    assert data(oc("environments", "show", "add", "--json"))["state"] == "ready"
    assert oc("environments", "build", "no such package", "--json")[0] == 1


def test_how_hard_a_suite_is(draft: Run, oc: Oc) -> None:
    asked = data(oc("suites", "prepass", "train", "base", "--tasks", "2", "--samples", "1", "--json"))
    found = data(oc("evals", "show", str(asked["evaluation"]), "--json"))
    assert (found["suite"], found["tasks"], found["samples"]) == ("train", 2, 1)
    assert oc("suites", "difficulty", "train") == (0, "nothing\n")


def test_rollouts_and_trajectories_in_other_formats(
    trained: Run, oc: Oc, reviewer: Oc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (group, *_) = data(oc("groups", "list", "--run", str(trained.pk), "--state", "accepted", "--json"))
    pk = str(data(oc("groups", "show", str(group["id"]), "--json"))["rollouts"][0]["id"])
    assert json.loads(oc("rollouts", "export", pk, "--format", "atif")[1])["steps"]
    file = tmp_path / "talk.json"
    said = data(oc("rollouts", "export", pk, "--format", "messages", "-o", str(file), "--json"))
    assert said["file"] == str(file) and said["not_carried"] and json.loads(file.read_text())
    assert oc("rollouts", "export", pk, "--format", "atif", "--tokens")[0] == 2
    record = tmp_path / "record.json"
    record.write_bytes(importing.write_trajectory(RECORD, "atif")[0])
    (kept,) = data(reviewer("trajectories", "import", str(record), "--json"))
    assert json.loads(oc("trajectories", "export", kept["name"], "--format", "messages")[1])
    assert oc("trajectories", "export", "none", "--json")[0] == 1
    assert error(capsys)["code"] == "not_found"


def test_a_queue_is_made_filled_and_closed(
    trained: Run, oc: Oc, reviewer: Oc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = tmp_path / "questions.json"
    options = [{"value": "right"}, {"value": "wrong"}]
    questions.write_text(json.dumps([{"id": "verdict", "kind": "choice", "text": "Right?", "options": options}]))
    words = (
        "review",
        "make",
        "looked",
        str(questions),
        "--filters",
        f"run={trained.pk}&verdict=passed",
        "--limit",
        "1",
    )
    assert data(oc(*words, "--json"))[0]["rollouts"] == 1
    found = len(data(oc("rollouts", "list", "--run", str(trained.pk), "--json")))
    assert data(oc("review", "fill", "looked", "--filters", f"run={trained.pk}", "--json")) == [{"count": found - 1}]
    rollout = str(data(reviewer("review", "next", "looked", "--json"))[0]["rollout"])
    assert reviewer("review", "labels", "looked", rollout)[0] == 2
    assert "when you have answered" in capsys.readouterr().err
    data(reviewer("review", "label", "looked", rollout, "verdict=right", "--json"))
    assert data(reviewer("review", "labels", "looked", rollout, "--json"))[0]["answers"] == {"verdict": "right"}
    assert data(oc("review", "close", "looked", "--json"))[0]["closed_at"]
    assert reviewer("review", "label", "looked", rollout, "verdict=wrong", "--json")[0] == 1
    assert error(capsys)["code"] == "conflict"
    assert data(oc("review", "open", "looked", "--json"))[0]["closed_at"] is None


def test_evaluations_side_by_side(draft: Run, policy: Policy, oc: Oc, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (
        str(data(oc("evals", "launch", "base", "train", "--tasks", "2", "--samples", "1", "--json"))[0]["id"])
        for _ in range(2)
    )
    assert oc("evals", "compare", before, before, "--json")[0] == 1
    capsys.readouterr()
    answer = oc("evals", "compare", before, after, "--json")
    assert answer[0] == 1 or data(answer)["changes"] == []
    capsys.readouterr()
    slug = data(oc("tasks", "list", "--suite", "train", "--limit", "1", "--json"))[0]["slug"]
    assert data(oc("evals", "history", slug, "--json")) == []
    assert oc("evals", "history", slug) == (0, "nothing\n")
    assert oc("evals", "grade", before, "--json")[0] == 1, "it has no side evaluations"


def test_a_project_changes_by_what_is_named(line: Callable[[str, str], Oc], capsys: pytest.CaptureFixture[str]) -> None:
    oc = line("admin", "admin")
    data(oc("projects", "make", "ours", "Ours", "--json"))
    (changed,) = data(oc("projects", "change", "ours", "--library", "--json"))
    assert (changed["name"], changed["library"], changed["archived"]) == ("Ours", True, False)
    (changed,) = data(oc("projects", "change", "ours", "--name", "All of us", "--no-library", "--json"))
    assert (changed["name"], changed["library"]) == ("All of us", False)
    assert oc("projects", "change", "none", "--library")[0] == 2
    assert "no project 'none'" in capsys.readouterr().err
