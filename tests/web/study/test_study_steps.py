"""Steps of a study against the product's own API: each finds what it made before, and a wait ends with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from composer_web.accounts.models import User
from composer_web.accounts.services import create_token
from composer_web.datasets.models import Dataset
from composer_web.evals.models import Evaluation
from composer_web.policies.models import Policy
from composer_web.runs import services as run_services
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite, TaskVersion
from opencomposer import ApiError, Client
from scripts.study import demonstrations, evaluations, requests, runs, tasks
from scripts.study.errors import StudyError
from scripts.study.plan import PLANS, Evaluated, Package
from scripts.study.requests import Job, Requests
from scripts.study.steps import reinforce
from scripts.study.study import Made, Study
from tests.web.cli.support import transport

PLAN = PLANS["smoke"].model_copy(update={"context_tokens": 768, "turn_tokens": 96})
"""Within the toy's context."""
HOW = Evaluated(tasks=2, samples=2)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def asked(people: dict[str, User], told: list[str]) -> Iterator[Requests]:
    """Requests of an operator who may also read bundles. A wait that is not over at once ends at its deadline."""
    _, secret = create_token(user=people["operator"], name="study", scopes=["read", "operate", "review"])
    with Client("http://127.0.0.1", secret, transport=httpx.MockTransport(transport)) as client:
        yield Requests(client, wait_seconds=0.0, say=told.append, poll=0.0)


@pytest.fixture
def study(asked: Requests, tmp_path: Path) -> Callable[..., Study]:
    def make(teacher: str = "", **made: Made) -> Study:
        named = {name.replace("_", " "): value for name, value in made.items()}
        return Study(asked, PLAN, 0, tmp_path, teacher, named)

    return make


@pytest.mark.django_db
def test_a_suite_is_posted_once_and_gives_its_bundles(asked: Requests, told: list[str]) -> None:
    chosen = tasks.procedural("train", "train", 3, 0)

    def post() -> tasks.Suite:
        return tasks.posted(asked, name="study-x", purpose="train", tasks=chosen, description="x")

    with pytest.raises(
        StudyError, match=r"controls of study-x: it is checking after 0\.0 hours\. It goes on in the product"
    ):
        post()
    assert told == ["study-x: controls of 0 of 3 tasks"]
    TaskVersion.objects.filter(suites__name="study-x").update(controls_ok=True, controls={"ok": True})
    Suite.objects.filter(name="study-x").update(valid_count=3)
    assert post().valid_count == 3
    assert Suite.objects.count() == 1
    assert [task.bundle_hash for task in tasks.bundles(asked, "study-x")] == [task.bundle_hash for task in chosen]
    Suite.objects.filter(name="study-x").update(valid_count=0, rejected_count=3)
    with pytest.raises(StudyError, match="no task passes its controls"):
        post()


@pytest.mark.django_db
def test_a_pinned_package_needs_no_environment_and_another_is_requested_once(asked: Requests) -> None:
    assert tasks.environment(asked, Package(name="toolz")) == "toolz"
    for _ in range(2):
        with pytest.raises(StudyError, match="environment isodate: it is requested"):
            tasks.environment(asked, Package(name="isodate", version="0.7.2"))
    found = asked.client.get("/environments/repositories")["items"]
    assert [(one["name"], one["kind"], one["revision"]) for one in found] == [("isodate", "sdist", "0.7.2")]


@pytest.mark.django_db
def test_a_generation_that_is_under_way_is_not_requested_again(asked: Requests) -> None:
    for _ in range(2):
        with pytest.raises(StudyError, match="suite study-m: it is queued"):
            tasks.mutations(asked, name="study-m", purpose="train", packages=["toolz"], count=2)
    (job,) = asked.client.get("/tasks/generation-jobs")
    asked.client.post("/tasks/generation-jobs/{job_id}/stop", job_id=job["id"])
    with pytest.raises(StudyError, match="it is queued"):
        tasks.mutations(asked, name="study-m", purpose="train", packages=["toolz"], count=2)
    assert len(asked.client.get("/tasks/generation-jobs")) == 2


