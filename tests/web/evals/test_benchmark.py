"""Benchmark releases: what is published never changes, scores stay with their release, flags and contamination."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable

import pytest
from django.db import connection, transaction
from django.db.utils import DatabaseError
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import User
from composer_web.core.errors import UserError
from composer_web.env import REPOSITORY
from composer_web.evals.models import Evaluation, Release, ReleaseTask
from composer_web.evals.results import contamination, leaderboard, releases, tasks
from composer_web.evals.results.scoring import Spent, resources
from composer_web.evals.results.statistics import measure
from composer_web.policies.services import import_base
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.exports import jobs as exports
from composer_web.tasks import reviewing
from composer_web.tasks.models import Suite
from composer_web.tasks.services import build_suite, record_controls
from sandbox.tasks.procedural import generate
from tests.web.cli.support import Cli, data
from tests.web.making import claim, finish

pytestmark = pytest.mark.django_db
SAMPLES = 16


def proved(name: str, seeds: range, purpose: str = "benchmark") -> Suite:
    suite = build_suite(name=name, purpose=purpose, specs=[generate(seed, "held-out") for seed in seeds])
    for version in suite.versions.all():
        record_controls(version=version, controls={"bundle_hash": version.bundle_hash}, ok=True)
    return suite


@pytest.fixture
def first(db: None) -> Release:
    """Release 1 of three tasks."""
    import_base(path=REPOSITORY / "policies" / "base", toy=True)
    return releases.publish(benchmark="bench", suite=proved("one", range(3)), unreviewed=True)


def measured(release: Release, *, passed: list[int], effort: str = "", price: float = 0.0) -> Evaluation:
    """A finished evaluation in which task i passes `passed[i]` of its rollouts."""
    made = releases.run(
        release=release, reference="base", samples=SAMPLES, effort=effort, price_input=price, price_output=10 * price
    )
    tasks.start(evaluation_id=made.pk)
    for group, count in zip(
        made.groups.select_related("task_version__task").order_by("prompt_index"), passed, strict=True
    ):
        held = claim(group)
        assert finish(held.group, held.held, [sample < count for sample in range(SAMPLES)])
    tasks.advance(evaluation_id=made.pk)
    made.refresh_from_db()
    assert made.state == "finished"
    return made


def test_a_release_never_changes(first: Release) -> None:
    suite = first.suite
    members = list(first.members.order_by("position").values_list("task_version_id", flat=True))
    assert members == list(suite.memberships.order_by("position").values_list("task_version_id", flat=True))
    with pytest.raises(DatabaseError, match="may not change"), transaction.atomic():
        Release.objects.filter(pk=first.pk).update(number=7)


def test_tasks_of_a_release_are_append_only(first: Release) -> None:
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        ReleaseTask.objects.filter(release=first).update(lines=1)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        first.members.all()._raw_delete("default")


def test_a_release_needs_tasks_that_passed_their_controls(first: Release) -> None:
    with pytest.raises(UserError, match="exactly these tasks"):
        releases.publish(benchmark="bench", suite=first.suite, unreviewed=True)
    unproved = build_suite(name="raw", purpose="benchmark", specs=[generate(9, "held-out")])
    with pytest.raises(UserError, match="validate them on the suite's page"):
        releases.publish(benchmark="bench", suite=unproved)


def test_statistics_count_the_change() -> None:
    spec = generate(1, "held-out")
    one = measure(spec)
    assert one.files == 1
    assert one.lines >= 1
    assert one.prompt_characters == len(spec.instruction)
    (path,) = spec.gold
    longer = spec.model_copy(update={"gold": {path: spec.gold[path] + "# one\n# two\n"}})
    assert measure(longer).lines == one.lines + 2


def test_scores_and_flags_of_a_release(first: Release) -> None:
    low = measured(first, passed=[16, 0, 4], effort="low", price=1.0)
    high = measured(first, passed=[16, 0, 12], effort="high", price=2.0)
    board = leaderboard.leaderboard(first)
    assert [row.evaluation.pk for row in board] == [high.pk, low.pk]
    assert board[0].name == "base@0 (high)"
    assert board[0].score == pytest.approx((1 + 0 + 0.75) / 3)
    assert board[0].low is not None and board[0].low <= board[0].score
    # Each rollout of `making` has 2 policy tokens of 3 in all.
    assert [row.tokens for row in board] == [2, 2]
    assert board[1].cost == pytest.approx((2 * 10 + 1 * 1) / 1e6)
    assert [row.pareto_tokens for row in board] == [True, False]
    assert [row.pareto_cost for row in board] == [True, True]
    flags = {standing.member.position: standing.flag for standing in leaderboard.tasks(first)}
    assert flags == {0: "saturated", 1: "unsolved", 2: ""}


def test_a_leaderboard_leaves_as_a_file(first: Release, people: dict[str, User]) -> None:
    """From its own page; the newest of a policy and effort alone, as there."""
    measured(first, passed=[16, 16, 16], effort="low")
    low = measured(first, passed=[16, 0, 4], effort="low")
    high = measured(first, passed=[16, 0, 12], effort="high", price=2.0)
    other = releases.publish(benchmark="other", suite=proved("two", range(10, 12)), unreviewed=True)
    measured(other, passed=[1, 2])
    browser = Client()
    browser.force_login(people["viewer"])
    page = browser.get("/evaluations/releases/bench/1/").content.decode()
    query = html.unescape(re.search(r'name="query" value="([^"]*)"', page)[1])  # type: ignore[index]
    browser.post("/rollouts/exports/new/", {"what": "leaderboard", "format": "jsonl", "query": query})
    asked = Export.objects.get()
    exports.write(asked.pk)
    for form in ("csv", "parquet"):
        every = exports.ask(owner=people["viewer"], what="leaderboard", format=form, query="")
        exports.write(every.pk)
        every.refresh_from_db()
        assert (every.state, every.rows) == ("done", 3), every.cause
    rows = [json.loads(line) for line in exports.file_of(asked).read_text().splitlines()]
    assert [(row["rank"], row["evaluation"], row["effort"]) for row in rows] == [
        (1, high.pk, "high"),
        (2, low.pk, "low"),
    ]
    assert rows[0]["score"] == pytest.approx(1.75 / 3) and rows[0]["front_cost"] and rows[0]["release"] == 1


def test_a_refresh_keeps_scores_apart(first: Release) -> None:
    measured(first, passed=[16, 0, 4])
    second = releases.publish(benchmark="bench", suite=proved("two", range(10, 12)), keep=True, unreviewed=True)
    assert (second.number, second.parent_id) == (2, first.pk)
    assert list(second.members.values_list("position", "carried")) == [(0, True), (1, False), (2, False)]
    assert leaderboard.leaderboard(second) == []
    (row,) = leaderboard.carried(second)
    assert (row.name, row.tasks) == ("base@0", 1)
    assert row.score == pytest.approx(0.25)
    assert [r.score for r in leaderboard.leaderboard(first)] == [pytest.approx(1.25 / 3)]


def test_two_reviewers_admit_what_a_release_holds(first: Release, people: dict[str, User]) -> None:
    """Without them it is refused by name; releases that asked nobody say so for good."""
    assert first.unreviewed == 3
    with pytest.raises(DatabaseError), transaction.atomic():
        Release.objects.filter(pk=first.pk).update(unreviewed=0)
    suite = proved("two", range(10, 12))
    early, late = suite.versions.order_by("task__slug")
    for name in ("operator", "reviewer"):
        reviewing.review(version=late, actor=people[name], decision="accept")
    with pytest.raises(UserError, match="1 of 2 tasks") as refused:
        releases.publish(benchmark="bench", suite=suite)
    assert early.task.slug in refused.value.message and late.task.slug not in refused.value.message
    for name in ("operator", "reviewer"):
        reviewing.review(version=early, actor=people[name], decision="accept")
    assert releases.publish(benchmark="bench", suite=suite).unreviewed == 0


def test_three_releases_of_a_benchmark(first: Release) -> None:
    """Each takes over what the one before has unflagged; scores stay with the release that they were measured on."""
    measured(first, passed=[16, 0, 4])  # saturated, unsolved, in between
    second = releases.publish(benchmark="bench", suite=proved("two", range(10, 12)), keep=True, unreviewed=True)
    measured(second, passed=[8, 16, 2])
    third = releases.publish(benchmark="bench", suite=proved("three", range(20, 21)), keep=True, unreviewed=True)
    assert (third.number, third.parent_id) == (3, second.pk)
    ids = [list(r.members.values_list("task_version_id", flat=True)) for r in (first, second, third)]
    assert ids[1][0] == ids[0][2]  # neither saturated nor unsolved
    assert ids[2][:2] == [ids[1][0], ids[1][2]] and ids[2][2] not in ids[0] + ids[1]
    assert list(third.members.values_list("carried", flat=True)) == [True, True, False]
    assert [len(leaderboard.leaderboard(r)) for r in (first, second, third)] == [1, 1, 0]
    (row,) = leaderboard.carried(third)
    assert (row.tasks, row.score) == (2, pytest.approx((8 + 2) / 32))
    assert [r.score for r in leaderboard.leaderboard(second)] == [pytest.approx(26 / 48)]
    newest = [(second, second.evaluations.get()), (first, first.evaluations.get())]
    assert leaderboard.scored(4) == newest and leaderboard.scored(1) == newest[:1]
    first.evaluations.update(release=None)  # as one of the suite, which covers the same tasks
    assert leaderboard.scored(4) == newest and [len(leaderboard.leaderboard(r)) for r in (first, second)] == [1, 1]


def test_a_broken_task_is_flagged(first: Release) -> None:
    member = first.members.get(position=2)
    record_controls(version=member.task_version, controls={"bundle_hash": member.task_version.bundle_hash}, ok=False)
    assert [(s.flag, s.why) for s in leaderboard.tasks(first)][2] == ("broken", "its validation fails now")


def test_contamination_is_by_content(first: Release) -> None:
    assert contamination.check(first).hits == ()
    renamed = generate(1, "held-out").model_copy(update={"id": "another-name"})
    build_suite(name="train", purpose="train", specs=[renamed, generate(77, "train")])
    tasks.check_contamination(release_id=first.pk)
    first.refresh_from_db()
    found = contamination.Contamination.model_validate(first.contamination)
    assert (found.suites, found.training_tasks) == (("train",), 2)
    assert [(hit.task, hit.training) for hit in found.hits] == [(generate(1, "held-out").id, "another-name")]


def test_frontier() -> None:
    points = {"cheap": (1.0, 0.2), "good": (3.0, 0.6), "beaten": (4.0, 0.5), "unpriced": (None, 0.9)}
    assert leaderboard.frontier(points) == {"cheap", "good"}
    assert resources([], price={})["cost"] is None
    assert resources([Spent(2, 1, 0, 1.0)], price={})["cost_p50"] is None


def test_pages_of_releases(first: Release, people: dict[str, User]) -> None:
    operator, viewer = Client(), Client()
    operator.force_login(people["operator"])
    viewer.force_login(people["viewer"])
    path = f"/evaluations/releases/{first.benchmark}/{first.number}/"
    form = {"policy": "base", "samples": "2", "temperature": "0.8", "effort": "low"}
    assert viewer.post(f"{path}run/", form).status_code == 403
    assert viewer.post("/evaluations/releases/publish/", {"benchmark": "b", "suite": "one"}).status_code == 403
    assert "is on its way" in operator.post(f"{path}run/", form, follow=True).content.decode()
    made = Evaluation.objects.get(release=first)
    assert (made.tasks, made.samples, made.effort) == (3, 2, "low")
    for odd in ("x", "inf", "nan"):
        assert "is a number" in operator.post(f"{path}run/", {**form, "samples": odd}, follow=True).content.decode()
    html = viewer.get(path).content.decode()
    assert "bench-1" in html
    assert "Under way" in html
    assert "Run a policy" not in html
    assert "181" in html
    assert viewer.get("/evaluations/releases/bench/9/").status_code == 404
    proved("two", range(10, 12))
    page = operator.post(
        "/evaluations/releases/publish/",
        {"benchmark": "bench", "suite": "two", "keep": "on", "unreviewed": "on"},
        follow=True,
    ).content.decode()
    assert "bench-2 is published" in page
    assert "carried over" in page


def test_query_counts_of_releases(first: Release, people: dict[str, User]) -> None:
    viewer = Client()
    viewer.force_login(people["viewer"])

    def queries(path: str) -> int:
        viewer.get(path)
        with CaptureQueriesContext(connection) as seen:
            assert viewer.get(path).status_code == 200
        return len(seen)

    path = "/evaluations/releases/bench/2/"
    measured(first, passed=[16, 0, 4])
    releases.publish(benchmark="bench", suite=proved("two", range(10, 12)), keep=True, unreviewed=True)
    before = queries("/evaluations/releases/"), queries(path)
    measured(first, passed=[16, 0, 4], effort="more")
    measured(leaderboard.find("bench-2"), passed=[1, 2, 3])
    releases.publish(benchmark="other", suite=first.suite, unreviewed=True)
    assert (queries("/evaluations/releases/"), queries(path)) == before
    assert max(before) <= 18, "five for the way of the suite"


def test_releases_over_api_and_command(first: Release, bearer: Callable[..., dict[str, str]]) -> None:
    headers = bearer("operator", "read", "operate")
    proved("two", range(10, 12))
    visitor = Client(headers=headers)
    refused = visitor.post("/api/v1/releases", {"benchmark": "bench", "suite": "one"}, content_type="application/json")
    assert refused.status_code == 422
    wanted = {"benchmark": "bench", "suite": "two", "unreviewed": True}
    made = visitor.post("/api/v1/releases", wanted, content_type="application/json")
    assert made.status_code == 201
    assert (made.json()["number"], made.json()["parent"]) == (2, "bench-1")
    measured(first, passed=[16, 0, 4])
    board = visitor.get("/api/v1/releases/bench/1/standings").json()
    assert [row["name"] for row in board["standings"]] == ["base@0"]
    assert [flag["flag"] for flag in board["flags"]] == ["saturated", "unsolved"]
    asked = visitor.post(
        "/api/v1/releases/bench/2/evaluations", {"policy": "base", "samples": 2}, content_type="application/json"
    )
    assert (asked.status_code, asked.json()["tasks"]) == (201, 2)


def test_from_tasks_to_a_release_by_command(cli: Cli, reviewer: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    """Two people accept tasks into a reviewed suite, whose release needs no exception; the suite as it came is refused."""
    made = proved("made", range(2))
    assert cli("releases", "create", "ours", "made")[0] == 1
    assert "two reviewers have not admitted 2 of 2 tasks" in capsys.readouterr().err
    data(reviewer("suites", "create", "picked", "--reviewed", "--json"))
    slugs = list(made.versions.values_list("task__slug", flat=True))
    for person in (reviewer, cli):
        said = [data(person("task-reviews", "create", slug, "accept", "--into", "picked", "--json")) for slug in slugs]
    assert [one["state"] for (one,) in said] == ["admitted"] * 2
    (release,) = data(cli("releases", "create", "ours", "picked", "--json"))
    assert (release["number"], release["statistics"]["tasks"], release["unreviewed"]) == (1, 2, 0)
    assert Release.objects.get(benchmark="ours").unreviewed == 0
