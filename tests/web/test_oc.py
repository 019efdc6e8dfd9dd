"""The `oc` client against the real API: what it sends and reads, its files, and its errors."""

from __future__ import annotations

import argparse
import io
import json
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.test import Client as Web
from django_filters import FilterSet
from pyarrow import parquet

from composer_web.accounts.models import User
from composer_web.accounts.services import create_token
from composer_web.evals.filters import EvaluationFilter
from composer_web.gateway.filters import SessionFilter
from composer_web.rollouts import exports
from composer_web.rollouts import services as rollouts
from composer_web.rollouts.filters import FindingFilter, RolloutFilter
from composer_web.rollouts.kept_models import Export
from composer_web.rollouts.models import Group
from composer_web.runs import metrics, services, templates
from composer_web.runs.filters import RunFilter
from composer_web.runs.models import Run, Sweep
from composer_web.runs.text import load, render
from composer_web.tasks.filters import TaskFilter
from oc import models
from oc.benchmark import FILTERS as EVALUATION_FILTERS
from oc.cli import ROLLOUT_FILTERS, RUN_FILTERS, main, whole
from oc.client import Client, Unreachable
from oc.follow import FollowTimeout, follow
from oc.oversight import FINDING_FILTERS
from oc.serving import SESSION_FILTERS
from oc.settings import SettingsError, keep, settings
from oc.show import Output
from oc.supply import TASK_FILTERS
from tests.web.making import SMALL, claim, finish
from trainer.config import RunConfig

Oc = Callable[..., tuple[int, str]]


@pytest.mark.parametrize(
    ("given", "page"),
    [
        (RUN_FILTERS, RunFilter),
        (ROLLOUT_FILTERS, RolloutFilter),
        (FINDING_FILTERS, FindingFilter),
        (TASK_FILTERS, TaskFilter),
        (SESSION_FILTERS, SessionFilter),
        (EVALUATION_FILTERS, EvaluationFilter),
    ],
)
def test_lists_have_the_filters_of_their_page(given: Sequence[str], page: type[FilterSet]) -> None:
    assert set(given) == set(page.base_filters)


def transport(request: httpx.Request) -> httpx.Response:
    """Into this process's own API instead of over a socket; what it leaves to a worker to write is written at once."""
    for asked in Export.objects.filter(state="waiting"):
        exports.write(asked.pk)
    headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
    path = request.url.raw_path.decode()
    kind = request.headers.get("Content-Type", "application/json")
    answer = Web().generic(request.method, path, request.content, content_type=kind, **headers)
    content = answer.getvalue()
    return httpx.Response(answer.status_code, content=content, headers={"Content-Type": answer["Content-Type"]})


def connected(token: str) -> Client:
    return Client("http://127.0.0.1", token, transport=httpx.MockTransport(transport))


@pytest.fixture
def oc(people: dict[str, User]) -> Oc:
    """Runs a command line as the operator: (status, standard output)."""
    _, secret = create_token(user=people["operator"], name="oc", scopes=["operate"])

    def call(*words: str) -> tuple[int, str]:
        out = io.StringIO()
        return main(words, client=connected(secret), out=out), out.getvalue()

    return call


def data(answer: tuple[int, str]) -> Any:
    assert answer[0] == 0, answer
    return json.loads(answer[1])


