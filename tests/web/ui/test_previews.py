"""What stands beside a row of a list: what it says, to whom, and how often it asks the database."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import Project, User
from composer_web.accounts.projects import set_member
from composer_web.evals.models import Evaluation
from composer_web.policies.models import Policy
from composer_web.review.models import Queue
from composer_web.rollouts.models import Finding, Group, Rollout
from composer_web.rollouts.selectors import worst_groups
from composer_web.tasks.models import Suite
from composer_web.ui.templatetags import ui
from tests.browser import benchmark, seed
from tests.web import seeded
from tests.web.seeded import client, count_queries

pytestmark = pytest.mark.django_db
world = seeded.world
LISTS = ("/evaluations/", "/policies/", "/findings/", "/suites/", "/review/")


def shown(world: seed.World, path: str, role: str = "operator") -> str:
    answer = client(world, role).get(path)
    assert answer.status_code == 200, path
    html = answer.content.decode()
    assert "<html" not in html, "a part of a page"
    return re.sub(r"[ \n]+", " ", html)


@pytest.mark.parametrize("path", LISTS)
def test_every_row_has_what_is_shown_beside_it(world: seed.World, path: str) -> None:
    """By the address that `js/table/rows.js` makes of its link; a head that names the row, for everybody who sees the list."""
    viewer = client(world, "viewer")
    html = viewer.get(path).content.decode()
    assert 'id="preview"' in html
    rows = html.partition('id="rows"')[2].partition("</table>")[0]
    links = re.findall(r'<td class="strong"><a href="([^"]+)">([^<]+)', rows)
    assert links
    for address, name in links[:8]:
        assert address.endswith("/")
        assert f'<a href="{address}">{name.strip()}</a>' in shown(world, f"{address}preview/", "viewer")
    assert viewer.get(f"{path}999999/preview/").status_code == 404
    assert viewer.post(f"{links[0][0]}preview/").status_code == 405


@pytest.mark.parametrize("path", LISTS)
def test_nobody_sees_it_without_a_log_in(world: seed.World, path: str) -> None:
    (first, *_) = re.findall(r'<td class="strong"><a href="([^"]+)">', client(world).get(path).content.decode())
    answer = Client().get(f"{first}preview/")
    assert answer.status_code == 302 and "login" in answer["Location"]


def test_an_evaluation_shows_its_score_and_its_worst_tasks(world: seed.World) -> None:
    one = Evaluation.objects.filter(state="finished", groups__rollouts__verdict="failed").distinct().latest("pk")
    html = shown(world, f"/evaluations/{one.pk}/preview/")
    results = one.results
    for words in (
        ui.percent(results["pass1"]),
        f"95 %: {ui.percent(results['pass1_low'])} to {ui.percent(results['pass1_high'])}",
        f"<dt>Best of {one.samples}</dt><dd>{ui.percent(results['best'])}</dd>",
        f"<dt>Infra errors</dt><dd>{results['verdicts'].get('infra_error', 0)}",
        one.suite.name,
    ):
        assert words in html, words
    worst = worst_groups(one, 5)
    assert worst and [group.passed for group in worst] == sorted(group.passed for group in worst)  # type: ignore[attr-defined]
    for group in worst:
        assert f"{group.passed} / {group.size}" in html and group.task_version.task.slug in html  # type: ignore[attr-defined]


def test_what_was_lost_makes_no_task_bad(world: seed.World) -> None:
    """Infra errors are no failures: a task that lost all but its passed rollouts is not among the worst."""
    one = Evaluation.objects.filter(state="finished").latest("pk")
    version = one.groups.earliest("prompt_index").task_version

    def group(index: int, *verdicts: str) -> int:
        made = Group.objects.create(
            evaluation=one, task_version=version, prompt_index=index, size=4, state="dispatched"
        )
        for sample, verdict in enumerate(verdicts):
            rollout = Rollout.objects.filter(pk=Rollout.objects.create(group=made, sample=sample).pk)
            rollout.update(state="running")
            if verdict == "infra_error":
                rollout.update(state="lost", verdict=verdict, finished_at=timezone.now())
            else:
                rollout.update(state="graded", verdict=verdict, reward=verdict == "passed", finished_at=timezone.now())
        for state in ("running", "accepted"):
            Group.objects.filter(pk=made.pk).update(state=state)
        return made.pk

    lost = group(900, "passed", "infra_error", "infra_error", "infra_error")
    bad = group(901, "failed", "failed", "failed", "failed")
    mixed = group(902, "passed", "passed", "failed", "infra_error")
    found = [group.pk for group in worst_groups(one, 50)]
    assert lost not in found and found.index(bad) < found.index(mixed)


def test_a_policy_shows_what_it_is_and_where_it_is_used(world: seed.World) -> None:
    policy = world.run.policy_in
    Policy.objects.filter(pk=policy.pk).update(
        template_problem="it has no tool calls",
        facts={"context": 4096, "lacks": ["a tool template"], "serve_bytes": 1 << 30},
    )
    html = shown(world, f"/policies/{policy.name}/preview/")
    for words in (
        "Cannot play episodes: it has no tool calls.",
        f"{ui.num(4096)} tokens",
        "a tool template",
        "Runs from it",
    ):
        assert words in html, words
    assert f'href="/runs/{world.run.pk}/"' in html
    trained = Evaluation.objects.filter(state="finished").exclude(run=None).latest("version")
    html = shown(world, f"/policies/{trained.policy.name}/preview/")
    assert f"{ui.percent(trained.results['best'])} of {trained.samples}" in html
    endpoint = benchmark.remote(world.people["operator"])
    html = shown(world, f"/policies/{endpoint.name}/preview/")
    assert "some-model-32b" in html and "Not evaluated yet." in html and "Runs from it" not in html


def test_a_finding_shows_its_evidence_and_its_rollout(world: seed.World) -> None:
    finding = Finding.objects.filter(subject="rollout").exclude(evidence=[]).latest("pk")
    excerpt = {"turn": 0, "source": "patch", "line": 3, "excerpt": "os._exit(0) <b>"}
    Finding.objects.filter(pk=finding.pk).update(evidence=[excerpt] * 5)
    html = shown(world, f"/findings/{finding.pk}/preview/")
    assert (
        html.count("os._exit(0) &lt;b&gt;") == 3 and "2 more on its page." in html and "turn 1, patch, line 3" in html
    )
    rollout = Rollout.objects.get(pk=finding.rollout_id)
    assert f'href="/rollouts/{rollout.pk}/#t=0"' in html and f">{rollout.verdict}</span>" in html


def test_a_suite_shows_its_tasks_and_scores(world: seed.World) -> None:
    one = Evaluation.objects.filter(state="finished").latest("pk")
    suite = Suite.objects.get(pk=one.suite_id)
    html = shown(world, f"/suites/{suite.name}/preview/")
    assert f"<dt>Tasks</dt><dd>{suite.task_count}</dd>" in html
    assert f"<dt>Rejected</dt><dd>{suite.rejected_count}" in html
    assert f'<a href="/evaluations/{one.pk}/">{one.title}</a>' in html and ui.percent(one.results["pass1"]) in html


def test_a_queue_shows_reviewers_what_waits_for_them(world: seed.World) -> None:
    queue = Queue.objects.filter(closed_at=None, items__labelled_by__lt=F("reviewers")).distinct().earliest("pk")
    html = shown(world, f"/review/{queue.name}/preview/", "reviewer")
    assert queue.questionnaire.questions[0].text in html
    found = re.search(rf'href="/review/{queue.name}/(\d+)/">rollout (\d+)</a>', html)
    assert found is not None, "somebody who may review has something to do"
    rollout = Rollout.objects.get(pk=int(found[2]))
    assert rollout.verdict in html and ('class="code"' in html or "changed nothing" in html)
    viewer = shown(world, f"/review/{queue.name}/preview/", "viewer")
    assert "Awaiting you" not in viewer and "rollout" not in viewer.partition("</dl>")[2]


@pytest.mark.parametrize(
    ("path", "queries"),
    [("/evaluations/{e}/", 4), ("/policies/{p}/", 5), ("/findings/{f}/", 3), ("/suites/{s}/", 4), ("/review/{q}/", 6)],
)
def test_it_asks_the_database_a_few_times(world: seed.World, path: str, queries: int) -> None:
    one = Evaluation.objects.filter(state="finished").latest("pk")
    given: dict[str, Any] = {
        "e": one.pk,
        "p": one.policy.name,
        "f": Finding.objects.latest("pk").pk,
        "s": one.suite.name,
        "q": Queue.objects.filter(closed_at=None).earliest("pk").name,
    }
    assert count_queries(client(world, "reviewer"), f"{path.format(**given)}preview/") == queries


def test_labels_of_others_stay_hidden_beside_a_list(world: seed.World) -> None:
    """A finding that labels raised is a 404 for a reviewer who has yet to label its rollout, as its page is."""
    queue = Queue.objects.filter(closed_at=None).earliest("pk")
    item = queue.items.filter(labelled_by__lt=queue.reviewers).earliest("pk")
    rollout = item.rollout
    finding = Finding.objects.create(
        subject="rollout", rule="review-label", rule_version=1, severity="high", summary="labelled bad", rollout=rollout,
        group_id=rollout.group_id, task_version_id=rollout.group.task_version_id, run_id=rollout.group.run_id,
    )  # fmt: skip
    fresh = User.objects.create_user("fresh", password="x" * 12)
    set_member(project=Project.objects.earliest("pk"), username="fresh", role="reviewer", actor=None)
    reader = Client()
    reader.force_login(fresh)
    for address in (f"/findings/{finding.pk}/", f"/findings/{finding.pk}/preview/"):
        assert reader.get(address).status_code == 404, address
        assert client(world, "admin").get(address).status_code == 200
