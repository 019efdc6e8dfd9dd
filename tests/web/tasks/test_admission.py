"""The path of curation: who can join a suite, why others cannot, and moving tasks out of training."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.errors import Conflict, UserError
from composer_web.evals import services as evals
from composer_web.evals.models import Evaluation
from composer_web.evals.results import leaderboard, releases
from composer_web.evals.results import tasks as evaluating
from composer_web.policies.models import Policy
from composer_web.runs import services as runs
from composer_web.runs.models import Run
from composer_web.system.home import scores
from composer_web.tasks.curation import admission, training
from composer_web.tasks.curation import services as curation
from composer_web.tasks.models import Suite, Task, TaskChange, TaskVersion
from composer_web.tasks.overlap import refuse_overlap
from composer_web.tasks.services import build_suite, record_controls
from tests.browser import episodes
from tests.browser.episodes import task as spec
from tests.web import pool
from tests.web.pool import browser, newest
from trainer.config import RLConfig, RunConfig

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]
Cli = Callable[..., tuple[int, str]]
tasks, other = pool.tasks, pool.other


@pytest.fixture
def bench(people: dict[str, User]) -> Suite:
    return curation.open_suite(name="bench", purpose="benchmark", reviewed=False, actor=people["operator"])


@pytest.fixture
def trained(tasks: list[Task], people: dict[str, User]) -> Suite:
    """Two of the six tasks are for training."""
    suite = curation.open_suite(name="train", purpose="train", reviewed=False, actor=people["operator"])
    curation.apply(tasks=tasks[:2], action="suite", value="train", actor=people["operator"])
    return suite


def test_only_what_can_join_is_offered_and_the_rest_is_counted(
    tasks: list[Task], trained: Suite, bench: Suite, people: dict[str, User]
) -> None:
    curation.apply(tasks=[tasks[2]], action="split", value="train", actor=people["operator"])
    curation.apply(tasks=[tasks[3]], action="suite", value="bench", actor=people["operator"])
    assert list(admission.admissible(Task.objects.order_by("pk"), bench)) == tasks[4:]
    found = admission.left_out(Task.objects.all(), bench)
    counted = [(one.count, one.why, one.fix) for one in found]
    assert counted == [
        (1, "in bench already", ""), (2, "in training suites", "leave_training"), (1, "on the split train", "split"),
    ]  # fmt: skip
    assert found[1].consequences == ("suite train loses 2 tasks",)
    page = browser(people["reviewer"])
    queue = page.get("/tasks/review/?into=bench", follow=True)
    html = queue.content.decode()
    assert queue.redirect_chain[-1][0].startswith(f"/tasks/review/{tasks[4].slug}/")
    assert "<span data-waiting>2</span>" in html
    assert "2 in training suites" in " ".join(html.split())
    for key, members in (("member", tasks[3:4]), ("training", tasks[:2]), ("train", tasks[2:3])):
        assert f"/tasks/?left_out=bench:{key}" in html
        listed = page.get(f"/tasks/?left_out=bench:{key}").content.decode()
        assert [one for one in tasks if f'href="/tasks/{one.slug}/"' in listed] == members
    for wrong, words in (
        ("bench:nothing", "bench leaves tasks out for: member, rejected"),
        ("nowhere:train", "there is no suite"),
    ):
        answer = page.get(f"/tasks/?left_out={wrong}")
        assert (answer.status_code, words in answer.content.decode()) == (422, True)


def test_what_a_queue_leaves_out_is_helped_at_once(
    tasks: list[Task], trained: Suite, bench: Suite, people: dict[str, User]
) -> None:
    page, operator = browser(people["reviewer"]), people["operator"]
    curation.apply(tasks=[tasks[2]], action="split", value="train", actor=operator)
    version = newest(tasks[3])
    record_controls(version=version, controls={"bundle_hash": version.bundle_hash}, ok=False)
    for task in tasks[4:]:
        curation.decide(task=task, version=newest(task), decision="accept", actor=people["reviewer"])
    done = page.get("/tasks/review/?into=bench").content.decode()
    words = " ".join(done.split())
    assert "Nothing waits for your review" in done and "2 in training suites" in words
    assert 'data-confirm="Move 2 tasks out of training? Suite train loses 2 tasks. Rollouts that were trained' in words
    assert 'aria-label="Curation of bench"' in done
    one_by_one = page.get("/tasks/review/?left_out=bench:training&into=bench", follow=True)
    assert one_by_one.redirect_chain[-1][0].startswith(f"/tasks/review/{tasks[0].slug}/")
    assert 'data-key="m">Move out of training' in one_by_one.content.decode()
    assert page.post("/suites/bench/admit/member/?into=bench").status_code == 404
    for action, told in (
        ("training", "2 tasks moved out of training."), ("train", "The split of 1 task is cleared."),
        ("rejected", "The validation of 1 task is queued."),
    ):  # fmt: skip
        answer = page.post(f"/suites/bench/admit/{action}/", {"next": "/tasks/review/?into=bench"}, follow=True)
        assert told in answer.content.decode()
        assert answer.redirect_chain[0][0] == "/tasks/review/?into=bench"
    assert [one.key for one in admission.left_out(Task.objects.all(), bench)] == ["rejected"]
    again = page.post("/suites/bench/admit/training/", follow=True)
    assert "no task is in training suites any more" in again.content.decode()


def test_a_refused_bulk_change_offers_its_fix(
    tasks: list[Task], trained: Suite, bench: Suite, people: dict[str, User]
) -> None:
    page = browser(people["operator"])
    ticked = {"task": [str(task.pk) for task in tasks[:3]], "value_suite": "bench"}
    html = page.post("/tasks/bulk/", {**ticked, "action": "suite"}, follow=True).content.decode()
    assert "move them out of training first" in html and 'form="bulk" formaction="/tasks/bulk/" name="action"' in html
    assert "Move 2 tasks out of training? Suite train loses 2 tasks." in html
    moved = page.post("/tasks/bulk/", {**ticked, "action": "leave_training"}, follow=True).content.decode()
    assert "3 tasks changed" in moved and '"value_suite", "bench"' in moved, "still ticked, to be added now"
    page.post("/tasks/bulk/", {**ticked, "action": "suite"})
    assert bench.memberships.count() == 3


def test_the_api_moves_tasks_out_of_training(
    tasks: list[Task], trained: Suite, bench: Suite, people: dict[str, User], bearer: Bearer, cli: Cli
) -> None:
    body = {"action": "leave_training", "tasks": [tasks[0].slug]}
    made = Client(headers=bearer("operator", "operate")).post(
        "/api/v1/curation/bulk", json.dumps(body), "application/json"
    )
    assert (made.status_code, made.json()["changed"]) == (200, 1)
    assert cli("tasks", "list", "--left-out", "bench:training", "--json")[0] == 0
    assert cli("tasks", "update", tasks[1].slug, "--leave-training")[0] == 0
    assert not trained.memberships.exists()


def test_a_task_of_an_unused_suite_moves_out_and_joins(
    tasks: list[Task], trained: Suite, bench: Suite, people: dict[str, User]
) -> None:
    task, operator = tasks[0], people["operator"]
    with pytest.raises(UserError, match=rf"trained on: {task.slug} \(in train\); move them out") as refused:
        curation.apply(tasks=[task], action="suite", value="bench", actor=operator)
    assert refused.value.code == "in_training"
    (found,) = admission.obstacles(task, newest(task), bench)
    assert (found.fix, found.consequences) == ("leave_training", ("train loses it",))
    page = browser(people["reviewer"])
    here = f"/tasks/review/{task.slug}/?into=bench"
    assert "Move out of training" in page.get(here).content.decode()
    answer = page.post(f"/tasks/review/{task.slug}/leave-training/?into=bench", headers={"X-Requested-With": "fetch"})
    assert (answer.status_code, answer.json()["message"]) == (200, f"{task.slug} is out of training: train loses it.")
    assert "Cannot join" not in page.get(here).content.decode()
    curation.apply(tasks=[task], action="suite", value="bench", actor=operator)
    assert bench.memberships.get().task == task
    assert TaskChange.objects.filter(task=task, field="suite").count() == 3
    with pytest.raises(UserError, match="none of these tasks"):
        training.move_out(tasks=[task], actor=operator)


def test_a_used_suite_is_retired_and_replaced(running: Run, bench: Suite, people: dict[str, User]) -> None:
    from composer_web.rollouts.dispatch import services as rollouts

    rollouts.pump(run_id=running.pk)
    suite = Suite.objects.get(name="train")
    members = list(suite.memberships.order_by("position").values_list("task_id", flat=True))
    task = Task.objects.get(pk=members[0])
    (held,) = training.holdings(task)
    assert held.consequence == "train has been used, so it is retired and new runs use train-2 without it"
    training.move_out(tasks=[task], actor=people["operator"])
    suite.refresh_from_db()
    assert suite.retired_at is not None
    assert list(suite.memberships.order_by("position").values_list("task_id", flat=True)) == members
    successor = Suite.objects.get(name="train-2")
    assert suite.replaced_by == successor
    assert list(successor.memberships.order_by("position").values_list("task_id", flat=True)) == members[1:]
    curation.apply(tasks=[task], action="suite", value="bench", actor=people["operator"])
    with pytest.raises(Conflict, match="retired; use train-2"):
        curation.apply(tasks=[task], action="suite", value="train", actor=people["operator"])
    stage = running.configuration.stage
    assert isinstance(stage, RLConfig)
    with pytest.raises(UserError, match="'train' is retired; use train-2"):
        runs.create_run(config=RunConfig(name="again", stage=stage))
    assert "new runs use" in browser(people["viewer"]).get("/suites/train/").content.decode()


def test_an_overlap_names_both_tasks_or_both_suites(tasks: list[Task]) -> None:
    mined = [spec(i).model_copy(update={"source": "mutation", "id": f"mined-{i}"}) for i in range(2)]
    build_suite(name="ours", purpose="train", specs=mined[:1])
    with pytest.raises(UserError, match=r"mined-0 is in suite 'ours', on the other side of the split"):
        refuse_overlap(mined[:1], purpose="benchmark")
    twin = mined[0].model_copy(update={"id": "twin"})
    with pytest.raises(UserError, match=r"mined-0 and twin: the same change|twin and mined-0: the same change"):
        refuse_overlap([twin], purpose="benchmark")


def test_a_refused_form_keeps_what_was_given(tasks: list[Task], people: dict[str, User]) -> None:
    page = browser(people["operator"])
    answer = page.post("/suites/open/", {"name": "Not A Name", "purpose": "held-out", "description": "kept words"})
    html = answer.content.decode()
    assert (answer.status_code, 'value="kept words"' in html, 'value="Not A Name"' in html) == (422, True, True)
    assert '<option value="held-out" selected>' in html
    curation.open_suite(name="empty", purpose="benchmark", reviewed=False, actor=people["operator"])
    given = {"benchmark": "our-bench", "suite": "empty", "notes": "kept notes", "unreviewed": "on"}
    answer = page.post("/evaluations/releases/publish/", given)
    html = answer.content.decode()
    assert answer.status_code == 422
    assert "no task of suite" in html
    for kept in ('value="our-bench"', 'value="kept notes"', 'id="publish" open'):
        assert kept in html, kept
    assert re.search(r'name="unreviewed"[^>]* checked', html)


def test_the_path_says_what_comes_next(tasks: list[Task], bench: Suite, people: dict[str, User]) -> None:
    page = browser(people["operator"])
    html = page.get("/suites/bench/").content.decode()
    assert html.count("Publish it first.") == 1
    assert "Add tasks first." in html
    for step in ("/tasks/review/?into=bench", "/imports/?into=bench", "/generators/?into=bench"):
        assert step in html
        assert 'aria-label="Curation of bench"' in page.get(step, follow=True).content.decode()
    curation.apply(tasks=tasks[:4], action="suite", value="bench", actor=people["operator"])
    html = page.get("/suites/bench/").content.decode()
    assert "4 of 4 valid" in html
    assert "0 of 4 admitted" in html
    releases.publish(benchmark="our", suite=bench, unreviewed=True, actor=people["operator"])
    html = page.get("/suites/bench/").content.decode()
    assert "our-1" in html
    assert '/evaluations/releases/our/1/"' in html
    assert 'aria-label="Curation of bench"' in page.get("/evaluations/releases/our/1/").content.decode()
    assert "4 not admitted: the release says so for good" in html
    TaskVersion.objects.filter(pk=newest(tasks[0]).pk).update(controls_ok=None, controls=None)
    html = page.get("/suites/bench/").content.decode()
    assert "1 not validated" in html and "3 of 4 can be published" in html
    assert html.count('action="/suites/bench/controls/"') == 1


def test_evaluations_of_the_suite_are_on_the_leaderboard(
    tasks: list[Task], bench: Suite, policy: Policy, people: dict[str, User], played: Callable[[Evaluation], None]
) -> None:
    curation.apply(tasks=tasks[:4], action="suite", value="bench", actor=people["operator"])
    whole = evals.create_evaluation(policy=policy, version=0, suite=bench, tasks=4, samples=1)
    played(whole)
    part = evals.create_evaluation(policy=policy, version=0, suite=bench, tasks=3, samples=1, effort="less")
    played(part)
    release = releases.publish(benchmark="our", suite=bench, unreviewed=True, actor=people["operator"])
    rows = leaderboard.leaderboard(release)
    assert [row.evaluation for row in rows] == [whole], "one that measured other tasks is not comparable"
    viewer = browser(people["viewer"])
    assert "covers exactly these task versions" in viewer.get("/evaluations/releases/our/1/").content.decode()
    assert leaderboard.get_release("our", 1).evaluation_count == 1  # type: ignore[attr-defined]  # annotated
    assert "1 evaluation<" in viewer.get("/suites/bench/").content.decode()
    assert [(one.benchmark, one.evaluation) for one in scores()] == [("our-1", whole)]


@pytest.fixture
def played(db: None) -> Callable[[Evaluation], None]:
    """What workers do with an evaluation: every rollout passes."""

    def play(evaluation: Evaluation) -> None:
        evaluating.start(evaluation_id=evaluation.pk)
        for group in evaluation.groups.select_related("task_version"):
            episodes.finish_group(group, draw=random.Random(group.pk), skill=1.0)
        evaluating.advance(evaluation_id=evaluation.pk)
        evaluation.refresh_from_db()
        assert evaluation.state == "finished"

    return play
