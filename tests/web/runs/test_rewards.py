"""The reward of a live run: changed by the API, in force for groups that start afterwards, told in the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.errors import UserError
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.rollouts.worker.execution import make_plan
from composer_web.runs import rewards, services
from composer_web.runs.launch.schema_form import flatten, form_schema
from composer_web.runs.models import Run, RunEvent
from tests.web.making import SMALL
from trainer.config import RewardConfig, RunConfig, TextualFeedbackConfig
from trainer.rewards import plugins
from trainer.rewards.parts import base

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]

PART = """
from trainer.rewards import reward_part
from trainer.types import RewardPart

@reward_part("brief", version=1)
def brief(trajectory, config):
    return RewardPart(name="brief", value=-len(trajectory.turns))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "REGISTRY", dict(base.REGISTRY))
    monkeypatch.setattr(plugins, "loaded_files", {})
    monkeypatch.setenv(plugins.FOLDER, str(tmp_path))
    return tmp_path


def put(client: Client, run: Run, body: Any, headers: dict[str, str]) -> Any:
    return client.put(
        f"/api/v1/runs/{run.pk}/reward", data=json.dumps(body), content_type="application/json", headers=headers
    )


def test_a_part_is_added_to_a_live_run(client: Client, bearer: Bearer, running: Run, folder) -> None:
    headers = bearer("operator", "operate")
    rollouts.pump(run_id=running.pk)
    group = Group.objects.filter(run=running).first()
    assert group is not None
    assert make_plan(group).config.reward == SMALL.reward == rewards.in_force(running)

    wanted = RewardConfig(extra="brief=0.01").model_dump(mode="json")
    unknown = put(client, running, wanted, headers)
    assert unknown.status_code == 422 and "no reward part 'brief'" in unknown.json()["error"]["message"]
    (folder / "brief.py").write_text(PART)
    made = put(client, running, wanted, headers)
    assert made.status_code == 200, made.content
    assert made.json()["kind"] == "reward" and "extra:  → brief=0.01" in made.json()["message"]

    assert make_plan(group).config.reward.extra_weights == {"brief": 0.01}
    assert client.get(f"/api/v1/runs/{running.pk}/reward", headers=headers).json()["extra"] == "brief=0.01"
    running.refresh_from_db()
    assert running.configuration.stage == SMALL, "what was started stays as it was started"
    assert AuditEntry.objects.filter(action="run.reward", actor__username="operator").count() == 1

    assert put(client, running, wanted, headers).status_code == 422, "nothing is different"
    back = put(client, running, RewardConfig().model_dump(mode="json"), headers)
    assert back.status_code == 200
    assert rewards.in_force(running) == RewardConfig()
    assert RunEvent.objects.filter(run=running, kind="reward").count() == 2


def test_who_may_and_when(client: Client, bearer: Bearer, running: Run) -> None:
    draft = services.create_run(config=RunConfig(name="another", stage=SMALL))
    wanted = RewardConfig(length_coefficient=0.1).model_dump(mode="json")
    assert put(client, running, wanted, bearer("viewer", "read")).status_code == 403
    headers = bearer("operator", "operate")
    early = put(client, draft, wanted, headers)
    assert early.status_code == 409 and "is draft" in early.json()["error"]["message"]
    services.cancel_run(run=running)
    assert put(client, running, wanted, headers).status_code == 409
    wrong = put(client, running, {"length_coefficient": -1}, headers)
    assert wrong.status_code == 422


def test_what_this_installation_cannot_score_is_refused_before_a_run_starts(draft: Run) -> None:
    for reward, field in (
        (RewardConfig.model_validate({"behaviour": {"rubric": 0.1}}), "stage.reward.behaviour.rubric"),
        (RewardConfig(extra="nobody=1"), "stage.reward.extra"),
    ):
        config = RunConfig(name="x", stage=SMALL.model_copy(update={"reward": reward}))
        with pytest.raises(UserError) as refused:
            services.check_config(config)
        assert refused.value.field == field


@pytest.mark.parametrize("rules", ["unknown_tool, tone", "model"])
def test_feedback_that_this_installation_cannot_give_is_refused(draft: Run, rules: str) -> None:
    feedback = TextualFeedbackConfig(coefficient=0.5, rules=rules)
    with pytest.raises(UserError) as refused:
        services.check_config(RunConfig(name="x", stage=SMALL.model_copy(update={"textual_feedback": feedback})))
    assert refused.value.field == "stage.textual_feedback.rules"


def test_the_page_changes_the_reward_of_a_live_run(people: dict[str, User], running: Run) -> None:
    browser = Client()
    browser.force_login(people["operator"])
    page = browser.get(f"/runs/{running.pk}/reward/").content.decode()
    assert 'name="length_coefficient"' in page and "Change the reward" in page
    assert f"/runs/{running.pk}/reward/" in browser.get(f"/runs/{running.pk}/").content.decode()
    posted = flatten(form_schema(RewardConfig), RewardConfig(length_coefficient=0.1))
    assert browser.post(f"/runs/{running.pk}/reward/", posted).status_code == 302
    assert rewards.in_force(running).length_coefficient == 0.1
    refused = browser.post(f"/runs/{running.pk}/reward/", posted | {"length_coefficient": "-1"})
    assert refused.status_code == 422 and "found &#x27;-1&#x27;" in refused.content.decode()
    assert rewards.in_force(running).length_coefficient == 0.1
    browser.force_login(people["viewer"])
    assert browser.post(f"/runs/{running.pk}/reward/", posted).status_code == 403
