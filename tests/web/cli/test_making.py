"""Commands on what is made and comes in or leaves: templates, sweeps, drafts, endpoints, suites, queues, rewards, projects."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import Project, User
from composer_web.accounts.projects import create_project
from composer_web.policies import endpoints
from composer_web.policies.models import Policy
from composer_web.repositories.models import Environment
from composer_web.review import task_drafts
from composer_web.rollouts.models import Rollout
from composer_web.runs.launch.config_io import render
from composer_web.runs.models import Run, RunTemplate
from composer_web.tasks.exchange import importing
from composer_web.tasks.models import Suite
from tests.chat_server import ChatServer
from tests.sandbox.formats.examples import RECORD
from tests.web.cli.support import Cli, data, error
from tests.web.evals.test_evals_endpoints import KEY, allowed, server
from tests.web.making import SMALL
from tests.web.review.test_drafts import rollout
from tests.web.tasks.test_importing import checkout, lines, row
from trainer.config import RunConfig

__all__ = ["allowed", "checkout", "rollout", "server"]  # fixtures
pytestmark = pytest.mark.django_db


def test_templates_are_kept_changed_and_deleted(
    draft: Run, cli: Cli, reviewer: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(render(RunConfig(name="ours", stage=SMALL), "yaml"))
    (made,) = data(
        cli("templates", "create", "ours", str(file), "--set", "seed=7", "--description", "to start", "--json")
    )
    assert (made["name"], made["description"], made["config"]["seed"]) == ("ours", "to start", 7)
    assert data(cli("templates", "get", "ours", "--json")) == made
    (changed,) = data(cli("templates", "update", "ours", "--set", "seed=8", "--json"))
    assert (changed["config"]["seed"], changed["config"]["stage"]) == (8, made["config"]["stage"])
    (changed,) = data(cli("templates", "update", "ours", "--name", "theirs", "--description", "", "--json"))
    assert (changed["id"], changed["name"], changed["config"]["seed"]) == (made["id"], "theirs", 8)
    assert cli("templates", "update", "theirs")[0] == 2 and "what to change" in capsys.readouterr().err
    assert cli("templates", "get", "ours")[0] == 2 and "there are: theirs" in capsys.readouterr().err
    assert reviewer("templates", "delete", "theirs", "--json")[0] == 1, "operators may"
    assert error(capsys)["code"] == "forbidden"
    assert data(cli("templates", "delete", "theirs", "--json")) == {"deleted": made["id"]}
    assert not RunTemplate.objects.exists()


def test_a_sweep_is_shown_with_what_it_varies(draft: Run, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(render(RunConfig(name="ours", stage=SMALL), "yaml"))
    assert cli("sweeps", "list") == (0, "nothing\n")
    made = data(cli("sweeps", "create", str(file), "--vary", "seed=1,2,3", "--json"))
    assert [one["id"] for one in data(cli("sweeps", "list", "--json"))] == [made["id"]]
    found = data(cli("sweeps", "get", str(made["id"]), "--json"))
    assert [one["values"] for one in found["runs"]] == [[1], [2], [3]] and found["sweep"]["runs"] == 3
    shown = cli("sweeps", "get", str(made["id"]))[1].splitlines()
    assert shown[3].split() == ["id", "state", "step", "seed"]
    assert [one.split()[1::2] for one in shown[4:]] == [["draft", "1"], ["draft", "2"], ["draft", "3"]]


def test_the_reward_of_a_live_run(running: Run, cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pk, file = str(running.pk), tmp_path / "reward.json"
    reward = data(cli("rewards", "get", pk, "--json"))
    assert reward["length_coefficient"] != 0.25
    file.write_text(json.dumps({**reward, "length_coefficient": 0.25}))
    assert data(cli("rewards", "update", pk, str(file), "--json"))["kind"]
    assert data(cli("rewards", "get", pk, "--json"))["length_coefficient"] == 0.25
    file.write_text('{"length_coefficient": "much"}')
    assert cli("rewards", "update", pk, str(file), "--json")[0] == 1
    assert "reward.length_coefficient" in error(capsys)["fields"]


def test_a_draft_becomes_a_task(
    rollout: Rollout, cli: Cli, reviewer: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words"
    words.write_text("Finish what was begun.")
    make = ("drafts", "create", "--rollout", str(rollout.pk))
    (made,) = data(reviewer(*make, "--turn", "1", "begun", str(words), "--json"))
    assert (made["slug"], made["state"], made["instruction"]) == ("begun", "collecting", "Finish what was begun.")
    pk = str(made["id"])
    assert reviewer("drafts", "start", pk, "--json")[0] == 1
    assert "it is collecting" in error(capsys)["message"]
    task_drafts.collect(made["id"])
    assert [one["state"] for one in data(cli("drafts", "list", "--json"))] == ["open"]
    gold = tmp_path / "gold.json"
    gold.write_text('{"a.py": "x = 2\\n"}')
    (changed,) = data(reviewer("drafts", "update", pk, "--category", "feature", "--gold", str(gold), "--json"))
    assert (changed["category"], changed["instruction"]) == ("feature", "Finish what was begun.")
    (done,) = data(reviewer("drafts", "start", pk, "--json"))
    assert (done["state"], done["task"]) == ("published", "begun")
    task = data(reviewer("tasks", "get", "begun", "--json"))
    assert (task["category"], task["spec"]["gold"]) == ("feature", {"a.py": "x = 2\n"})
    assert data(cli("drafts", "get", pk, "--json"))["task"] == "begun"
    (other,) = data(reviewer(*make, "--turn", "0", "other", str(words), "--json"))
    assert data(reviewer("drafts", "delete", str(other["id"]), "--json"))[0]["state"] == "discarded"
    assert reviewer(*make, "--turn", "9", "late", str(words), "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"turn"}
    assert reviewer(*make, "--turn", "1", "x", str(tmp_path / "none"))[0] == 2


def test_endpoints_keep_their_keys_to_themselves(
    server: ChatServer,
    people: dict[str, User],
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{KEY}\n"))
    words = ("--key", "--price-output", "3", "--no-temperature", "--parameter", "top_p=0.9")
    (made,) = data(cli("endpoints", "create", "remote", server.url, "m-1", *words, "--json"))
    assert (made["has_key"], made["price_output"], made["takes_temperature"]) == (True, 3.0, False)
    assert made["parameters"] == {"top_p": 0.9}
    assert endpoints.asked(endpoints.get("remote")).key.get_secret_value() == KEY
    listed, shown = cli("endpoints", "list", "--json"), cli("endpoints", "get", "remote", "--json")
    assert data(listed) == [data(shown)] == [made]
    assert KEY not in listed[1] + shown[1] + cli("endpoints", "list")[1]
    (changed,) = data(cli("endpoints", "update", "remote", "--effort", "high", "--json"))
    assert changed == {**made, "effort": "high"}, "what is not named stays, the key too"
    assert cli("endpoints", "update", "remote", "--key")[0] == 2, "standard input is empty now"
    assert "--no-key" in capsys.readouterr().err
    assert data(cli("endpoints", "update", "remote", "--no-key", "--json"))[0]["has_key"] is False
    assert cli("endpoints", "create", "inside", "http://10.0.0.7/v1", "m", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"url"}
    elsewhere = create_project(slug="elsewhere", name="Elsewhere", actor=None)
    Project.objects.exclude(pk=elsewhere.pk).update(library=False)
    with acting(Access(0, "operator", elsewhere.pk, scope=elsewhere.pk)):
        assert list(endpoints.endpoints()) == [], "another project's"


def made_of(file: Path, name: str, form: str) -> tuple[str, ...]:
    return ("suites", "create", name, "--file", str(file), "--format", form)


def test_suites_leave_and_come_in(
    draft: Run, cli: Cli, reviewer: Cli, checkout: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.zip"
    assert reviewer("suites", "get", "train", "--format", "harbor")[0] == 2
    assert "name a file with -o" in capsys.readouterr().err
    assert reviewer("suites", "get", "train", "--format", "harbor", "-o", str(file)) == (0, "")
    (made,) = data(reviewer(*made_of(file, "again", "harbor"), "--purpose", "train", "--json"))
    assert (made["suite"], made["tasks"]) == ("again", 12)
    assert Suite.objects.get(name="again").purpose == "train"
    members = data(cli("suite-tasks", "list", "again", "--json"))
    assert [one["position"] for one in members] == list(range(12))
    assert data(cli("suite-tasks", "list", "again", "--limit", "5", "--json")) == members[:5]
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path / "folder")
    one = sorted(path for path in (tmp_path / "folder").iterdir())[0]
    for folder, tasks in ((one, 1), (tmp_path / "folder", 12)):
        made = data(reviewer(*made_of(folder, f"of-{tasks}", "harbor"), "--purpose", "train", "--json"))[0]
        assert made["tasks"] == tasks
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(lines(row()))
    words = made_of(rows, "benches", "swe-bench")
    assert reviewer(*words, "--json")[0] == 1
    assert "environment" in error(capsys)["fields"]
    assert data(reviewer(*words, "--environment", "add", "--json"))[0]["tasks"] == 1
    (slug,) = [one["task"] for one in data(cli("suite-tasks", "list", "benches", "--json"))]
    text = reviewer("tasks", "get", slug, "--format", "swe-bench")[1]
    assert json.loads(text)["problem_statement"] == "Adding is wrong."
    bundle = tmp_path / "bundles.json"
    spec = data(reviewer("tasks", "get", slug, "--json"))["spec"]
    bundle.write_text(json.dumps([{**spec, "id": "by-hand"}]))
    assert data(reviewer("suites", "create", "made", "--file", str(bundle), "--json"))[0]["task_count"] == 1
    assert data(cli("controls", "start", "--task", "by-hand", "--json"))["requested"] > 0
    assert data(cli("environments", "list", "--json"))[0]["name"] == "add"
    assert data(cli("environments", "get", "add", "--json"))["state"] == "ready"
    assert cli("environments", "create", "no such package", "--json")[0] == 1


def test_how_hard_a_suite_is(draft: Run, cli: Cli) -> None:
    asked = data(cli("difficulty", "create", "train", "base", "--tasks", "2", "--samples", "1", "--json"))
    found = data(cli("evaluations", "get", str(asked["evaluation"]), "--json"))
    assert (found["suite"], found["tasks"], found["samples"]) == ("train", 2, 1)
    assert cli("difficulty", "list", "train") == (0, "nothing\n")


def test_rollouts_and_trajectories_in_other_formats(
    trained: Run, cli: Cli, reviewer: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (group, *_) = data(cli("groups", "list", "--run", str(trained.pk), "--state", "accepted", "--json"))
    pk = str(data(cli("groups", "get", str(group["id"]), "--json"))["rollouts"][0]["id"])
    assert json.loads(cli("trajectories", "get", pk, "--format", "atif")[1])["steps"]
    file = tmp_path / "talk.json"
    said = data(cli("trajectories", "get", pk, "--format", "messages", "-o", str(file), "--json"))
    assert said["file"] == str(file) and said["not_carried"] and json.loads(file.read_text())
    assert cli("trajectories", "get", pk, "--format", "atif", "--tokens")[0] == 2
    record = tmp_path / "record.json"
    record.write_bytes(importing.write_trajectory(RECORD, "atif")[0])
    (kept,) = data(reviewer("trajectories", "create", str(record), "--json"))
    assert json.loads(cli("trajectories", "get", kept["name"], "--imported", "--format", "messages")[1])
    assert cli("trajectories", "get", "none", "--imported", "--json")[0] == 1
    assert error(capsys)["code"] == "not_found"


def test_a_queue_is_made_filled_and_closed(
    trained: Run, cli: Cli, reviewer: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = tmp_path / "questions.json"
    options = [{"value": "right"}, {"value": "wrong"}]
    questions.write_text(json.dumps([{"id": "verdict", "kind": "choice", "text": "Right?", "options": options}]))
    words = (
        "review-queues",
        "create",
        "looked",
        str(questions),
        "--filters",
        f"run={trained.pk}&verdict=passed",
        "--limit",
        "1",
    )
    assert data(cli(*words, "--json"))[0]["rollouts"] == 1
    found = len(data(cli("rollouts", "list", "--run", str(trained.pk), "--json")))
    assert data(cli("review-queues", "update", "looked", "--filters", f"run={trained.pk}", "--json")) == [
        {"count": found - 1}
    ]
    rollout = str(data(reviewer("review-queues", "get", "looked", "--next", "--json"))[0]["rollout"])
    assert reviewer("labels", "list", "looked", rollout)[0] == 2
    assert "once you have labelled it" in capsys.readouterr().err
    data(reviewer("labels", "create", "looked", rollout, "verdict=right", "--json"))
    assert data(reviewer("labels", "list", "looked", rollout, "--json"))[0]["answers"] == {"verdict": "right"}
    assert data(cli("review-queues", "stop", "looked", "--json"))[0]["closed_at"]
    assert reviewer("labels", "create", "looked", rollout, "verdict=wrong", "--json")[0] == 1
    assert error(capsys)["code"] == "conflict"
    assert data(cli("review-queues", "start", "looked", "--json"))[0]["closed_at"] is None


def test_evaluations_side_by_side(draft: Run, policy: Policy, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (
        str(data(cli("evaluations", "create", "base", "train", "--tasks", "2", "--samples", "1", "--json"))[0]["id"])
        for _ in range(2)
    )
    assert cli("evaluations", "get", before, "--compare", before, "--json")[0] == 1
    capsys.readouterr()
    answer = cli("evaluations", "get", before, "--compare", after, "--json")
    assert answer[0] == 1 or data(answer)["changes"] == []
    capsys.readouterr()
    slug = data(cli("tasks", "list", "--suite", "train", "--limit", "1", "--json"))[0]["slug"]
    assert data(cli("task-results", "list", slug, "--json")) == []
    assert cli("task-results", "list", slug) == (0, "nothing\n")
    assert cli("grades", "create", before, "--json")[0] == 1, "it has no side evaluations"


def test_a_project_changes_by_what_is_named(
    line: Callable[[str, str], Cli], capsys: pytest.CaptureFixture[str]
) -> None:
    cli = line("admin", "admin")
    data(cli("projects", "create", "ours", "Ours", "--json"))
    (changed,) = data(cli("projects", "update", "ours", "--library", "--json"))
    assert (changed["name"], changed["library"], changed["archived"]) == ("Ours", True, False)
    (changed,) = data(cli("projects", "update", "ours", "--name", "All of us", "--no-library", "--json"))
    assert (changed["name"], changed["library"]) == ("All of us", False)
    assert cli("projects", "update", "none", "--library")[0] == 2
    assert "no project 'none'" in capsys.readouterr().err


def test_an_export_says_how_far_it_is_beside_its_content(
    draft: Run, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    status, content = cli("exports", "create", "runs", "--format", "csv")
    told = capsys.readouterr().err.splitlines()
    assert status == 0 and content.startswith("run,name,") and "is done" not in content
    assert told and all(line.startswith("export ") for line in told)
    assert told[-1].endswith("is done: 1 of 1 rows")
    assert cli("exports", "create", "runs", "--format", "csv", "--json")[0] == 0
    assert capsys.readouterr().err == ""
