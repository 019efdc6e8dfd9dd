"""Bad input where people meet it: the same clear words on the page, from the API and on the command line.

docs/guides/operations.md has the table of what is shown where, with the test of each.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from django.core.management import CommandError, call_command
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import UserError
from composer_web.env import REPOSITORY
from composer_web.evals.results import tasks as evals
from composer_web.evals.results.prepass import prepass
from composer_web.evals.services import evaluate
from composer_web.policies.models import Policy
from composer_web.policies.promotion import services as promotion
from composer_web.policies.selectors import check_plays
from composer_web.policies.services import create_child, import_base, real_path
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.worker.execution import execute
from composer_web.runs import services
from composer_web.runs.launch.forms import default_values
from composer_web.runs.models import Run
from composer_web.runs.paths import checkpoints_folder
from composer_web.tasks.controls import run_pending
from composer_web.tasks.models import Suite, TaskVersion
from composer_web.tasks.services import build_suite
from sandbox.harness.types import StopReason, ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.procedural import generate
from tests.trainer.stages.memory import BASE_POLICY, foreign_policy
from tests.web.api.test_commands import run as command
from tests.web.cli.support import Cli, data
from tests.web.making import SMALL, claim, train_here, trajectory
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointState, CheckpointStore
from trainer.config import RunConfig
from trainer.toy.preset import toy_midtrain
from trainer.types import Turn

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


@pytest.fixture
def pages(people: dict[str, User]) -> Client:
    """A browser in which an operator is logged in."""
    client = Client()
    client.force_login(people["operator"])
    return client


Everywhere = Callable[[Run, str], None]


@pytest.fixture
def everywhere(pages: Client, bearer: Bearer, cli: Cli) -> Everywhere:
    """everywhere(run, words): the cause of a run's end is on its page, in the API and on the command line."""

    def check(run: Run, words: str) -> None:
        assert words in run.failure
        assert words in pages.get(f"/runs/{run.pk}/").content.decode().replace("&#x27;", "'")
        assert words in Client().get(f"/api/v1/runs/{run.pk}", headers=bearer("viewer")).json()["failure"]
        assert words in data(cli("runs", "get", str(run.pk), "--json"))["failure"]

    return check


# -- a wrong setting --------------------------------------------------------------------------------------


def test_a_wrong_setting(
    draft: Run, pages: Client, bearer: Bearer, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the field of the form, with the field's path in the API, and in one line on the command line."""
    form = {**default_values(), "name": "x", "stage": "rl", "stage.rl.steps": "-1"}
    assert "Must be > 0" in pages.post("/runs/new/check/", form).json()["errors"]["stage.rl.steps"][0]
    body = {"name": "x", "stage": {"kind": "rl", "steps": -1}}
    answer = Client().post(
        "/api/v1/runs/validate", body, content_type="application/json", headers=bearer("operator", "operate")
    )
    assert answer.status_code == 422
    assert answer.json()["error"]["fields"] == {"stage.steps": "Input should be greater than 0 (found -1)"}
    form |= {"stage": "midtrain", "stage.midtrain.codebase": "/srv/code"}
    errors = pages.post("/runs/new/check/", form).json()["errors"]
    assert errors["stage.midtrain.codebase"] == [
        "Write repository:NAME, environment:NAME, corpus:NAME, or the name of a folder beside the corpora; found '/srv/code'."
    ]
    assert cli("runs", "create", "--preset", "rl-toy", "--set", "stage.steps=-1")[0] == 1
    (line_,) = capsys.readouterr().err.splitlines()[-1:]
    assert re.search(r"stage\.steps: .*greater than 0.*-1", line_)


# -- an unreadable checkpoint -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda file: file.write_bytes(b"garbage" * 9), "is not a safetensors file"),
        (lambda file: file.write_bytes(file.read_bytes()[:-5]), "model.safetensors is cut off: 5 bytes are missing"),
        (lambda file: file.unlink(), "holds no *.safetensors weights"),
    ],
)
def test_weights_that_cannot_be_read(
    draft: Run, policy: Policy, pages: Client, bearer: Bearer, cli: Cli, capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], Any], words: str,
) -> None:  # fmt: skip
    damage(real_path(policy.base_dir) / "model.safetensors")
    form = {**default_values(), "name": "x", "stage": "rl", "policy": "base"}
    assert words in pages.post("/runs/new/check/", form).json()["errors"]["policy"][0]
    for path, body in (
        ("/api/v1/runs", RunConfig(name="x", stage=SMALL).model_dump()),
        ("/api/v1/evaluations", {"policy": "base", "suite": "train", "tasks": 1, "samples": 1}),
    ):
        answer = Client().post(path, body, content_type="application/json", headers=bearer("operator", "operate"))
        assert answer.status_code == 422 and answer.json()["error"]["field"] == "policy"
        assert words in answer.json()["error"]["message"]
    for arguments in (("runs", "start", str(draft.pk)), ("evaluations", "create", "base", "train")):
        assert cli(*arguments)[0] == 1
        assert words in capsys.readouterr().err
    with pytest.raises(CommandError) as refusal:
        command("importpolicy", str(real_path(policy.base_dir)))
    assert words in str(refusal.value)
    draft.refresh_from_db()
    assert draft.state == "draft"


