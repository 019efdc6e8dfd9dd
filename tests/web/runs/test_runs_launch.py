"""Text, templates and sweeps by form, by API and on the command line: the same words, all or nothing, audited."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.errors import UserError
from composer_web.core.models import WorkerHeartbeat
from composer_web.policies.models import Policy
from composer_web.policies.services import real_path
from composer_web.runs import defaults, metrics, services
from composer_web.runs.launch import memory, sweeps, templates
from composer_web.runs.launch.config_io import load, render
from composer_web.runs.launch.forms import SCHEMA
from composer_web.runs.launch.schema_form import flatten
from composer_web.runs.models import Run, RunTemplate, Sweep
from composer_web.runs.training.gpu_memory import device_room
from tests.web.cli.support import Cli, data
from tests.web.helpers import as_read
from tests.web.making import SMALL
from trainer.config import RunConfig

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]
CONFIG = RunConfig(name="small", stage=SMALL)


@pytest.fixture
def pages(people: dict[str, User]) -> Client:
    client = Client()
    client.force_login(people["operator"])
    return client


@pytest.fixture
def viewer(people: dict[str, User]) -> Client:
    client = Client()
    client.force_login(people["viewer"])
    return client


def filled(**more: str) -> dict[str, str]:
    return {**flatten(SCHEMA, CONFIG), **more}


def api(path: str, body: Any, headers: dict[str, str], verb: str = "post") -> Any:
    send = getattr(Client(), verb)
    return send(f"/api/v1{path}", json.dumps(body), content_type="application/json", headers=headers)


# -- text ---------------------------------------------------------------------------------------------------------


def test_a_text_fills_the_form(draft: Run, pages: Client) -> None:
    text = "name: pasted\nstage:\n  kind: rl\n  steps: 2\n  groups_per_step: 2\n  max_in_flight_groups: 4\n  eval_suite: null\n"
    html = as_read(pages.post("/runs/new/text/", {"text": text, "preset": "rl-toy"}).content)
    assert 'value="pasted"' in html and "Filled from the text" in html
    assert "held-out → <span" in html  # told against the preset
    upload = SimpleUploadedFile("run.toml", render(CONFIG, "toml").encode())
    assert 'value="small"' in pages.post("/runs/new/text/", {"file": upload}).content.decode()


def test_a_wrong_text_is_kept_and_its_line_named(draft: Run, pages: Client, bearer: Bearer, tmp_path: Path) -> None:
    text = "name: x\nstage:\n  kind: rl\n  steps: nine"
    answer = pages.post("/runs/new/text/", {**filled(name="edited before"), "text": text})
    assert 'value="edited before"' in answer.content.decode(), "settings that were edited stay"
    assert answer.status_code == 422
    assert (
        "line 4: Input should be a valid integer" in answer.content.decode()
        and "steps: nine" in answer.content.decode()
    )
    refused = api("/runs/read", {"text": text}, bearer("viewer"))
    assert refused.status_code == 422 and refused.json()["error"]["field"] == "stage.steps"
    binary = SimpleUploadedFile("run.yaml", b"name: \xff")
    assert "not UTF-8" in pages.post("/runs/new/text/", {"file": binary}).content.decode()


def test_download_and_read_again(draft: Run, pages: Client, viewer: Client, bearer: Bearer, cli: Cli) -> None:
    for form in ("yaml", "toml"):
        answer = viewer.get(f"/runs/{draft.pk}/config.{form}")
        assert answer["Content-Disposition"] == f'attachment; filename="small.{form}"'
        assert load(answer.content.decode()) == draft.configuration
        assert load(cli("runs", "get", str(draft.pk), "--config", form)[1]) == draft.configuration
        given = Client().get(f"/api/v1/runs/{draft.pk}/config?format={form}", headers=bearer("viewer")).json()["text"]
        assert load(given) == draft.configuration
        posted = pages.post("/runs/new/", filled(action=form))
        assert load(posted.content.decode()) == CONFIG
    assert Run.objects.count() == 1
    body = {"config": draft.config, "format": "toml"}
    assert load(api("/runs/write", body, bearer("viewer")).json()["text"]) == draft.configuration


def test_what_the_database_cannot_hold_is_refused_everywhere(draft: Run, bearer: Bearer) -> None:
    headers = bearer("operator", "operate")
    rules = {**CONFIG.stage.model_dump(mode="json"), "textual_feedback": {"rules": "a\x00b"}}
    weight = {**CONFIG.stage.model_dump(mode="json"), "reward": {"tests_weight": float("nan")}}
    for stage, field in ((rules, "stage.textual_feedback.rules"), (weight, "stage.reward.tests_weight")):
        body = {**CONFIG.model_dump(mode="json"), "stage": stage}
        for path, sent in (
            ("/runs", body),
            ("/runs/validate", body),
            ("/templates", {"name": "x", "config": body}),
            ("/sweeps", {"config": body, "fields": {"seed": [1]}}),
        ):
            answer = api(path, sent, headers)
            assert answer.status_code == 422 and field in answer.content.decode(), (path, answer.content)
    assert api(f"/runs/{draft.pk}", {"notes": "\x00"}, headers, "patch").status_code == 422
    assert api("/views", {"table": "runs", "name": "\x00"}, headers).status_code == 422
    assert api("/templates", {"name": "\x00", "config": CONFIG.model_dump(mode="json")}, headers).status_code == 422


# -- what will run ------------------------------------------------------------------------------------------------


def test_the_dry_run_says_what_it_costs(
    running: Run, bearer: Bearer, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    rows = [(step, name, value) for step in (1, 2, 3) for name, value in (("time/step", 9.0), ("tokens/total", 50.0))]
    metrics.record_many(run=running, rows=rows)
    services.set_progress(run=running, step=3)
    headers = bearer("viewer")
    found = api("/runs/validate", CONFIG.model_dump(mode="json"), headers).json()
    assert found["estimate"]["seconds"] == 18.0 and found["estimate"]["dollars"] is None
    assert found["memory"]["trainer"][0]["bytes"] == 4 * 4 * 4  # weights, gradient, two moments of four float32 values
    from composer_web.runs.launch import estimate

    monkeypatch.setattr(estimate.env(), "machine_hour_dollars", 200.0)
    body = CONFIG.model_copy(update={"seed": 9}).model_dump(mode="json")
    found = api(f"/runs/validate?parent={running.pk}", body, headers).json()
    assert found["estimate"]["dollars"] == pytest.approx(1.0)
    assert {"field": "seed", "parent": "3", "value": "9"} in found["differences"]
    words = ("runs", "create", "--preset", "rl-smoke", "--set", "stage.eval_suite=null", "--dry-run", "--json")
    told = data(cli(*words))
    assert told["plan"][1] == {"label": "Prompts", "value": 6, "how": "3 steps × 2 groups, each once"}
    assert Run.objects.count() == 1


def changed(**fields: Any) -> RunConfig:
    return RunConfig.model_validate({**CONFIG.model_dump(), "stage": {**CONFIG.stage.model_dump(), **fields}})


def test_memory_counts_what_is_held(draft: Run) -> None:
    found = memory.memory(changed(lora={"rank": 8}))
    assert found is not None and found.rank_bytes == 16 and "adapters" in found.trainer[0].how
    found = memory.memory(changed(objective={"kl_coefficient": 0.1}))
    assert found is not None and found.rank_bytes == 5 * 16
    assert [part.label for part in found.trainer] == ["State"], "its config.json says no more than a width"
    assert memory.memory(CONFIG.model_copy(update={"policy": "nobody"})) is None


def test_memory_is_of_one_rank_with_activations_logits_and_keys(draft: Run, policy: Policy) -> None:
    shape = {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 128, "vocab_size": 1000,
    }  # fmt: skip
    (real_path(policy.base_dir) / "config.json").write_text(json.dumps(shape))
    stage = {"micro_batch_tokens": 512, "max_in_flight_groups": 3, "group_size": 2,
             "sampling": {**CONFIG.stage.sampling.model_dump(), "max_context_tokens": 512}}  # fmt: skip

    def parts(**more: Any) -> dict[str, int]:
        found = memory.memory(changed(**{**stage, **more}))
        assert found is not None
        return {part.label: part.bytes for part in found.trainer}

    layer = 6 * 64 + 5 * 64 + 6 * 32 + 4 * 128
    longer = parts(sampling={"max_context_tokens": 2048})
    assert longer["Activations, at most"] == 2048 * 2 * layer * 4, (
        "a row is never cut: a longer one is a pass of its own"
    )
    alone = parts()
    assert alone == {"State": 64, "Activations, at most": 512 * 2 * layer * 4, "Logits, at most": 512 * 1000 * 8}
    ranks = {"world_size": 8, "dp_shard": 2, "cp": 2, "dp_replicate": 2}
    cut = parts(parallel=ranks)
    assert cut["State"] == 64 // 4, "replicas hold it again"
    assert cut["Activations, at most"] == alone["Activations, at most"] // 2, "context ranks share the tokens of a row"
    less = parts(
        parallel={**ranks, "activation_checkpointing": True, "precision": "bfloat16", "lm_head_chunk_size": 5000}
    )
    assert less["Activations, at most"] == 256 * (2 * 64 + layer) * 2
    assert less["Logits, at most"] == 5000 * 8
    found = memory.memory(changed(**stage))
    assert found is not None
    kv = 3 * 2 * 512 * (2 * 2 * 32 * 4)
    assert [part.bytes for part in found.engine] == [16, kv]


def test_memory_that_no_trainer_has_is_said_in_red(draft: Run, pages: Client) -> None:
    assert "text-bad" not in pages.post("/runs/new/check/", filled()).json()["plan"]
    beat = timezone.now()
    WorkerHeartbeat.objects.create(
        name="t", kind="train", pid=1, started_at=beat, beat_at=beat, detail={"run": None, "machine_bytes": 63}
    )
    plan = pages.post("/runs/new/check/", filled()).json()["plan"]
    assert "of the largest trainer GPU" in plan and "text-bad" in plan
    WorkerHeartbeat.objects.update(detail={"machine_bytes": 64})
    found = memory.memory(CONFIG)
    assert found is not None and found.fits
    assert defaults.trainer_bytes(2) == 32, "ranks share a machine"
    WorkerHeartbeat.objects.update(detail={"gpu_bytes": 80})
    assert defaults.trainer_bytes(2) == 80, "and have a GPU each"
    assert device_room()["machine_bytes"] > 1 << 28


# -- templates ----------------------------------------------------------------------------------------------------


def test_a_template_by_form(draft: Run, pages: Client, viewer: Client) -> None:
    named = filled(action="template", template_name="ours", template_description="for Mondays")
    assert viewer.post("/runs/new/", named).status_code == 403
    assert pages.post("/runs/new/", named).status_code == 302
    template = RunTemplate.objects.get()
    assert template.configuration == CONFIG
    assert "a template &#x27;ours&#x27; already" in pages.post("/runs/new/", named).content.decode()
    html = pages.get(f"/runs/new/?template={template.pk}").content.decode()
    assert "No changes from" in html and "for Mondays" in html
    pages.post("/runs/new/", filled(action="update", template=str(template.pk), seed="5"))
    template.refresh_from_db()
    assert template.configuration.seed == 5
    (entry,) = AuditEntry.objects.filter(action="template.change")
    assert entry.detail["changed"] == {"config.seed": [0, 5]}
    template.config = {**template.config, "gone": 1}
    template.save()  # as an older version may have kept it
    assert (
        "The template cannot be used: gone: "
        in pages.get(f"/runs/new/?template={template.pk}", follow=True).content.decode()
    )
    page = viewer.get("/runs/templates/").content.decode()
    assert "ours" in page and "Delete" not in page
    assert viewer.post(f"/runs/templates/{template.pk}/delete/").status_code == 403
    pages.post(f"/runs/templates/{template.pk}/", {"name": "theirs", "description": ""})
    pages.post(f"/runs/templates/{template.pk}/delete/")
    assert not RunTemplate.objects.exists()
    (entry,) = AuditEntry.objects.filter(action="template.delete")
    assert entry.detail["name"] == "theirs" and entry.detail["config"]["seed"] == 5
    assert "No template yet" in pages.get("/runs/templates/").content.decode()


def test_a_template_by_api(draft: Run, bearer: Bearer) -> None:
    body = {"name": "ours", "config": CONFIG.model_dump(mode="json")}
    assert api("/templates", body, bearer("viewer")).status_code == 403
    headers = bearer("operator", "operate")
    made = api("/templates", body, headers)
    assert made.status_code == 201
    path = f"/templates/{made.json()['id']}"
    assert api("/templates", body, headers).status_code == 409
    changed = api(path, {"description": "new"}, headers, "patch").json()
    assert (changed["description"], changed["config"]) == ("new", body["config"])
    assert Client().get("/api/v1/templates", headers=headers).json()[0]["name"] == "ours"
    assert Client().delete(f"/api/v1{path}", headers=headers).status_code == 204
    assert Client().get(f"/api/v1{path}", headers=headers).status_code == 404


# -- sweeps -------------------------------------------------------------------------------------------------------

FIELDS = "stage.optimizer.learning_rate: 1e-4, 3e-4\nseed: [1, 2]\n"


def test_a_sweep_by_form(draft: Run, pages: Client, viewer: Client) -> None:
    answer = pages.post("/runs/new/", filled(action="sweep", sweep=FIELDS, sweep_mode="grid"))
    html = answer.content.decode()
    assert answer.status_code == 200 and "4 runs" in html and Run.objects.count() == 1
    body = {"text": render(CONFIG, "yaml"), "sweep": FIELDS, "sweep_mode": "grid", "action": "start"}
    assert viewer.post("/runs/sweeps/new/", body).status_code == 403
    made = pages.post("/runs/sweeps/new/", body)
    sweep = Sweep.objects.get()
    assert made["Location"] == f"/runs/sweeps/{sweep.pk}/"
    runs = sweeps.members(sweep)
    assert [run.varied for run in runs] == [[0.0001, 1], [0.0001, 2], [0.0003, 1], [0.0003, 2]]  # type: ignore[attr-defined]
    assert {run.state for run in runs} == {"queued"} and len({run.name for run in runs}) == 4
    assert all(run.configuration.stage.steps == CONFIG.stage.steps for run in runs)
    metrics.record(run=runs[1], step=1, values={"reward/mean": 0.625})
    page = viewer.get(f"/runs/sweeps/{sweep.pk}/").content.decode()
    assert "0.625" in page and page.count("swatch--") == 4
    assert "small" in viewer.get("/runs/sweeps/").content.decode()
    (entry,) = AuditEntry.objects.filter(action="sweep.create")
    assert entry.detail["fields"] == {"stage.optimizer.learning_rate": [0.0001, 0.0003], "seed": [1, 2]}


def test_a_sweep_is_made_whole_or_not_at_all(draft: Run, pages: Client, bearer: Bearer) -> None:
    bad = "stage.steps: 1, 2, 99"
    html = pages.post("/runs/new/", filled(action="sweep", sweep=bad, sweep_mode="grid")).content.decode()
    assert "99 steps × 2 groups need 198 prompts" in html and "Start 3 runs" not in html
    body = {"text": render(CONFIG, "yaml"), "sweep": bad, "sweep_mode": "grid"}
    refused = pages.post("/runs/sweeps/new/", body)
    assert refused.status_code == 422 and "None of its runs was created" in refused.content.decode()
    for shown in (html, refused.content.decode()):
        assert 'name="edit"' in shown and bad in shown
    edited = as_read(pages.post("/runs/new/text/", {**body, "preset": "rl-toy", "edit": "1"}).content)
    assert bad in edited and f'value="{CONFIG.name}"' in edited and "Filled from the text" not in edited
    headers = bearer("operator", "operate")
    body = {"config": CONFIG.model_dump(mode="json"), "fields": {"stage.steps": [1, 99]}, "mode": "list"}
    found = api("/sweeps/preview", body, headers).json()
    assert found["ok"] is False and [bool(run["errors"]) for run in found["runs"]] == [False, True]
    answer = api("/sweeps", body, headers)
    assert answer.status_code == 422 and "run 2 of 2" in answer.json()["error"]["message"]
    assert Run.objects.count() == 1 and not Sweep.objects.exists()


def test_a_sweep_by_api_and_command(draft: Run, bearer: Bearer, cli: Cli) -> None:
    headers = bearer("operator", "operate")
    body = {"config": CONFIG.model_dump(mode="json"), "fields": {"seed": [4, 5]}, "parent": draft.pk}
    made = api("/sweeps", body, headers)
    assert made.status_code == 201 and made.json()["runs"] == 2
    shown = Client().get(f"/api/v1/sweeps/{made.json()['id']}", headers=headers).json()
    assert [run["values"] for run in shown["runs"]] == [[4], [5]]
    assert Run.objects.filter(parent=draft).count() == 2
    source = ("sweeps", "create", "--preset", "rl-smoke", "--set", "stage.eval_suite=null")
    varied = ("--vary", "stage.steps=1,2", "--vary", "seed=1,2", "--mode", "list")
    told = data(cli(*source, *varied, "--dry-run", "--json"))
    assert [(one["values"], one["errors"]) for one in told] == [([1, 1], {}), ([2, 2], {})]
    assert "2 runs" in cli(*source, "--vary", "seed=1,2")[1]
    assert len(data(cli("sweeps", "list", "--json"))) == 2


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("", "grid", "at least one field"),
        ("stage.steps", "grid", "line 1: write a field"),
        ("seed: 1\nseed: 2", "grid", "line 2: seed is listed twice"),
        ("seed: [1", "grid", "line 1: .* no list"),
        ("seed: 1, 1", "grid", "listed twice"),
        ("name: a, b", "grid", "no field 'name'"),
        ("stage.kind: rl, sft", "grid", "no field 'stage.kind'"),
        ("stage.sampling: 1", "grid", "no field 'stage.sampling'"),
        ("seed: {a: 1}", "grid", "numbers, words"),
        ("stage.reward.tests_weight: .nan", "grid", "NaN and infinity"),
        ("seed: 1, 2\nstage.steps: 1", "list", "as many values of each field: seed has 2, stage.steps has 1"),
        ("seed: " + ", ".join(map(str, range(65))), "grid", "65 runs; a sweep has at most 64"),
        ("seed: 1, 2", "random", "a grid or a list"),
    ],
)
def test_what_is_no_sweep_is_said(text: str, mode: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        sweeps.check_fields(CONFIG, sweeps.parse_fields(text), mode)


def test_names_of_a_sweep_fit_and_are_names() -> None:
    long = sweeps.run_name("x" * 80, ["stage.curriculum.categories", "policy"], ["debug=3, é<b>", None])
    assert RunConfig(name=long, stage=SMALL).name == long and len(long) <= 80
    assert templates.MAX_NAME == 80