@pytest.mark.django_db
def test_launch_from_yaml_and_steer(draft: Run, oc: Oc, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(render(RunConfig(name="from oc", stage=SMALL), "yaml"))
    told = data(oc("runs", "launch", str(file), "--dry-run", "--parent", str(draft.pk), "--json"))
    assert told["ok"] and {row["field"] for row in told["differences"]} == {"name", "seed"} and Run.objects.count() == 1
    (made,) = data(oc("runs", "launch", str(file), "--set", "seed=7", "--json"))
    run = Run.objects.get(pk=made["id"])
    assert (run.state, run.seed, run.name) == ("queued", 7, "from oc")
    for verb, state in (("pause", "paused"), ("resume", "queued"), ("stop", "cancelled")):
        assert state in oc("runs", verb, str(run.pk))[1]
    assert data(oc("runs", "archive", str(run.pk), "--json"))[0]["archived_at"]
    data(oc("runs", "restore", str(run.pk), "--json"))
    assert data(oc("runs", "tag", str(run.pk), "a", "b", "--json"))[0]["tags"] == ["a", "b"]
    assert data(oc("runs", "note", str(run.pk), "why", "--json"))[0]["notes"] == "why"
    assert [one["id"] for one in data(oc("runs", "list", "--tag", "a", "--json"))] == [run.pk]
    table = oc("runs", "list")[1].splitlines()
    assert table[0].startswith("id") and len(table) == 3
    assert data(oc("runs", "show", str(run.pk), "--json"))["config"]["seed"] == 7
    assert "config:" in oc("runs", "show", str(run.pk))[1]
    text = oc("runs", "export", str(run.pk), "config", "--format", "toml")[1]
    assert load(text) == run.configuration


@pytest.mark.django_db
def test_drafts_templates_presets_and_sweeps(draft: Run, oc: Oc) -> None:
    templates.save_template(name="ours", config=RunConfig(name="t", stage=SMALL))
    assert data(oc("templates", "list", "--json"))[0]["name"] == "ours"
    assert data(oc("runs", "launch", "--template", "ours", "--draft", "--json"))[0]["state"] == "draft"
    changes = ("--set", "stage.eval_suite=null", "--set", "stage.steps=2")
    assert "RL smoke test" in oc("runs", "launch", "--preset", "rl-smoke", *changes, "--draft")[1]
    sweep = (
        "runs",
        "sweep",
        "--template",
        "ours",
        "--vary",
        "stage.optimizer.learning_rate=1e-4,3e-4",
        "--vary",
        "seed=1,2",
    )
    assert len(data(oc(*sweep, "--dry-run", "--json"))) == 4 and not Sweep.objects.exists()
    assert data(oc(*sweep, "--draft", "--json"))["runs"] == 4
    assert set(Run.objects.exclude(sweep=None).values_list("state", flat=True)) == {"draft"}
    assert oc("runs", "launch", "--template", "none")[0] == 2


@pytest.mark.django_db
def test_what_is_wrong_is_said(draft: Run, oc: Oc, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("name: x\nstage:\n  kind: rl\n  steps: nine\n")
    assert oc("runs", "launch", str(file))[0] == 1
    assert "line 4: " in capsys.readouterr().err
    assert oc("runs", "show", "999", "--json")[0] == 1
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "not_found"
    for words, said in (
        (("runs", "launch"), "name one of: a file"),
        (("runs", "launch", str(tmp_path / "none")), "cannot be read"),
        (("runs", "launch", "--preset", "rl-smoke", "--set", "x"), "stage.steps=5"),
        (("runs", "launch", "--preset", "rl-smoke", "--set", "a.b=1"), "no group of settings"),
        (("runs", "launch", "--preset", "no"), "there is no preset 'no'"),
        (("runs", "export", str(draft.pk), "config", "--format", "csv"), "yaml or toml"),
        (("runs", "export", str(draft.pk), "config", "-o", str(tmp_path / "no" / "x")), "cannot be written"),
    ):
        assert oc(*words)[0] == 2
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit):
        oc("nonsense")


@pytest.mark.django_db
def test_a_wrong_token_or_address(draft: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "list"], client=connected("oc_wrong")) == 1
    assert "valid token" in capsys.readouterr().err

    def elsewhere(request: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"Location": "http://elsewhere/"}, text="moved")

    client = Client("http://127.0.0.1", "secret", transport=httpx.MockTransport(elsewhere))
    assert main(["runs", "list"], client=client) == 3  # the token was not sent on

    def dead(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(Unreachable, match="does not answer"):
        Client("http://127.0.0.1", "x", transport=httpx.MockTransport(dead)).runs.get(1)


@pytest.fixture
def trained(running: Run) -> Run:
    rollouts.pump(run_id=running.pk)
    for group in Group.objects.filter(run=running):
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])
    metrics.record_many(run=running, rows=[(s, "reward/mean", s / 10) for s in (1, 2)])
    services.set_progress(run=running, step=2)
    services.add_event(run=running, kind="note", message="hello")
    return running


