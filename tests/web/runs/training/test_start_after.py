"""Runs that start after another one, from the policy that it trains: they wait, start, fail and go on with it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import redis
from django.db import IntegrityError, transaction
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.errors import Conflict, UserError
from composer_web.core.models import Outbox
from composer_web.env import env
from composer_web.policies.models import Policy
from composer_web.policies.services import real_path, record_checkpoint
from composer_web.runs import services
from composer_web.runs.models import Run
from composer_web.runs.training.waiting import waits_for
from composer_web.system.reconcile import reconcile
from tests.web.cli.support import Cli, data
from tests.web.making import SMALL, take_run, train_here
from trainer.config import RunConfig
from trainer.toy.preset import toy_midtrain

pytestmark = pytest.mark.django_db
FIRST = RunConfig(name="first", policy="base", stage=toy_midtrain(steps=2, batch_tokens=64))
PAST = "2020-01-01T00:00Z"


@pytest.fixture(autouse=True)
def broker() -> None:
    redis.Redis.from_url(env().redis_url).flushdb()


@pytest.fixture
def chain(base: Policy) -> tuple[Run, Run, Run]:
    """Three queued runs, each after the one before."""
    first = services.start_run(run=services.create_run(config=FIRST))
    second = services.create_run(config=FIRST.model_copy(update={"name": "second"}), start_after=first)
    services.start_run(run=second)
    third = services.create_run(config=FIRST.model_copy(update={"name": "third"}), start_after=second)
    return first, second, services.start_run(run=third)


def asked_for() -> list[int]:
    """Runs that a train worker was asked to take."""
    rows = Outbox.objects.filter(task="train.run").order_by("pk")
    return [kwargs["run_id"] for kwargs in rows.values_list("kwargs", flat=True)]


def states(*runs: Run) -> list[str]:
    for run in runs:
        run.refresh_from_db()
    return [run.state for run in runs]


def end(run: Run, version: int) -> None:
    """What its trainer does at the last step."""
    assert run.policy_out is not None
    take_run(run)
    record_checkpoint(policy=run.policy_out, version=version, path=real_path(run.policy_in.base_dir), final=True)
    services.mark_finished(run=run)


def test_it_waits_for_the_run_before_and_says_so(chain: tuple[Run, Run, Run], people: dict[str, User]) -> None:
    first, second, third = chain
    assert states(*chain) == ["queued"] * 3
    assert asked_for() == [first.pk], "nobody is asked to take the others"
    assert (second.policy_in, third.policy_in) == (first.policy_out, second.policy_out)
    assert second.config["policy"] == f"run-{first.pk}"
    words = f"It waits for run {first.pk} (first) and starts from the policy that it trains; that run is queued."
    assert waits_for(second) == words
    assert take_run(second) is None and take_run(third) is None
    Outbox.objects.update(sent_at=PAST)
    assert [repair.target for repair in reconcile()] == [f"run {first.pk}"], "those that wait were not lost"
    client = Client()
    client.force_login(people["viewer"])
    page = client.get(f"/runs/{second.pk}/").content.decode()
    assert words in page and f'href="/runs/{first.pk}/"' in page
    assert "second" in client.get(f"/runs/{first.pk}/part/lineage/").content.decode()


def test_it_starts_from_the_final_version_of_the_run_before(chain: tuple[Run, Run, Run]) -> None:
    first, second, third = chain
    end(first, version=7)
    assert asked_for() == [first.pk, second.pk]
    assert not waits_for(Run.objects.get(pk=second.pk)).startswith("It waits for run")
    assert take_run(third) is None
    assert take_run(second) is not None
    second.refresh_from_db()
    assert (second.state, second.policy_in_version) == ("running", 7)


def test_the_trainer_really_goes_on_with_what_the_run_before_trained(chain: tuple[Run, Run, Run]) -> None:
    for run in chain:
        assert train_here(run).state == "finished", run.failure
    assert chain[2].policy_in_version == 2


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_those_that_wait_fail_with_the_run_before_and_name_it(chain: tuple[Run, Run, Run], how: str) -> None:
    first, second, third = chain
    if how == "failed":
        take_run(first)
        services.mark_failed(run=first, cause="out of memory")
    else:
        services.cancel_run(run=first)
    assert states(*chain) == [how, "failed", "failed"]
    said = "failed: out of memory" if how == "failed" else "was cancelled"
    assert second.failure == f"it starts from the policy of run {first.pk} (first), which {said}"
    assert third.failure.startswith(f"it starts from the policy of run {second.pk} (second), which failed: it starts")
    with pytest.raises(Conflict, match="resume that run first" if how == "failed" else "start a new run"):
        services.resume_run(run=second)
    with pytest.raises(Conflict, match=f"run {first.pk} "):
        services.create_run(config=FIRST, start_after=first)
    assert states(second) == ["failed"]


def test_resuming_the_run_before_queues_those_again_that_failed_with_it(chain: tuple[Run, Run, Run]) -> None:
    first, _, _ = chain
    take_run(first)
    services.mark_failed(run=first, cause="out of memory")
    services.resume_run(run=first)
    assert states(*chain) == ["queued"] * 3
    assert asked_for() == [first.pk] * 2


def test_a_run_that_was_paused_or_a_draft_meanwhile_starts_when_it_is_asked_to(chain: tuple[Run, Run, Run]) -> None:
    first, second, _ = chain
    draft = services.create_run(config=FIRST, start_after=first)
    services.pause_run(run=second)
    end(first, version=2)
    assert asked_for() == [first.pk]
    services.resume_run(run=second)
    services.start_run(run=draft)
    assert asked_for() == [first.pk, second.pk, draft.pk]


def test_a_draft_waits_for_a_draft_and_is_refused_after_a_run_that_failed(base: Policy) -> None:
    first = services.create_run(config=FIRST)
    second = services.start_run(run=services.create_run(config=FIRST, start_after=first))
    later = services.create_run(config=FIRST, start_after=first)
    assert waits_for(second).endswith("that run is draft: start it.")
    first.refresh_from_db()
    services.start_run(run=first)
    take_run(first)
    services.mark_failed(run=first, cause="broken")
    with pytest.raises(Conflict, match="broken; resume that run first"):
        services.start_run(run=later)
    assert states(second, later) == ["failed", "draft"]


def test_settings_are_checked_against_the_policy_that_the_chain_begins_with(chain: tuple[Run, Run, Run]) -> None:
    """There are no weights yet; an RL run asks for a suite that does not exist and is refused at once."""
    with pytest.raises(UserError, match="there is no suite"):
        services.create_run(config=RunConfig(name="rl", stage=SMALL), start_after=chain[2])


def test_no_run_starts_after_itself_or_a_later_one(chain: tuple[Run, Run, Run]) -> None:
    draft = services.create_run(config=FIRST)
    for run, after in ((draft.pk, draft.pk), (chain[0].pk, chain[2].pk)):
        with pytest.raises(IntegrityError), transaction.atomic():
            Run.objects.filter(pk=run).update(start_after=after)
    with pytest.raises(IntegrityError, match="start_after_id may not change"), transaction.atomic():
        Run.objects.filter(pk=chain[2].pk).update(start_after=chain[0].pk)


def test_by_api_and_command_line(chain: tuple[Run, Run, Run], bearer: Callable[..., dict[str, str]], cli: Cli) -> None:
    path = f"/api/v1/runs?start=true&start_after={chain[0].pk}"
    body = json.dumps(FIRST.model_dump(mode="json"))
    made = Client().post(path, body, content_type="application/json", headers=bearer("operator", "operate"))
    assert (made.status_code, made.json()["start_after_id"]) == (201, chain[0].pk), made.content
    assert made.json()["waits_for"].startswith(f"It waits for run {chain[0].pk} ")
    words = ("runs", "create", "--preset", "midtrain-toy", "--start-after", str(chain[0].pk), "--json")
    assert data(cli(*words))[0]["start_after_id"] == chain[0].pk
