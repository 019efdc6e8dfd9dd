"""Difficulty and the sampler's order, overlap of suites, generators' records, tasks and rollouts in other formats."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import IntegrityError
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import UserError
from composer_web.core.models import Outbox
from composer_web.evals.models import Evaluation
from composer_web.evals.results import prepass
from composer_web.evals.services import create_evaluation, mark_finished, mark_running
from composer_web.policies.models import Policy
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.dispatch.services import dispatch_evaluation
from composer_web.rollouts.exports import records
from composer_web.rollouts.models import Rollout
from composer_web.tasks import difficulty, generating
from composer_web.tasks.curation import services as curation
from composer_web.tasks.exchange import interchange
from composer_web.tasks.models import GeneratorRun, Suite, Task, TaskStatistic, TaskVersion
from composer_web.tasks.selectors import prompt_order
from composer_web.tasks.services import build_suite
from sandbox.formats import atif
from sandbox.generators.building.yields import Yield
from tests.sandbox.formats.examples import CALLS, TASK
from tests.web.making import claim, trajectory
from trainer.config import CurriculumConfig
from trainer.types import Trajectory, Turn

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


def measure(suite: Suite, policy: Policy, passes: dict[int, list[bool | None]]) -> Evaluation:
    """A finished evaluation with these outcomes by position of the task; None is lost to the machine."""
    samples = max(map(len, passes.values()))
    made = create_evaluation(policy=policy, version=0, suite=suite, tasks=len(passes), samples=samples)
    versions = [member.task_version_id for member in suite.memberships.all()[: len(passes)]]
    mark_running(evaluation=made)
    dispatch_evaluation(evaluation=made, version_ids=versions)
    for group in made.groups.all():
        held = claim(group).held
        graded = []
        for sample, passed in enumerate(passes[group.prompt_index]):
            found = trajectory(group, sample, passed=passed)
            key = f"measured/{group.pk}/{sample}.json.zst"
            artifacts().put_model(key, found)
            graded.append(rollouts.Graded(found, key))
        group.refresh_from_db()
        rollouts.accept(group=group, held=held, graded=graded, train_key="", oldest_version=0, infra_errors=())
    return mark_finished(evaluation=made, results={"pass1": 0.5, "best": 1.0, "best_of": samples})


@pytest.fixture
def measured(make_suite: Callable[..., Suite], policy: Policy) -> Suite:
    suite = make_suite(count=6)
    rates = {0: [True, True], 1: [False, False], 2: [True, False], 3: [True, None], 4: [False, True], 5: [None, None]}
    prepass.record_statistics(evaluation_id=measure(suite, policy, rates).pk)
    return suite


def test_a_prepass_gives_statistics_of_each_task(measured: Suite, policy: Policy) -> None:
    found = {one.task_version.memberships.get().position: one for one in TaskStatistic.objects.all()}
    assert {at: (one.passed, one.samples) for at, one in found.items()} == {
        0: (2, 2), 1: (0, 2), 2: (1, 2), 3: (1, 1), 4: (1, 2)
    }  # fmt: skip
    assert found[0].turns == 0 and found[0].output_tokens == 2.0 and found[0].policy == policy.name
    (total,) = difficulty.of_suite(measured)
    assert (total.measured, total.solved_all, total.solved_none) == (5, 2, 1)
    prepass.record_statistics(evaluation_id=found[0].evaluation_id)
    assert TaskStatistic.objects.count() == 5, "the same evaluation counts once"


def test_tasks_are_listed_by_how_hard_they_were_when_last_measured(
    measured: Suite, policy: Policy, client: Client, people: dict[str, User], bearer: Bearer
) -> None:
    client.force_login(people["viewer"])
    at = {m.position: m.task for m in measured.memberships.select_related("task")}

    def found(value: str) -> set[str]:
        rows = client.get("/api/v1/tasks", {"difficulty": value}, headers=bearer("viewer")).json()["items"]
        return {row["slug"] for row in rows}

    def counts() -> dict[str, int]:
        facets = client.get("/api/v1/curation/facets", headers=bearer("viewer")).json()
        return {
            one["value"]: one["count"] for facet in facets if facet["name"] == "difficulty" for one in facet["values"]
        }

    assert counts() == {"always": 2, "middle": 2, "never": 1, "unknown": 1}
    assert found("never") == {at[1].slug} and found("unknown") == {at[5].slug}
    assert found("always") == {at[0].slug, at[3].slug} and found("easy") == found("hard") == set()
    text = client.get("/tasks/", {"difficulty": "middle", "sort": "-pass_rate"}).content.decode()
    assert at[2].slug in text and re.search(r"50\s*%", text) and at[0].slug not in text
    later = measure(measured, policy, {0: [False, False, False, False, True]})
    prepass.record_statistics(evaluation_id=later.pk)
    assert found("hard") == {at[0].slug}, "the newest measurement counts"
    old = TaskStatistic.objects.create(
        task_version=at[0].newest_version, policy="older", samples=1, passed=1, evaluation_id=1,
        measured_at=timezone.now() - timedelta(days=9),
    )  # fmt: skip
    assert found("hard") == {at[0].slug}, "and no older one that is written later"
    assert old.pass_rate == 1.0
    curation.edit_instruction(task=at[0], text="In other words", actor=people["reviewer"])
    assert found("unknown") == {at[0].slug, at[5].slug}, "nobody has measured the new version"


def test_thinking_is_counted_from_the_trajectories(make_suite: Callable[..., Suite], policy: Policy) -> None:
    made = measure(make_suite(count=1), policy, {0: [True, False]})
    for rollout, tokens in zip(Rollout.objects.filter(group__evaluation=made).order_by("pk"), (30, 10), strict=True):
        kept = artifacts().get_model(rollout.artifact_key, Trajectory)
        turns = tuple(Turn(index=n, text="", token_start=1, token_end=3, thinking_tokens=tokens // 2) for n in range(2))
        artifacts().put_model(rollout.artifact_key, kept.model_copy(update={"turns": turns}))
    prepass.record_statistics(evaluation_id=made.pk)
    assert TaskStatistic.objects.get().thinking_tokens == 20.0


def test_statistics_are_shares(measured: Suite) -> None:
    one = TaskStatistic.objects.all()[0]
    with pytest.raises(IntegrityError, match="statistic_is_a_share"):
        TaskStatistic.objects.filter(pk=one.pk).update(passed=one.samples + 1)


def test_the_order_of_prompts_follows_the_sampler(measured: Suite, policy: Policy) -> None:
    plain = prompt_order("train", seed=3)
    assert prompt_order("train", seed=3, sampler=CurriculumConfig(), prompts=6) == plain
    at = {m.task_version_id: m.position for m in measured.memberships.all()}

    def used(**options: object) -> set[int]:
        return {at[pk] for pk in prompt_order("train", seed=3, sampler=CurriculumConfig(**options), prompts=6)}

    assert used(drop_solved_all=True, drop_solved_none=True) == {2, 4, 5}
    assert used(hardest=0.4, easiest=0.6, unmeasured="skip", policy=policy.name) == {2, 4}
    assert used(policy="nobody", unmeasured="skip") == set()
    later = prompt_order("train", seed=3, sampler=CurriculumConfig(easy_to_hard=1.0), prompts=6)
    assert sorted(later) == sorted(plain)


def test_difficulty_is_shown_on_the_page_and_by_api(
    measured: Suite, client: Client, people: dict[str, User], bearer: Bearer
) -> None:
    client.force_login(people["viewer"])
    text = client.get("/suites/train/").content.decode()
    assert "Never solved" in text and "base" in text
    (found,) = client.get("/api/v1/suites/train/difficulty", headers=bearer("viewer")).json()
    assert found["measured"] == 5 and found["solved_none"] == 1


def test_train_and_held_out_may_not_overlap() -> None:
    build_suite(name="held", purpose="held-out", specs=[TASK])
    near = TASK.model_copy(update={"id": "other", "family": "elsewhere"})
    with pytest.raises(UserError, match=r"overlap: other and swe-add-1: the same change and the same tests\. Leave"):
        build_suite(name="mine", purpose="train", specs=[near])
    assert not Suite.objects.filter(name="mine").exists()
    build_suite(name="bench", purpose="benchmark", specs=[near])
    with pytest.raises(UserError, match="nearly the same"):
        build_suite(name="twice", purpose="benchmark", specs=[TASK, near])


def test_what_generators_spent_is_kept_and_shown(client: Client, people: dict[str, User], bearer: Bearer) -> None:
    found = Yield(generator="deletion", package="shelf", tried=4, kept=1, rejected={"no test notices": 3}, seconds=30.0)
    generating.save_yield(found)
    client.force_login(people["viewer"])
    text = client.get("/generators/").content.decode()
    assert "3 × no test notices" in text and "25%" in text and "2.0" in text and "Make a suite" not in text
    (one,) = client.get("/api/v1/tasks/generators", headers=bearer("viewer")).json()["items"]
    assert (one["share"], one["per_minute"]) == (0.25, 2.0)
    with pytest.raises(IntegrityError, match="generator_keeps_what_it_tried"):
        GeneratorRun.objects.update(kept=9)


def test_the_page_of_generators_takes_the_same_number_of_queries(
    client: Client, people: dict[str, User], django_assert_max_num_queries
) -> None:
    for count in range(60):
        generating.save_yield(Yield(generator=f"g{count % 3}", package="p", tried=1, kept=1, seconds=1.0))
    client.force_login(people["reviewer"])
    with django_assert_max_num_queries(11):
        assert client.get("/generators/").status_code == 200


def test_generators_are_started_from_the_page_and_bad_orders_are_named(client: Client, people: dict[str, User]) -> None:
    client.force_login(people["reviewer"])
    form = {"name": "made", "packages": ["toolz"], "generators": ["deletion"], "styles": ["terse"], "count": "3"}
    text = client.post("/generators/run/", form, follow=True).content.decode()
    assert "Generation job created" in text
    (sent,) = Outbox.objects.filter(task="tasks.generate")
    assert sent.kwargs["wanted"]["generators"] == ["deletion"] and sent.kwargs["wanted"]["count"] == 3
    for bad, said in (
        ({"packages": ["nothing"]}, "neither pinned"),
        ({"name": "A B"}, "name"),
        ({"count": "0"}, "count"),
    ):
        text = client.post("/generators/run/", {**form, **bad}, follow=True).content.decode()
        assert said in text
    assert Outbox.objects.filter(task="tasks.generate").count() == 1
    client.force_login(people["viewer"])
    assert client.post("/generators/run/", form).status_code == 403


def test_tasks_leave_for_harbor_and_come_back(client: Client, people: dict[str, User], bearer: Bearer) -> None:
    build_suite(name="bench", purpose="benchmark", specs=[CALLS])
    client.force_login(people["operator"])
    answer = client.get("/suites/bench/export/harbor/")
    assert answer.status_code == 200 and "isolation" in answer["X-Not-Carried"]
    names = zipfile.ZipFile(io.BytesIO(answer.content)).namelist()
    assert f"{CALLS.id}/task.toml" in names
    back, _ = interchange.import_harbor(answer.content)
    assert [spec.bundle_hash for spec in back] == [CALLS.bundle_hash]
    assert client.get("/suites/bench/export/swe-bench/").status_code == 422, "calls have no test ids"
    client.force_login(people["viewer"])
    assert client.get("/suites/bench/export/harbor/").status_code == 403
    upload = SimpleUploadedFile("tasks.zip", answer.content)
    made = client.post("/api/v1/suites/again/import", {"file": upload}, headers=bearer("reviewer", "review"))
    assert made.status_code == 201 and made.json()["tasks"] == 1
    assert Suite.objects.get(name="again").versions.get() == TaskVersion.objects.get(bundle_hash=CALLS.bundle_hash)


@pytest.mark.parametrize("data", [b"no zip", b""])
def test_a_bad_upload_imports_nothing(client: Client, people: dict[str, User], data: bytes) -> None:
    client.force_login(people["reviewer"])
    form = {"name": "bad", "file": SimpleUploadedFile("x.zip", data)}
    text = client.post("/imports/tasks/", form, follow=True).content.decode()
    assert "readable zip" in text or "choose a file" in text
    assert not Suite.objects.exists()


def test_one_bad_directory_keeps_all_out(client: Client, people: dict[str, User]) -> None:
    data, _ = interchange.export_tasks([CALLS], "harbor")
    archive = io.BytesIO(data)
    with zipfile.ZipFile(archive, "a") as out:
        out.writestr("second/task.toml", 'schema_version = "9.9"')
        out.writestr("second/instruction.md", "x")
    with pytest.raises(UserError, match=r"second: schema_version 9\.9 is newer"):
        interchange.import_harbor(archive.getvalue())
    client.force_login(people["reviewer"])
    form = {"name": "both", "file": SimpleUploadedFile("x.zip", archive.getvalue())}
    text = client.post("/imports/tasks/", form, follow=True).content.decode()
    assert "second: schema_version 9.9 is newer than 1.4" in text
    assert not (Suite.objects.exists() or Task.objects.exists() or TaskVersion.objects.exists())


def test_rollouts_leave_in_each_format(measured: Suite, client: Client, bearer: Bearer, tmp_path) -> None:
    rollout = Rollout.objects.filter(verdict="passed")[0]
    for form in ("atif", "messages", "mini-swe-agent"):
        answer = client.get(f"/api/v1/tasks/rollouts/{rollout.pk}/export/{form}", headers=bearer("viewer"))
        assert answer.status_code == 200, form
    assert client.get("/api/v1/tasks/rollouts/999999/export/atif", headers=bearer("viewer")).status_code == 404
    record, _ = atif.load(
        json.dumps(
            client.get(f"/api/v1/tasks/rollouts/{rollout.pk}/export/atif", headers=bearer("viewer")).json()["document"]
        )
    )
    assert record == records.record_of(rollout) and record.reward == 1.0


def test_an_evaluation_leaves_as_a_log_of_inspect(
    measured: Suite, client: Client, people: dict[str, User], bearer: Bearer
) -> None:
    evaluation = Rollout.objects.filter(verdict="passed")[0].group.evaluation
    assert evaluation is not None
    answer = client.get(f"/api/v1/evaluations/{evaluation.pk}/export/inspect", headers=bearer("viewer"))
    client.force_login(people["viewer"])
    page = client.get(f"/evaluations/{evaluation.pk}/").content.decode()
    assert f"/evaluations/{evaluation.pk}/download/" in page and "Download for Inspect View" in page
    for told in (answer, client.get(f"/evaluations/{evaluation.pk}/download/")):
        assert f'filename="evaluation-{evaluation.pk}.eval"' in told["Content-Disposition"]
        with zipfile.ZipFile(io.BytesIO(b"".join(told.streaming_content))) as log:
            assert len(json.loads(log.read("summaries.json"))) == 12
    empty = prepass.prepass(suite=measured, reference="base")
    refused = client.get(f"/api/v1/evaluations/{empty.pk}/export/inspect", headers=bearer("viewer"))
    assert refused.status_code == 422 and "no rollout with a trajectory" in refused.json()["error"]["message"]
    back = client.get(f"/evaluations/{empty.pk}/download/", follow=True)
    assert "no rollout with a trajectory" in back.content.decode()
    assert client.get("/api/v1/evaluations/999999/export/inspect", headers=bearer("viewer")).status_code == 404
    assert timezone.now() >= TaskStatistic.objects.all()[0].measured_at