@pytest.mark.django_db
def test_a_run_is_created_once_by_name_and_again_after_a_failure(
    asked: Requests, base: Policy, make_suite: Callable[..., Suite]
) -> None:
    make_suite("train", 24)
    config = runs.rl(PLAN, name="study-rl", policy="base", suite="train", seed=0)
    number = runs.ensure(asked, config)
    assert runs.ensure(asked, config) == number
    run = Run.objects.get(pk=number)
    assert run.state == "queued"
    assert run.config["stage"]["eval_suite"] is None
    with pytest.raises(StudyError, match=rf"run {number}: it is queued after"):
        runs.wait(asked, number)
    run_services.cancel_run(run=run)
    with pytest.raises(StudyError, match=rf"run {number}: it is cancelled"):
        runs.wait(asked, number)
    again = runs.ensure(asked, config)
    assert again != number
    assert runs.curves(asked, again) == {}


@pytest.mark.django_db
def test_an_evaluation_is_found_again_by_policy_suite_and_seed(
    asked: Requests, base: Policy, make_suite: Callable[..., Suite]
) -> None:
    make_suite("held-out", 4)

    def start(seed: int = 0) -> int:
        return evaluations.start(asked, policy="base", suite="held-out", how=HOW, seed=seed, limits=PLAN)

    number = start()
    assert start() == number
    assert start(seed=1) != number
    row = Evaluation.objects.get(pk=number)
    assert row.conditions["sampling"]["max_context_tokens"] == PLAN.context_tokens
    assert row.conditions["sampling"]["max_turns"] == PLAN.turns
    asked.client.post("/evaluations/{evaluation_id}/cancel", evaluation_id=number)
    with pytest.raises(StudyError, match=rf"evaluation {number}: it is cancelled"):
        evaluations.wait(asked, number)
    assert start() != number


@pytest.mark.django_db
def test_the_expert_is_refused_before_any_work_where_the_product_may_not_ask_it(
    study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StudyError, match=r"expert: .*OPENCOMPOSER_ENDPOINT_HOSTS=.*make down"):
        demonstrations.introduce(study())
    with pytest.raises(StudyError, match="teacher: there is no endpoint 'gone'"):
        demonstrations.introduce(study("gone"))


@pytest.mark.django_db
def test_the_expert_is_registered_once(study: Callable[..., Study], endpoint_hosts: None, asked: Requests) -> None:
    assert demonstrations.introduce(study()) == {"policy": "study-smoke-0-expert"}
    first = asked.client.get("/endpoints/{name}", name="study-smoke-0-expert")["url"]
    demonstrations.introduce(study())
    (found,) = asked.client.get("/endpoints")["items"]
    assert found["url"] != first, "every server has a port of its own"
    assert found["has_key"]


@pytest.fixture
def endpoint_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    from composer_web.env import env

    monkeypatch.setattr(env(), "endpoint_hosts", "127.0.0.1")


@pytest.mark.django_db
def test_a_dataset_needs_demonstrations_and_is_requested_once(study: Callable[..., Study]) -> None:
    with pytest.raises(ApiError, match="no graded rollout is left"):
        demonstrations.collect(study(demonstrations={"id": 999}))
    Dataset.objects.create(name="study-smoke-0-demonstrations", state="running", wanted={})
    with pytest.raises(StudyError, match="dataset study-smoke-0-demonstrations: it is running"):
        demonstrations.collect(study(demonstrations={"id": 999}))


@pytest.mark.django_db
def test_rl_waits_for_a_policy_that_solves_something(study: Callable[..., Study]) -> None:
    weak = study(after_SFT_held_out={"results": {"pass1": 0.01}})
    made = {"after SFT held-out": {"results": {"pass1": 0.01}}}
    gated = Study(weak.requests, PLANS["full"], 0, weak.folder, "", made)
    with pytest.raises(StudyError, match=r"gate: SFT leaves pass@1 1\.0% .* below 5%"):
        reinforce(gated)


def test_a_wait_outlives_a_restart_and_not_more(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(
        [httpx.ConnectError("down"), httpx.ConnectError("down"), httpx.Response(200, json={"state": "done"})]
    )

    def answer(request: httpx.Request) -> httpx.Response:
        found = next(answers, httpx.ConnectError("down"))
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("opencomposer.client.RETRY_WAITS", ())
    with Client("http://127.0.0.1", "t", transport=httpx.MockTransport(answer)) as client:
        asked = Requests(client, wait_seconds=60, say=lambda _: None, poll=0.0)
        wait = {"what": "import", "good": ("done",), "bad": ("failed",), "tell": lambda job: job.state}
        assert asked.wait(Job, "/x", **wait).state == "done"
        monkeypatch.setattr(requests, "AWAY_SECONDS", 0.0)
        with pytest.raises(StudyError, match="import: the product has not answered for 0 s"):
            asked.wait(Job, "/x", **wait)