def test_a_damaged_step_checkpoint_fails_the_resumed_run_with_the_folder_to_remove(
    draft: Run, everywhere: Everywhere
) -> None:
    services.start_run(run=draft)
    folder = checkpoints_folder(draft) / "step-000001"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{")
    train_here(draft)
    assert draft.state == "failed"
    everywhere(draft, f"checkpoint {folder} cannot be read")
    everywhere(draft, "remove this folder to resume from an earlier one")


def test_a_whole_checkpoint_of_another_policy_fails_the_resumed_run_with_what_differs(
    draft: Run, policy: Policy, everywhere: Everywhere, tmp_path: Path
) -> None:
    shutil.copytree(BASE_POLICY, real_path(policy.base_dir), dirs_exist_ok=True)
    services.start_run(run=draft)
    foreign = policies.load(foreign_policy(tmp_path / "narrow", hidden_size=64))
    stage = draft.configuration.stage.kind
    state = CheckpointState(stage=stage, step=1, version=1, seed=draft.seed)
    folder = CheckpointStore(checkpoints_folder(draft), keep=1).save(foreign, {"a|step": torch.tensor(1.0)}, state)
    train_here(draft)
    assert draft.state == "failed"
    everywhere(draft, f"checkpoint {folder} is of another run than this one")
    everywhere(draft, "model.embed_tokens.weight [1024, 64] instead of [1024, 128]")
    everywhere(draft, "remove this folder to resume from an earlier one")


# -- a chat template that does not round-trip ---------------------------------------------------------------


def test_a_template_in_another_call_syntax(
    make_suite: Callable[..., object], pages: Client, bearer: Bearer, tmp_path: Path, cli: Cli,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Imported with a warning and good for mid-training; refused where episodes are to be played; mended, it plays."""
    make_suite()
    folder = Path(shutil.copytree(REPOSITORY / "policies" / "base", tmp_path / "stranger"))
    template = folder / "chat_template.jinja"
    own = template.read_text()
    template.write_text(own.replace('"arguments": ', '"parameters": '))
    assert template.read_text() != own
    words = "writes tool calls in another form"
    warned = StringIO()
    call_command("importpolicy", str(folder), "--name", "stranger", stdout=StringIO(), stderr=warned)
    assert words in warned.getvalue() and "cannot play episodes" in warned.getvalue()

    policy = Policy.objects.get(name="stranger")
    assert words in pages.get(f"/policies/{policy.name}/").content.decode()
    assert words in Client().get("/api/v1/policies/stranger", headers=bearer("viewer")).json()["template_problem"]
    wanted = RunConfig(name="x", policy="stranger", stage=SMALL)
    form = {**default_values(), "name": "x", "stage": "rl", "policy": "stranger"}
    assert words in pages.post("/runs/new/check/", form).json()["errors"]["policy"][0]
    for path, body in (
        ("/api/v1/runs", wanted.model_dump()),
        ("/api/v1/evaluations", {"policy": "stranger", "suite": "train", "tasks": 1, "samples": 1}),
    ):
        answer = Client().post(path, body, content_type="application/json", headers=bearer("operator", "operate"))
        assert answer.status_code == 422 and answer.json()["error"]["field"] == "policy"
        assert words in answer.json()["error"]["message"]
    assert cli("evaluations", "create", "stranger", "train")[0] == 1
    assert words in capsys.readouterr().err
    warnings = services.check_config(RunConfig(name="m", policy="stranger", stage=toy_midtrain()))
    assert [warning for warning in warnings if words in warning]
    child = create_child(name="child", parent=policy, parent_version=0)
    with pytest.raises(UserError, match=words):
        check_plays(child)

    template.write_text(own)
    assert "warning" not in command("importpolicy", str(folder), name="stranger")
    services.check_config(wanted)


@pytest.fixture
def unjudged(make_suite: Callable[..., Suite], tmp_path: Path) -> tuple[Policy, Suite]:
    """A policy that was imported before templates were judged, and a suite."""
    folder = Path(shutil.copytree(BASE_POLICY, tmp_path / "old"))
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace('"arguments": ', '"parameters": '))
    return import_base(path=folder, name="old"), make_suite()


def test_a_template_that_nobody_judged_ends_the_evaluation_at_its_first_rollout(
    unjudged: tuple[Policy, Suite], people: dict[str, User]
) -> None:
    """From then on nothing is started with the policy."""
    _, suite = unjudged
    words = "'old' cannot play episodes: .* another form .* import the folder again"
    evaluation = evaluate(reference="old", suite=suite, tasks=2, samples=2, temperature=1.0)
    evals.start(evaluation_id=evaluation.pk)
    for group in evaluation.groups.all():
        assert re.match(f"dropped: {words}", execute(group.pk))
    evals.advance(evaluation_id=evaluation.pk)
    evaluation.refresh_from_db()
    assert evaluation.state == "failed" and re.search(words, evaluation.failure)
    assert not Rollout.objects.exclude(verdict="infra_error").exists()
    with pytest.raises(UserError, match=words):
        evaluate(reference="old", suite=suite, tasks=2, samples=2, temperature=1.0)
    with pytest.raises(UserError, match=words):
        prepass(suite=suite, reference="old")
    with pytest.raises(UserError, match=words):
        promotion.promote(reference="old@0", actor=people["admin"])
    shown = promotion.preview("old@0")
    assert not shown.open and re.match(words, shown.why)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json: the file is missing"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "Restore the tokenizer files"),
        (
            lambda folder: (folder / "chat_template.jinja").unlink(),
            "no chat template; import it again with one, such as chatml-tools",
        ),
        (lambda folder: (folder / "chat_template.jinja").write_text("{% for %}"), "refuses a conversation"),
    ],
)
def test_a_folder_without_what_every_stage_needs_is_not_imported(
    db: None, tmp_path: Path, damage: Callable[[Path], Any], words: str
) -> None:
    folder = Path(shutil.copytree(REPOSITORY / "policies" / "base", tmp_path / "broken"))
    damage(folder)
    with pytest.raises(CommandError, match=words):
        command("importpolicy", str(folder), name="broken")
    assert not Policy.objects.filter(name="broken").exists()


# -- a bundle whose oracle fails ----------------------------------------------------------------------------


@pytest.fixture
def broken_suite(policy: Policy) -> TaskVersion:
    """One task whose oracle mends nothing; its controls have run."""
    spec = generate(3, "train")
    build_suite(
        name="broken",
        purpose="train",
        specs=[
            spec.model_copy(update={"id": "broken-oracle", "gold": {k: spec.environment.files[k] for k in spec.gold}})
        ],
    )
    version = TaskVersion.objects.get(task__slug="broken-oracle")
    assert run_pending([version.pk]) == []
    version.refresh_from_db()
    return version


def test_a_bundle_whose_oracle_fails(
    broken_suite: TaskVersion, pages: Client, bearer: Bearer, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rejected, with the reason; no run takes a prompt from it."""
    assert broken_suite.controls_ok is False
    reason = broken_suite.controls["reason"]
    assert "oracle" in reason
    shown = pages.get("/tasks/broken-oracle/").content.decode()
    assert "rejected" in shown and reason.split("'")[0] in shown.replace("&#x27;", "'")
    answer = Client().get("/api/v1/tasks/broken-oracle", headers=bearer("reviewer")).json()
    assert answer["versions"][0]["controls_ok"] is False and answer["versions"][0]["controls"]["reason"] == reason
    arguments = ("--set", "stage.suite=broken", "--set", "stage.eval_suite=null")
    assert cli("runs", "create", "--preset", "rl-smoke", *arguments)[0] == 1
    assert "'broken' has 0 (and 1 that failed validation)" in capsys.readouterr().err


# -- a policy that emits malformed calls or never stops -------------------------------------------------------


@pytest.fixture
def ended(running: Run) -> dict[str, Rollout]:
    """Two rollouts by stop reason: one whose call does not parse, and one that went on until a limit."""
    rollouts.pump(run_id=running.pk)
    claimed = claim(Group.objects.filter(run=running).order_by("pk")[0])
    problem = "the tool call is not complete JSON"
    malformed = Turn(
        index=0,
        text='{"name": "fin',
        token_start=1,
        token_end=3,
        results=(
            ToolResult(
                call_id="",
                output=f"error: {problem}",
                error=ToolError(kind=ToolErrorKind.MALFORMED_CALL, message=problem),
            ),
        ),
    )
    graded = []
    for sample, changes in enumerate(
        ({"stop_reason": StopReason.MALFORMED_CALL, "turns": (malformed,)}, {"stop_reason": StopReason.TURN_LIMIT})
    ):
        made = trajectory(claimed.group, sample, passed=False).model_copy(update=changes)
        key = f"groups/{claimed.group.pk}/{claimed.held.token}/{sample}.json.zst"
        artifacts().put_model(key, made)
        graded.append(rollouts.Graded(made, key))
    rollouts.accept(
        group=claimed.group, held=claimed.held, graded=graded, train_key="x", oldest_version=0, infra_errors=()
    )
    return {row.stop_reason: row for row in Rollout.objects.filter(group=claimed.group)}


@pytest.mark.parametrize("stop", ["malformed_call", "turn_limit"])
def test_a_policy_that_emits_malformed_calls_or_never_stops(
    running: Run, ended: dict[str, Rollout], pages: Client, bearer: Bearer, cli: Cli, stop: str
) -> None:
    """How it ended is shown everywhere. That it ends at all, and is graded: tests/trainer/rollouts/test_episode.py."""
    row = ended[stop]
    shown = pages.get(f"/rollouts/{row.pk}/").content.decode()
    assert stop.replace("_", " ") in shown.lower()
    if stop == "malformed_call":
        assert "the tool call is not complete JSON" in shown
    answer = Client().get("/api/v1/rollouts", {"run": running.pk, "stop_reason": stop}, headers=bearer("viewer"))
    assert [(r["id"], r["verdict"]) for r in answer.json()["items"]] == [(row.pk, "failed")]
    counts = data(cli("runs", "get", str(running.pk), "--json"))["rollouts"]
    assert (counts["infra_error"], counts["failed"]) == (0, 2)  # the policy's doing, not the infrastructure's
