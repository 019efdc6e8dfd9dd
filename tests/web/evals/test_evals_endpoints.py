"""Policies behind endpoints: kept safely, evaluated in the real sandboxes, graded beside their tests, compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.utils import DatabaseError
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.errors import UserError
from composer_web.env import env
from composer_web.evals import services
from composer_web.evals.models import Evaluation, Release, SideScore
from composer_web.evals.results import behaviour_scores, comparing, leaderboard, releases, tasks
from composer_web.evals.results.grading import side_rubric
from composer_web.policies import endpoints
from composer_web.policies.models import Endpoint, Policy
from composer_web.policies.selectors import references, resolve
from composer_web.rollouts.worker.execution import execute
from composer_web.tasks.services import build_suite, record_controls
from sandbox.grading.version import GRADER
from sandbox.tasks.procedural import generate
from sandbox.tasks.spec import InlineEnvironment
from tests.chat_server import ChatServer, Reply, completion, solver
from tests.sandbox.grading.audit.model_server import boundary_of

SPECS = [generate(seed, "held-out") for seed in range(2)]
KEY = "sk-very-secret"


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """This installation has endpoints on its own machine."""
    monkeypatch.setattr(env(), "endpoint_hosts", "127.0.0.1")


@pytest.fixture
def server(allowed: None) -> Iterator[ChatServer]:
    with ChatServer(solver(SPECS), key=KEY) as one:
        yield one


@pytest.fixture
def release(db: None) -> Release:
    suite = build_suite(name="held-out", purpose="held-out", specs=SPECS)
    for version in suite.versions.all():
        record_controls(version=version, controls={"bundle_hash": version.bundle_hash}, ok=True)
    return releases.publish(benchmark="bench", suite=suite, unreviewed=True)


def add(server: ChatServer, name: str = "remote", **more: Any) -> Policy:
    return endpoints.add(
        name=name, url=server.url, model="m-1", **{"key": KEY, "price_input": 2.0, "price_output": 10.0, **more}
    )


def carried_out(release: Release, reference: str, **how: Any) -> Evaluation:
    """An evaluation of a release, run to its end in this process."""
    made = releases.run(release=release, reference=reference, **{"samples": 2, **how})
    tasks.start(evaluation_id=made.pk)
    for pk in made.groups.values_list("pk", flat=True):
        assert execute(pk) == "accepted"
    tasks.advance(evaluation_id=made.pk)
    for group in made.groups.all():
        tasks.grade_group(group_id=group.pk)
    made.refresh_from_db()
    return made


@pytest.mark.django_db(transaction=True)
def test_an_endpoint_over_a_release(server: ChatServer, release: Release) -> None:
    add(server, effort="low", price_cached=0.5)
    made = carried_out(release, "remote", effort="high")
    assert (made.state, made.results["pass1"], made.title) == ("finished", 1.0, "remote (high)")
    assert server.requests[0]["reasoning_effort"] == "high"
    # Three turns of seven tokens each; everything read is paid in full, for nothing came from a cache.
    assert made.results["tokens_p50"] == 21
    rollouts = [r for group in made.groups.all() for r in group.rollouts.all()]
    assert all(r.input_tokens and r.input_tokens > r.total_tokens and r.cached_tokens == 0 for r in rollouts)
    assert made.results["cost"] == pytest.approx(sum(r.input_tokens * 2 + 21 * 10 for r in rollouts) / 1e6)
    assert made.sides[behaviour_scores.EAGER]["mean"] == 1.0
    server.model = solver(SPECS, more={"notes.md": "I was here\n"})
    eager = carried_out(release, "remote")
    assert (eager.results["pass1"], eager.sides[behaviour_scores.EAGER]["mean"]) == (1.0, 0.0)
    assert SideScore.objects.filter(evaluation=eager).first().detail == {"files": ["notes.md"]}  # type: ignore[union-attr]
    heeded = carried_out(release, "remote", interrupt=True, samples=1)
    assert (heeded.results["pass1"], heeded.sides[behaviour_scores.INTERRUPTED]["mean"]) == (1.0, 1.0)
    first, second = leaderboard.leaderboard(release)
    assert {first.name, second.name} == {"remote (high)", "remote (low)"}
    by_name = {row.name: row for row in (first, second)}
    assert by_name["remote (low)"].sides[behaviour_scores.INTERRUPTED]["mean"] == 1.0
    assert all(not standing.lost and standing.verdicts == 4 for standing in leaderboard.tasks(release))


@pytest.mark.django_db(transaction=True)
def test_what_an_older_grading_accepted_is_proved_before_it_is_used(server: ChatServer) -> None:
    """Its oracle mends nothing, which the present controls see. Nothing is asked of the policy."""
    (spec, _) = SPECS
    assert isinstance(spec.environment, InlineEnvironment)
    broken = spec.model_copy(update={"gold": {path: spec.environment.files[path] for path in spec.gold}})
    suite = build_suite(name="older", purpose="held-out", specs=[broken])
    version = suite.versions.get()
    controls = {"bundle_hash": version.bundle_hash, "grader": GRADER - 1}
    record_controls(version=version, controls=controls, ok=True)
    add(server)
    made = releases.run(
        release=releases.publish(benchmark="older", suite=suite, unreviewed=True), reference="remote", samples=1
    )
    tasks.start(evaluation_id=made.pk)
    for group in made.groups.all():
        assert execute(group.pk).startswith("dropped: the task fails validation and was rejected: the oracle is failed")
    version.refresh_from_db()
    assert version.proof is False and version.controls["grader"] == GRADER and not server.requests


@pytest.mark.django_db(transaction=True)
def test_an_endpoint_that_fails_scores_nothing(server: ChatServer, release: Release) -> None:
    add(server, key="wrong")
    made = releases.run(release=release, reference="remote", samples=1)
    tasks.start(evaluation_id=made.pk)
    for pk in made.groups.values_list("pk", flat=True):
        for _ in range(3):
            said = execute(pk)
        assert "dropped" in said
    tasks.advance(evaluation_id=made.pk)
    made.refresh_from_db()
    assert made.state == "failed"
    assert "wrong key" in made.failure
    assert KEY not in made.failure
    verdicts = {rollout.verdict for group in made.groups.all() for rollout in group.rollouts.all()}
    assert verdicts == {"infra_error"}


def grades(request: dict[str, Any]) -> Reply:
    """What a grader says of everything."""
    rows = [
        {"aspect": aspect.id, "grade": 1 if aspect.id == "judge-quality" else 4, "reason": "so it is"}
        for aspect in side_rubric().aspects
    ]
    return completion(request, json.dumps({"record": boundary_of(request), "grades": rows}))


@pytest.mark.django_db(transaction=True)
def test_a_rubric_grades_through_any_endpoint(server: ChatServer, release: Release) -> None:
    add(server)
    with ChatServer(grades) as grader:
        endpoints.add(name="grader", url=grader.url, model="judge-1")
        made = carried_out(release, "remote", samples=1, grader="grader")
        assert (made.sides["judge-quality"]["mean"], made.sides["judge-intent"]["mean"]) == (0.25, 1.0)
        assert made.sides["judge-intent"]["rubric"] == side_rubric().name
        assert made.sides["judge-intent"]["grader"] == "judge-1"
        asked = len(grader.requests)
        assert asked == 2
        assert "passed" not in grader.requests[0]["messages"][0]["content"]
        services.set_grader(evaluation=made, grader="grader")
        for group in made.groups.all():
            tasks.grade_group(group_id=group.pk)
        assert len(grader.requests) == asked, "what was graded once comes from the cache"
        grader.model = lambda request: completion(request, "no JSON at all")
        SideScore.objects.filter(evaluation=made).delete()
        again = carried_out(release, "remote", samples=1, grader="grader", effort="x")
        assert set(again.sides) <= {behaviour_scores.EAGER, *made.sides}
    with pytest.raises(UserError, match="no endpoint 'nobody'"):
        services.set_grader(evaluation=made, grader="nobody")


@pytest.mark.django_db
class TestKeeping:
    def test_a_key_is_never_shown(self, server: ChatServer, people: dict[str, User]) -> None:
        policy = add(server)
        stored = Endpoint.objects.get(policy=policy)
        assert KEY not in stored.key
        assert endpoints.asked(stored).key.get_secret_value() == KEY
        assert KEY not in repr(endpoints.asked(stored))
        viewer = Client()
        viewer.force_login(people["operator"])
        assert KEY not in viewer.get("/policies/remote/").content.decode()
        assert KEY not in json.dumps(list(AuditEntry.objects.values_list("detail", flat=True)))

    def test_only_the_model_stays(self, server: ChatServer, people: dict[str, User]) -> None:
        policy = add(server)
        endpoints.change(policy=policy, url=server.url, price_output=20.0, actor=people["operator"])
        found = endpoints.get("remote")
        assert (endpoints.prices(found), endpoints.asked(found).key.get_secret_value()) == (
            {"input": 2.0, "output": 20.0},
            KEY,
        )
        with pytest.raises(UserError, match="another endpoint for another model"):
            endpoints.change(policy=policy, model="m-2")
        with pytest.raises(DatabaseError, match="may not change"), transaction.atomic():
            Endpoint.objects.filter(policy=policy).update(model="m-2")
        entry = AuditEntry.objects.filter(action="endpoint.change").get()
        assert (entry.detail["before"]["prices"]["output"], entry.detail["after"]["prices"]["output"]) == (10.0, 20.0)

    def test_it_has_no_weights(self, server: ChatServer) -> None:
        add(server)
        assert references() == []
        with pytest.raises(UserError, match="weights are needed"):
            resolve("remote")

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"url": "http://169.254.169.254/v1"}, "nothing of ours may go"),
            ({"url": "http://10.0.0.7/v1"}, "OPENCOMPOSER_ENDPOINT_HOSTS"),
            ({"url": "http://[::ffff:10.0.0.7]/v1"}, "private address"),
            ({"url": "ftp://127.0.0.1/v1"}, "looks like"),
            ({"url": "http://me:secret@127.0.0.1/v1"}, "its own field"),
            ({"url": "http://127.0.0.1/v1?x=1"}, "no query"),
            ({"url": "http://127.0.0.1:99999/v1"}, "cannot be read"),
            ({"price_input": -1.0}, "a price is 0"),
            ({"price_output": float("nan")}, "a price is 0"),
            ({"parameters": {"messages": []}}, "set by the harness"),
            ({"parameters": {"x": "y" * 5000}}, "at most 4000"),
            ({"model": ""}, "model"),
            ({"name": "a@b"}, "no @"),
            ({"limit_field": "n"}, "limit_field"),
        ],
    )
    def test_what_is_refused(self, server: ChatServer, fields: dict[str, Any], why: str) -> None:
        with pytest.raises(UserError, match=why):
            endpoints.add(**{"name": "remote", "url": server.url, "model": "m", **fields})
        assert not Policy.objects.filter(kind="endpoint").exists()

    def test_a_host_that_is_named_no_more(self, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
        policy = add(server)
        monkeypatch.setattr(env(), "endpoint_hosts", "")
        with pytest.raises(UserError, match="private address"):
            endpoints.asked(policy.endpoint)


@pytest.mark.django_db
def test_endpoints_over_page_api_and_command(
    server: ChatServer,
    release: Release,
    people: dict[str, User],
    bearer: Callable[..., dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator, viewer = Client(), Client()
    operator.force_login(people["operator"])
    viewer.force_login(people["viewer"])
    form = {"name": "paged", "model": "m", "url": server.url, "price_output": "3", "takes_temperature": "on"}
    assert viewer.post("/policies/endpoints/add/", form).status_code == 403
    html = operator.post("/policies/endpoints/add/", form, follow=True).content.decode()
    assert "stored encrypted" in html
    assert "is one JSON object" not in html
    assert (
        "JSON object"
        in operator.post(
            "/policies/endpoints/add/", {**form, "name": "x", "parameters": "{"}, follow=True
        ).content.decode()
    )
    assert (
        "Changed;"
        in operator.post("/policies/paged/endpoint/", {**form, "price_output": "4"}, follow=True).content.decode()
    )
    assert endpoints.get("paged").price_output == 4.0
    assert "paged" in viewer.get("/policies/").content.decode()
    assert ">paged</option>" in operator.get("/evaluations/releases/bench/1/").content.decode()
    visitor = Client(headers=bearer("operator", "read", "operate"))
    sent = {"name": "called", "model": "m", "url": server.url, "key": KEY}
    made = visitor.post("/api/v1/endpoints", sent, content_type="application/json")
    assert (made.status_code, made.json()["has_key"]) == (201, True)
    assert KEY not in made.content.decode()
    changed = visitor.put(
        "/api/v1/endpoints/called", {"url": server.url, "effort": "high"}, content_type="application/json"
    )
    assert (changed.status_code, changed.json()["effort"]) == (200, "high")
    asked = visitor.post(
        "/api/v1/releases/bench/1/evaluations", {"policy": "called", "samples": 1}, content_type="application/json"
    )
    assert (asked.status_code, asked.json()["policy"], asked.json()["effort"]) == (201, "called", "high")


def test_chance_of_a_change_is_exact() -> None:
    def side(passed: int, failed: int) -> comparing.Side:
        return comparing.Side(1, list(range(passed)), list(range(failed)))

    assert comparing.p_value(side(8, 0), side(0, 8)) == pytest.approx(2 / 12870)
    assert comparing.p_value(side(3, 1), side(3, 1)) == pytest.approx(1.0)
    assert comparing.p_value(side(4, 0), side(3, 1)) == pytest.approx(1.0)


@pytest.mark.django_db(transaction=True)
def test_regressions_task_by_task(
    server: ChatServer, release: Release, people: dict[str, User], bearer: Callable[..., dict[str, str]]
) -> None:
    add(server)
    good = carried_out(release, "remote", effort="good")
    server.model = solver([*SPECS[:1], SPECS[1].model_copy(update={"gold": {"other.txt": "nothing\n"}})])
    bad = carried_out(release, "remote", effort="bad")
    found = comparing.compare(good, bad)
    assert [(c.version.task.slug, c.verdict) for c in found.changes] == [(SPECS[1].id, "worse"), (SPECS[0].id, "same")]
    assert found.difference == pytest.approx(-0.5)
    assert found.low <= found.difference <= found.high
    assert found.low < 0 and not found.significant
    worse = found.changes[0]
    assert worse.shows_before in worse.before.passed
    assert worse.shows_after in worse.after.failed
    viewer = Client()
    viewer.force_login(people["viewer"])
    html = viewer.get(f"/evaluations/compare/?before={good.pk}&after={bad.pk}").content.decode()
    assert f"/rollouts/{worse.shows_after}/" in html
    assert ">not significant<" in html and not worse.significant and "clear" not in html.partition("<main")[2]
    assert viewer.get("/evaluations/compare/?before=x&after=1").status_code == 404
    assert viewer.get(f"/evaluations/compare/?before={good.pk}&after=999999").status_code == 404
    assert viewer.get(f"/rollouts/{worse.shows_after}/").status_code == 200
    assert viewer.get(f"/groups/{worse.after.group}/").status_code == 200
    assert viewer.get(f"/evaluations/{bad.pk}/").status_code == 200
    path = f"/evaluations/tasks/{SPECS[1].id}/"
    with CaptureQueriesContext(connection) as few:
        page = viewer.get(path).content.decode()
    assert "remote (good)" in page
    assert "remote (bad)" in page
    carried_out(release, "remote", effort="more", samples=1)
    with CaptureQueriesContext(connection) as many:
        viewer.get(path)
    assert len(many) == len(few)
    visitor = Client(headers=bearer("operator", "read", "operate"))
    over = visitor.get(f"/api/v1/evaluations/compare?before={good.pk}&after={bad.pk}").json()
    assert (over["changes"][0]["task"], over["changes"][0]["verdict"]) == (SPECS[1].id, "worse")
    entries = visitor.get(f"/api/v1/evaluations/tasks/{SPECS[1].id}").json()
    assert [entry["name"] for entry in entries] == ["remote (more)", "remote (bad)", "remote (good)"]
    graded = visitor.post(f"/api/v1/evaluations/{bad.pk}/grade", {}, content_type="application/json")
    assert graded.status_code == 202