@pytest.mark.django_db
def test_a_run_is_followed_to_its_end(trained: Run, people: dict[str, User]) -> None:
    _, secret = create_token(user=people["viewer"], name="oc", scopes=["read"])
    seen: list[dict[str, Any]] = []
    for one in follow(connected(secret), trained.pk, metrics=["reward/mean"], timeout=60, poll=0):
        seen.append(one.data)
        if one.data.get("state") == "running":  # what comes later is new at the next look, and told once
            metrics.record(run=trained, step=3, values={"reward/mean": 0.5})
            services.mark_finished(run=trained)
    told = [(one["step"], one["metrics"]) for one in seen if "metrics" in one]
    assert told == [(1, {"reward/mean": 0.1}), (2, {"reward/mean": 0.2}), (3, {"reward/mean": 0.5})]
    assert [one["event"]["message"] for one in seen if "event" in one].count("hello") == 1
    assert [one["state"] for one in seen if "state" in one] == ["running", "finished"]


@pytest.mark.django_db
def test_following_ends_at_its_deadline(trained: Run, people: dict[str, User]) -> None:
    _, secret = create_token(user=people["viewer"], name="oc", scopes=["read"])
    with pytest.raises(FollowTimeout, match=f"run {trained.pk} is running at step 2"):
        list(follow(connected(secret), trained.pk, metrics=[], timeout=0, poll=0))


@pytest.mark.django_db
def test_everything_else_is_listed_shown_and_exported(trained: Run, oc: Oc, tmp_path: Path) -> None:
    found = data(oc("rollouts", "list", "--run", str(trained.pk), "--verdict", "passed", "--json"))
    assert {one["verdict"] for one in found} == {"passed"}
    pk = str(found[0]["id"])
    assert data(oc("rollouts", "show", pk, "--json"))["id"] == found[0]["id"]
    lines = [json.loads(line) for line in oc("rollouts", "export", pk, "--tokens")[1].splitlines()]
    assert lines[0]["rollout"]["rollout_id"] == found[0]["id"]
    whole = [json.loads(line) for line in oc("rollouts", "export", pk, "--format", "jsonl")[1].splitlines()]
    assert [one["type"] for one in whole] == ["trajectory", "segment"]
    page = tmp_path / "one.html"
    assert oc("rollouts", "export", pk, "--format", "html", "-o", str(page))[0] == 0
    assert page.read_text().startswith("<!doctype html>")
    rows = oc("runs", "export", str(trained.pk), "rollouts")[1].splitlines()
    assert len(rows) == len(data(oc("rollouts", "list", "--run", str(trained.pk), "--json")))
    assert data(oc("suites", "list", "--json"))[0]["name"] == "train"
    assert data(oc("suites", "show", "train", "--json"))["task_count"] == 12
    assert "base" in oc("policies", "list")[1]
    assert data(oc("policies", "show", "base", "--json"))["name"] == "base"
    made = data(oc("evals", "launch", "base", "train", "--tasks", "2", "--samples", "1", "--json"))[0]
    assert data(oc("evals", "show", str(made["id"]), "--json"))["tasks"] == 2
    assert data(oc("evals", "stop", str(made["id"]), "--json"))[0]["state"] == "cancelled"
    assert data(oc("evals", "list", "--json"))[0]["id"] == made["id"]
    assert oc("releases", "list") == (0, "nothing\n")
    assert oc("releases", "show", "none", "1")[0] == 1


@pytest.mark.django_db
def test_tables_are_files(trained: Run, oc: Oc, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, pk = tmp_path / "metrics.csv", str(trained.pk)
    assert oc("runs", "export", pk, "metrics", "--format", "csv", "-o", str(path)) == (0, "")
    rows = [line.rsplit(",", 1)[0] for line in path.read_text().splitlines()]
    assert rows == ["run,name,step,value", f"{pk},reward/mean,1,0.1", f"{pk},reward/mean,2,0.2"]
    assert oc("exports", "make", "metrics", f"run={pk}", "first=2", "--format", "parquet", "-o", str(path)) == (0, "")
    assert parquet.read_table(path)["value"].to_pylist() == [0.2]
    assert json.loads(oc("exports", "make", "runs")[1])["run"] == trained.pk
    newest = data(oc("exports", "list", "--json"))
    assert [one["what"] for one in newest] == ["runs", "metrics", "metrics"]
    assert oc("exports", "fetch", str(newest[0]["id"])) == oc("exports", "make", "runs")
    for words, said in (
        (("exports", "make", "runs", "state"), "name=value"),
        (("exports", "make", "runs", "--format", "parquet"), "name a file with -o"),
        (("runs", "export", pk, "metrics", "--format", "yaml"), "jsonl, csv or parquet"),
    ):
        assert oc(*words)[0] == 2
        assert said in capsys.readouterr().err
    assert oc("exports", "make", "metrics", "--json")[0] == 1
    assert "run" in json.loads(capsys.readouterr().err)["error"]["fields"]


def test_settings_come_from_the_environment_or_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OC_URL", "OC_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match="no token"):
        settings()
    path = keep(url="https://oc.example/", token='oc_"x\\')
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (settings().url, settings().token) == ("https://oc.example", 'oc_"x\\')
    monkeypatch.setenv("OC_TOKEN", "other")
    assert settings().token == "other"
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        settings()
    path.chmod(0o600)
    monkeypatch.setenv("OC_URL", "file:///etc/passwd")
    with pytest.raises(SettingsError, match="http://"):
        settings()


