"""Runs that fit their model: automatic settings on the form, the run and the API; what cannot learn is refused everywhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.core.errors import UserError
from composer_web.core.models import WorkerHeartbeat
from composer_web.evals import services as evals
from composer_web.policies.models import Policy
from composer_web.policies.services import import_base
from composer_web.runs import metrics, services
from composer_web.runs.detectors import insights
from composer_web.runs.launch.forms import default_values
from composer_web.runs.models import Run, RunEvent
from composer_web.tasks.models import Suite
from trainer.config import RLConfig, RunConfig, SamplingConfig

pytestmark = pytest.mark.django_db
TOOLS = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% if loop.first and tools %}
{% for t in tools %}{{ t | tojson }}
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture
def pages(people: dict[str, User]) -> Client:
    client = Client()
    client.force_login(people["operator"])
    return client


@pytest.fixture
def api(bearer: Callable[..., dict[str, str]]) -> Callable[..., Any]:
    """api("post", path, body)"""
    headers = bearer("operator", "operate")

    def call(method: str, path: str, body: Any = None) -> Any:
        more = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        return getattr(Client(), method)(f"/api/v1{path}", headers=headers, **more)

    return call


@pytest.fixture
def real(tmp_path: Path, base: Policy, make_suite: Callable[..., Suite]) -> Policy:
    """A policy that is no toy: its template shows the tools, and its config.json says 8,192 tokens."""
    make_suite(count=24)
    folder = Path(shutil.copytree(Path("policies/base"), tmp_path / "real"))
    (folder / "chat_template.jinja").write_text(TOOLS)
    config = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 8192}
    (folder / "config.json").write_text(json.dumps(config))
    return import_base(path=folder, name="real")


def stage(**settings: Any) -> RLConfig:
    return RLConfig(steps=2, groups_per_step=2, group_size=2, eval_suite=None, **settings)


def config(**settings: Any) -> RunConfig:
    return RunConfig(name="first run", policy="real", stage=stage(**settings))


SHORT = SamplingConfig(max_context_tokens=768, max_turn_tokens=96)
"""The toy's window, in which a real model's opening prompt has no room."""


def test_a_default_run_of_a_real_model_gets_numbers_that_fit(real: Policy) -> None:
    run = services.create_run(config=config())
    found = run.configuration.stage
    assert isinstance(found, RLConfig)
    assert found.sampling.max_context_tokens == 8192 and found.harness.profile == "compact"
    assert {row["path"] for row in run.derived} >= {"stage.sampling.max_turns", "stage.optimizer.learning_rate"}
    assert all(row["reason"] for row in run.derived)


def test_the_toys_window_is_refused_on_the_page_in_the_api_and_by_services(
    real: Policy, pages: Client, api: Any
) -> None:
    with pytest.raises(UserError, match="opening prompt") as caught:
        services.create_run(config=config(sampling=SHORT))
    assert caught.value.field == "stage.sampling.max_context_tokens"
    posted = default_values() | {
        "name": "x", "policy": "real", "stage": "rl", "stage.rl.steps": "2", "stage.rl.groups_per_step": "2",
        "stage.rl.sampling.max_context_tokens": "768", "stage.rl.sampling.max_turn_tokens": "96",
    }  # fmt: skip
    answer = pages.post("/runs/new/check/", posted).json()
    assert "opening prompt" in answer["errors"]["stage.rl.sampling.max_context_tokens"][0]
    refused = api("post", "/runs/validate", config(sampling=SHORT).model_dump(mode="json"))
    assert refused.status_code == 422 and "opening prompt" in refused.content.decode()


def test_the_evaluation_suite_is_checked_too(real: Policy, make_suite: Callable[..., Suite]) -> None:
    make_suite(name="held-out", count=1)
    fits = SamplingConfig(max_context_tokens=8192, max_turn_tokens=96)
    whole = stage(sampling=fits).model_copy(update={"eval_suite": "held-out"})
    services.check_config(RunConfig(name="x", policy="real", stage=whole))
    short = whole.model_copy(update={"sampling": SHORT})
    with pytest.raises(UserError) as caught:
        services.check_config(RunConfig(name="x", policy="real", stage=short))
    assert "evaluation suite" in caught.value.fields["stage.eval_suite"]


def test_the_form_shows_what_automatic_settings_will_be_and_why(real: Policy, pages: Client, api: Any) -> None:
    posted = default_values() | {
        "name": "x", "policy": "real", "stage": "rl", "stage.rl.steps": "2", "stage.rl.groups_per_step": "2",
        "stage.rl.eval_suite": "",
    }  # fmt: skip
    assert posted["stage.rl.sampling.max_context_tokens"] == "auto"
    answer = pages.post("/runs/new/check/", posted).json()
    assert answer["errors"] == {} and "the longest context of the model" in answer["plan"]
    checked = api("post", "/runs/validate", config().model_dump(mode="json")).json()
    assert checked["config"]["stage"]["sampling"]["max_context_tokens"] == 8192
    assert {"path", "value", "reason"} == set(checked["derived"][0])
    assert checked["engine"]["kind"] == "embedded" and "does not answer" in checked["engine"]["how"]
    assert "Inference engine" in answer["plan"]


def test_the_runs_page_shows_them_and_a_copy_is_automatic_again(real: Policy, pages: Client) -> None:
    run = services.create_run(config=config())
    assert "the longest context of the model" in pages.get(f"/runs/{run.pk}/config/").content.decode()
    form = pages.get(f"/runs/new/?from={run.pk}").content.decode()
    assert 'name="stage.rl.sampling.max_context_tokens" value="auto"' in form


def test_a_model_that_the_trainer_cannot_hold_is_refused(real: Policy) -> None:
    now, detail = timezone.now(), {"machine_bytes": 1 << 20, "bfloat16": False}
    WorkerHeartbeat.objects.create(name="t", kind="train", pid=1, started_at=now, beat_at=now, detail=detail)
    with pytest.raises(UserError, match="largest train worker"):
        services.check_config(config())


def test_an_evaluation_takes_turns_and_context_and_refuses_one_that_cannot_begin(real: Policy, api: Any) -> None:
    suite = Suite.objects.get(name="train")
    made = evals.evaluate(reference="real", suite=suite, tasks=2, samples=1, temperature=0.8, turns=7)
    assert made.conditions["sampling"]["max_turns"] == 7 and made.conditions["sampling"]["max_context_tokens"] == 8192
    body = {"policy": "real", "suite": "train", "tasks": 2, "samples": 1, "context_tokens": 512}
    refused = api("post", "/evaluations", body)
    assert refused.status_code == 422 and "opening prompt" in refused.content.decode()
    assert api("post", "/evaluations", body | {"context_tokens": 4096, "turns": 5}).status_code == 201


def test_with_no_policy_the_form_opens_without_an_alarm_about_another(db: None, pages: Client) -> None:
    page = pages.get("/runs/new/").content.decode()
    assert "there is no policy &#x27;base&#x27;" not in page and "import one" in page


@pytest.fixture
def learning(real: Policy) -> Run:
    run = services.create_run(config=config())
    for step in (1, 2):
        values = {"groups/zero_signal": 1.0, "groups/solved_none": 1.0, "optim/grad_norm": 0.0, "calls/mean": 2.0}
        metrics.record(run=run, step=step, values=values)
    return run


def test_insights_are_told_once_and_shown_with_their_remedy(learning: Run, pages: Client, api: Any) -> None:
    insights.watch(run=learning)
    insights.watch(run=learning)
    (event,) = RunEvent.objects.filter(run=learning, kind="insight")
    assert "run SFT first" in event.message and event.data == {"key": "zero-advantage"}
    assert "run SFT first" in pages.get(f"/runs/{learning.pk}/").content.decode()
    (shown,) = api("get", f"/runs/{learning.pk}/insights").json()
    assert shown["key"] == "zero-advantage" and shown["level"] == "error"
    assert shown["url"] == f"/rollouts/waffle/{learning.pk}/"


def test_a_run_that_trained_nothing_has_a_cause(learning: Run) -> None:
    assert "no rollout passed" in insights.nothing_trained(learning)
    metrics.record(run=learning, step=2, values={"optim/grad_norm": 0.5})
    assert insights.nothing_trained(learning) == ""


def test_a_draft_is_probed_on_three_tasks_under_its_own_conditions(real: Policy, pages: Client, api: Any) -> None:
    run = services.create_run(config=config())
    assert "Probe on three tasks" in pages.get(f"/runs/{run.pk}/").content.decode()
    made = api("post", f"/runs/{run.pk}/probe").json()
    assert (made["tasks"], made["policy"], made["suite"]) == (3, "real", "train")
    evaluation = evals.Evaluation.objects.get(pk=made["id"])
    assert evaluation.conditions["sampling"] == run.configuration.stage.model_dump()["sampling"]
    assert pages.post(f"/runs/{run.pk}/probe/")["Location"].startswith("/evaluations/")
