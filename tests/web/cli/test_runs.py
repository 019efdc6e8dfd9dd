"""Commands on runs, rollouts, exports and what belongs to them, against the real API."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from composer_web.accounts.models import User
from composer_web.accounts.services import create_token
from composer_web.evals import services as evals
from composer_web.evals.models import Evaluation
from composer_web.policies.models import Policy
from composer_web.runs import metrics, services
from composer_web.runs.launch import templates
from composer_web.runs.launch.config_io import load, render
from composer_web.runs.models import Run, Sweep
from composer_web.tasks.models import Suite
from opencomposer.errors import WaitTimeout
from opencomposer.output import Output
from opencomposer.waiting import follow_run
from tests.web.cli.support import Cli, connected, data
from tests.web.making import SMALL
from trainer.config import RunConfig


@pytest.mark.django_db
def test_launch_from_yaml_and_steer(draft: Run, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(render(RunConfig(name="by command", stage=SMALL), "yaml"))
    told = data(cli("runs", "create", str(file), "--dry-run", "--parent", str(draft.pk), "--json"))
    assert told["ok"] and {row["field"] for row in told["differences"]} == {"name", "seed"} and Run.objects.count() == 1
    (made,) = data(cli("runs", "create", str(file), "--set", "seed=7", "--start", "--json"))
    run = Run.objects.get(pk=made["id"])
    assert (run.state, run.seed, run.name) == ("queued", 7, "by command")
    pk = str(run.pk)
    for words, state in (
        (("stop", pk, "--pause"), "paused"),
        (("start", pk), "queued"),
        (("stop", pk), "cancelled"),
    ):
        assert state in cli("runs", *words)[1]
    assert data(cli("runs", "update", pk, "--archived", "--json"))[0]["archived_at"]
    assert data(cli("runs", "update", pk, "--no-archived", "--json"))[0]["archived_at"] is None
    (changed,) = data(cli("runs", "update", pk, "--tags", "a, b", "--notes", "why", "--json"))
    assert (changed["tags"], changed["notes"]) == (["a", "b"], "why")
    assert [one["id"] for one in data(cli("runs", "list", "--tag", "a", "--json"))] == [run.pk]
    table = cli("runs", "list")[1].splitlines()
    assert table[0].startswith("id") and len(table) == 3
    assert data(cli("runs", "get", str(run.pk), "--json"))["config"]["seed"] == 7
    assert "config:" in cli("runs", "get", str(run.pk))[1]
    text = cli("runs", "get", pk, "--config", "toml")[1]
    assert load(text) == run.configuration


@pytest.mark.django_db
def test_drafts_templates_presets_and_sweeps(draft: Run, cli: Cli) -> None:
    templates.save_template(name="ours", config=RunConfig(name="t", stage=SMALL))
    assert data(cli("templates", "list", "--json"))[0]["name"] == "ours"
    assert data(cli("runs", "create", "--template", "ours", "--json"))[0]["state"] == "draft"
    changes = ("--set", "stage.eval_suite=null", "--set", "stage.steps=2")
    assert "RL smoke test" in cli("runs", "create", "--preset", "rl-smoke", *changes)[1]
    assert "rl-smoke" in {one["key"] for one in data(cli("presets", "list", "--json"))}
    sweep = (
        "sweeps",
        "create",
        "--template",
        "ours",
        "--vary",
        "stage.optimizer.learning_rate=1e-4,3e-4",
        "--vary",
        "seed=1,2",
    )
    assert len(data(cli(*sweep, "--dry-run", "--json"))) == 4 and not Sweep.objects.exists()
    assert data(cli(*sweep, "--json"))["runs"] == 4
    assert set(Run.objects.exclude(sweep=None).values_list("state", flat=True)) == {"draft"}
    assert cli("runs", "create", "--template", "none")[0] == 2


@pytest.mark.django_db
def test_what_is_wrong_is_said(draft: Run, cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("name: x\nstage:\n  kind: rl\n  steps: nine\n")
    assert cli("runs", "create", str(file))[0] == 1
    assert "line 4: " in capsys.readouterr().err
    assert cli("runs", "get", "999", "--json")[0] == 1
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "not_found"
    for words, said in (
        (("runs", "create"), "name one of: a file"),
        (("runs", "create", str(tmp_path / "none")), "cannot be read"),
        (("runs", "create", "--preset", "rl-smoke", "--set", "x"), "write name=value"),
        (("runs", "create", "--preset", "rl-smoke", "--set", "a.b=1"), "not a group of settings"),
        (("runs", "create", "--preset", "no"), "there is no preset 'no'"),
        (("runs", "create", "--preset", "rl-smoke", "--follow"), "add --start"),
        (("runs", "get", str(draft.pk), "--config", "csv"), "yaml"),
        (("runs", "update", str(draft.pk)), "--tags"),
        (("exports", "create", "runs", "-o", str(tmp_path / "no" / "x")), "cannot be written"),
    ):
        assert cli(*words)[0] == 2
        assert said in capsys.readouterr().err
    assert cli("nonsense")[0] == 2


@pytest.mark.django_db
def test_a_run_is_followed_to_its_end(trained: Run, people: dict[str, User]) -> None:
    _, secret = create_token(user=people["viewer"], name="cli", scopes=["read"])
    seen: list[dict[str, Any]] = []
    for _, one in follow_run(connected(secret), trained.pk, metrics=["reward/mean"], timeout=60, poll=0):
        seen.append(one)
        if one.get("state") == "running":  # what comes later is new at the next look, and told once
            metrics.record(run=trained, step=3, values={"reward/mean": 0.5})
            services.mark_finished(run=trained)
    told = [(one["step"], one["metrics"]) for one in seen if "metrics" in one]
    assert told == [(1, {"reward/mean": 0.1}), (2, {"reward/mean": 0.2}), (3, {"reward/mean": 0.5})]
    assert [one["event"]["message"] for one in seen if "event" in one].count("hello") == 1
    assert [one["state"] for one in seen if "state" in one] == ["running", "finished"]


@pytest.mark.django_db
def test_following_ends_at_its_deadline(trained: Run, people: dict[str, User]) -> None:
    _, secret = create_token(user=people["viewer"], name="cli", scopes=["read"])
    with pytest.raises(WaitTimeout, match=f"run {trained.pk} is running at step 2"):
        list(follow_run(connected(secret), trained.pk, metrics=[], timeout=0, poll=0))


@pytest.mark.django_db
def test_a_followed_evaluation_ends_with_its_score(policy: Policy, cli: Cli, make_suite: Callable[..., Suite]) -> None:
    made = evals.create_evaluation(policy=policy, version=0, suite=make_suite("held-out", 2), tasks=2, samples=4)
    evals.mark_running(evaluation=made)
    evals.mark_finished(evaluation=made, results={"pass1": 0.625, "pass1_low": 0.5, "pass1_high": 0.75, "best": 0.875})
    status, said = cli("evaluations", "get", str(made.pk), "--follow")
    assert status == 0
    assert "0.625" in said and "0.500 to 0.750" in said and "0.875" in said


def test_everything_else_is_listed_shown_and_exported(trained: Run, cli: Cli, tmp_path: Path) -> None:
    found = data(cli("rollouts", "list", "--run", str(trained.pk), "--verdict", "passed", "--json"))
    assert {one["verdict"] for one in found} == {"passed"}
    pk = str(found[0]["id"])
    assert data(cli("rollouts", "get", pk, "--json"))["id"] == found[0]["id"]
    lines = [json.loads(line) for line in cli("trajectories", "get", pk, "--tokens")[1].splitlines()]
    assert lines[0]["rollout"]["rollout_id"] == found[0]["id"]
    whole = [json.loads(line) for line in cli("trajectories", "get", pk, "--format", "jsonl")[1].splitlines()]
    assert [one["type"] for one in whole] == ["trajectory", "segment"]
    page = tmp_path / "one.html"
    assert cli("trajectories", "get", pk, "--format", "html", "-o", str(page))[0] == 0
    assert page.read_text().startswith("<!doctype html>")
    rows = cli("exports", "create", "rollouts", f"run={trained.pk}")[1].splitlines()
    assert len(rows) == len(data(cli("rollouts", "list", "--run", str(trained.pk), "--json")))
    assert data(cli("suites", "list", "--json"))[0]["name"] == "train"
    assert data(cli("suites", "get", "train", "--json"))["task_count"] == 12
    assert "base" in cli("policies", "list")[1]
    assert data(cli("policies", "get", "base", "--json"))["name"] == "base"
    made = data(cli("evaluations", "create", "base", "train", "--tasks", "2", "--samples", "1", "--json"))[0]
    assert data(cli("evaluations", "get", str(made["id"]), "--json"))["tasks"] == 2
    limits = ("--turns", "7", "--context-tokens", "2048")
    other = data(cli("evaluations", "create", "base", "train", "--tasks", "2", "--samples", "1", *limits, "--json"))[0]
    conditions = Evaluation.objects.get(pk=other["id"]).conditions["sampling"]
    assert (conditions["max_turns"], conditions["max_context_tokens"]) == (7, 2048)
    assert cli("evaluations", "create", "base", "train", "--turns", "0", "--json")[0] == 1
    assert data(cli("evaluations", "stop", str(other["id"]), "--json"))[0]["state"] == "cancelled"
    assert data(cli("evaluations", "stop", str(made["id"]), "--json"))[0]["state"] == "cancelled"
    assert made["id"] in [one["id"] for one in data(cli("evaluations", "list", "--json"))]
    assert cli("releases", "list") == (0, "nothing\n")
    assert cli("releases", "get", "none", "1")[0] == 1


@pytest.mark.django_db
def test_tables_are_files(trained: Run, cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, pk = tmp_path / "metrics.csv", str(trained.pk)
    assert cli("exports", "create", "metrics", f"run={pk}", "--format", "csv", "-o", str(path)) == (0, "")
    rows = [line.rsplit(",", 1)[0] for line in path.read_text().splitlines()]
    assert rows == ["run,name,step,value", f"{pk},reward/mean,1,0.1", f"{pk},reward/mean,2,0.2"]
    assert cli("exports", "create", "metrics", f"run={pk}", "first=2", "--format", "parquet", "-o", str(path)) == (
        0,
        "",
    )
    assert parquet.read_table(path)["value"].to_pylist() == [0.2]
    assert json.loads(cli("exports", "create", "runs")[1])["run"] == trained.pk
    newest = data(cli("exports", "list", "--json"))
    assert [one["what"] for one in newest] == ["runs", "metrics", "metrics"]
    assert cli("exports", "get", str(newest[0]["id"])) == cli("exports", "create", "runs")
    for words, said in (
        (("exports", "create", "runs", "state"), "name=value"),
        (("exports", "create", "runs", "--format", "parquet"), "name a file with -o"),
        (("exports", "create", "metrics", f"run={pk}", "--format", "yaml"), "parquet"),
    ):
        assert cli(*words)[0] == 2
        assert said in capsys.readouterr().err
    assert cli("exports", "create", "metrics", "--json")[0] == 1
    assert "run" in json.loads(capsys.readouterr().err)["error"]["fields"]


@pytest.mark.django_db
def test_any_operation_by_its_address(draft: Run, cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [one["id"] for one in data(cli("api", "get", "/runs", "--set", "q=small"))["items"]] == [draft.pk]
    assert data(cli("api", "get", "/api/v1/runs", "--set", "q=nothing", "--json"))["items"] == []
    assert data(cli("api", "patch", f"/runs/{draft.pk}", "--set", 'tags=["a"]', "--set", "notes=why"))["tags"] == ["a"]
    file = tmp_path / "body.json"
    file.write_text('{"notes": "from a file"}')
    assert data(cli("api", "patch", f"runs/{draft.pk}", "--body", str(file)))["notes"] == "from a file"
    assert cli("api", "put", "/quotas", "--set", "gpus=4")[0] == 1, "an operator sets none"
    assert "scope" in capsys.readouterr().err
    assert cli("api", "get", "/runs", "--set", "q")[0] == 2 and cli("api", "post", "/runs", "--body", "none")[0] == 2


def test_an_interval_is_one_cell() -> None:
    out = io.StringIO()
    shown = {"policy": "a@1", "apart": {"value": 1.25, "low": 1.0, "high": 1.5}}
    Output(out).rows([shown], ("policy", "apart"))
    assert out.getvalue().splitlines()[1] == "a@1     1.250 (1.000 to 1.500)"


def test_control_characters_never_reach_the_terminal() -> None:
    out = io.StringIO()
    Output(out).one({"config": {}})
    Output(out).rows([{"text": "\x1b[2Jred\nline"}], ["text"])
    assert "\x1b" not in out.getvalue() and "·[2Jred·line" in out.getvalue()


@pytest.mark.django_db
def test_datasets_findings_projects_and_health(
    trained: Run, cli: Cli, tmp_path: Path, people: dict[str, User], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "talks.jsonl"
    talk = {"messages": [{"role": "user", "content": "add two"}, {"role": "assistant", "content": "done"}]}
    file.write_text(json.dumps(talk) + "\n")
    (made,) = data(cli("datasets", "create", "ours", "--file", str(file), "--json"))
    assert (made["name"], made["state"]) == ("ours", "waiting")
    assert [one["id"] for one in data(cli("datasets", "list", "--json"))] == [made["id"]]
    assert data(cli("datasets", "get", str(made["id"]), "--json"))["name"] == "ours"
    assert cli("datasets", "create", "theirs", "--file", str(tmp_path / "none"))[0] == 2
    assert "cannot be read" in capsys.readouterr().err
    assert {one["id"] for one in data(cli("finding-rules", "list", "--json"))}
    assert data(cli("findings", "list", "--run", str(trained.pk), "--json")) == []
    assert data(cli("findings", "start", str(trained.pk), "--json")) == {"audited": trained.pk}
    rollout = trained.groups.first().rollouts.first()
    assert data(cli("forks", "list", str(rollout.pk), "--json")) == []
    assert [one["slug"] for one in data(cli("projects", "list", "--json"))] == ["default"]
    assert "checks" in json.loads(cli("status", "--json")[1])
    assert data(cli("tokens", "list", "--json"))[0]["name"] == "cli"