@pytest.mark.django_db
def test_any_operation_by_its_address(draft: Run, oc: Oc, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [one["id"] for one in data(oc("api", "get", "/runs", "--set", "q=small"))["items"]] == [draft.pk]
    assert data(oc("api", "get", "/api/v1/runs", "--set", "q=nothing", "--json"))["items"] == []
    assert data(oc("api", "patch", f"/runs/{draft.pk}", "--set", 'tags=["a"]', "--set", "notes=why"))["tags"] == ["a"]
    file = tmp_path / "body.json"
    file.write_text('{"notes": "from a file"}')
    assert data(oc("api", "patch", f"runs/{draft.pk}", "--body", str(file)))["notes"] == "from a file"
    assert oc("api", "put", "/quotas", "--set", "gpus=4")[0] == 1, "an operator sets none"
    assert "scope" in capsys.readouterr().err
    assert oc("api", "get", "/runs", "--set", "q")[0] == 2 and oc("api", "post", "/runs", "--body", "none")[0] == 2


def test_every_command_answers_in_json() -> None:
    """Whatever is added takes `--json` too, at the end of its words."""
    leaves: list[str] = []

    def walk(parser: argparse.ArgumentParser) -> None:
        inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        for action in inner:
            for made in action.choices.values():
                walk(made)
        if not inner:
            leaves.append(parser.prog)
            assert "--json" in parser.format_help(), parser.prog

    walk(whole()[0])
    assert len(leaves) > 40


@pytest.mark.parametrize("words", [["--help"], ["runs", "--help"], ["runs", "launch", "--help"]])
def test_help_is_there(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0 and "usage: oc" in capsys.readouterr().out


def test_control_characters_never_reach_the_terminal() -> None:
    out = io.StringIO()
    Output(as_json=False, out=out).one(models.ParsedOut(config={}))
    Output(as_json=False, out=out).rows([models.TextOut(text="\x1b[2Jred\nline")], ["text"])
    assert "\x1b" not in out.getvalue() and "·[2Jred·line" in out.getvalue()


@pytest.mark.django_db
def test_datasets_findings_projects_and_health(
    trained: Run, oc: Oc, tmp_path: Path, people: dict[str, User], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "talks.jsonl"
    talk = {"messages": [{"role": "user", "content": "add two"}, {"role": "assistant", "content": "done"}]}
    file.write_text(json.dumps(talk) + "\n")
    (made,) = data(oc("datasets", "upload", "ours", str(file), "--json"))
    assert (made["name"], made["state"]) == ("ours", "waiting")
    assert [one["id"] for one in data(oc("datasets", "list", "--json"))] == [made["id"]]
    assert data(oc("datasets", "show", str(made["id"]), "--json"))["name"] == "ours"
    assert oc("datasets", "upload", "theirs", str(tmp_path / "none"))[0] == 2
    assert "cannot be read" in capsys.readouterr().err
    assert {one["id"] for one in data(oc("findings", "rules", "--json"))}
    assert data(oc("findings", "list", "--run", str(trained.pk), "--json")) == []
    assert data(oc("findings", "audit", str(trained.pk), "--json")) == {"audited": trained.pk}
    rollout = trained.groups.first().rollouts.first()
    assert data(oc("forks", "list", str(rollout.pk), "--json")) == []
    assert [one["slug"] for one in data(oc("projects", "list", "--json"))] == ["default"]
    assert "checks" in data(oc("health", "show", "--json"))
    assert data(oc("tokens", "list", "--json"))[0]["name"] == "oc"
