"""Review queues of trajectories: independent reviewers, what labels do; pages, API and CLI."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import User
from composer_web.accounts.services import create_user
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import Conflict, UserError
from composer_web.review import detectors, excluding, selectors, services
from composer_web.review.models import Label, Queue
from composer_web.review.questions import EXAMPLE
from composer_web.rollouts import selectors as selectors_of_rollouts
from composer_web.rollouts.dispatch import findings
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Finding, Group, Quarantine, Rollout
from composer_web.rollouts.selectors import in_quarantine
from composer_web.rollouts.trajectory import trajectory_store
from composer_web.runs.models import Run
from composer_web.tasks.selectors import prompt_order
from sandbox.grading.verdict.report import CaseResult
from sandbox.harness.types import ToolCall, ToolResult
from tests.web.conftest import PASSWORD
from tests.web.helpers import as_read
from tests.web.making import claim, finish
from trainer.types import Turn

Bearer = Callable[..., dict[str, str]]
RIGHT = {"verdict": "right", "quality": "4"}
WRONG = {"verdict": "wrong", "quality": "2", "flags": ["reward_hack"]}


@pytest.fixture
def recorded(running: Run) -> list[Rollout]:
    """Eight recorded rollouts of a running run, two of each prompt, the first of each passed."""
    rollouts.pump(run_id=running.pk)
    for group in Group.objects.filter(run=running).order_by("prompt_index"):
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])
    return list(Rollout.objects.filter(group__run=running).exclude(artifact_key="").order_by("pk"))


@pytest.fixture
def second(people: dict[str, User]) -> User:
    return create_user(username="second", password=PASSWORD, role="reviewer")


@pytest.fixture
def queue(recorded: list[Rollout], people: dict[str, User]) -> Queue:
    made = services.create_queue(name="quality", questionnaire=EXAMPLE, reviewers=2, actor=people["operator"])
    services.fill(queue=made, rollouts=Rollout.objects.all(), actor=people["operator"])
    return made


def browser(user: User, headers: dict[str, str] | None = None) -> Client:
    made = Client(headers=headers)
    made.force_login(user)
    return made


@pytest.mark.django_db
class TestLabels:
    def test_n_people_label_each(self, queue: Queue, people: dict[str, User], second: User) -> None:
        item = selectors.following(queue, second, None)
        assert item is not None
        for person in (people["reviewer"], second):
            services.label(item=item, answers=RIGHT, actor=person)
        services.label(item=item, answers=WRONG, actor=second)  # a changed mind
        item.refresh_from_db()
        assert (item.labelled_by, item.labels.count()) == (2, 3)
        assert [one.answers["verdict"] for one in selectors.labels_of(item)] == ["right", "wrong"]
        assert sorted(item.answers.filter(reviewer=second).values_list("value", flat=True)) == [
            "2",
            "reward_hack",
            "wrong",
        ]
        with pytest.raises(Conflict, match="has its 2 reviews already"):
            services.label(item=item, answers=RIGHT, actor=people["operator"])
        assert selectors.following(queue, people["operator"], None) != item

    def test_the_queue_comes_round_to_what_was_skipped(self, queue: Queue, people: dict[str, User]) -> None:
        user, items = people["reviewer"], list(queue.items.order_by("pk"))
        assert selectors.following(queue, user, items[0]) == items[1]
        for item in items[1:]:
            services.label(item=item, answers=RIGHT, actor=user)
        assert selectors.following(queue, user, items[-1]) == items[0]
        services.label(item=items[0], answers=RIGHT, actor=user)
        assert selectors.following(queue, user, items[0]) is None

    def test_labels_stay(self, queue: Queue, people: dict[str, User]) -> None:
        services.label(item=queue.items.earliest("pk"), answers=RIGHT, actor=people["reviewer"])
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            Label.objects.update(answers={})
        with pytest.raises(IntegrityError, match="may not change"), transaction.atomic():
            Queue.objects.update(questions={})
        services.set_closed(queue=queue, closed=True, actor=people["operator"])
        with pytest.raises(Conflict, match="is closed"):
            services.label(item=queue.items.earliest("pk"), answers=RIGHT, actor=people["reviewer"])

    def test_agreement_disagreement_and_rewards(self, queue: Queue, people: dict[str, User], second: User) -> None:
        first, other = queue.items.order_by("pk")[:2]
        for item, answers in ((first, (RIGHT, RIGHT)), (other, (RIGHT, WRONG))):
            for person, given in zip((people["reviewer"], second), answers, strict=True):
                services.label(item=item, answers=given, actor=person)
        found = {one.question: one for one in selectors.agreements(queue)}
        assert (found["verdict"].items, found["verdict"].share) == (2, 0.5)
        assert found["verdict"].alpha == pytest.approx(0.0)
        assert found["flags=reward_hack"].counts == {"no": 3, "yes": 1}
        (row,) = selectors.disagreements(queue, people["viewer"])
        assert (row.item.pk, row.questions) == (other.pk, ("flags", "quality", "verdict"))
        (told,) = detectors.disputed_rollouts()
        assert "about 1 rollout of" in told.message and told.url == f"/review/{queue.name}/#disagreements"
        assert selectors.rewards(queue, "quality") == {first.rollout_id: 0.75, other.rollout_id: 0.5}
        assert selectors.rewards(queue, "verdict") == {first.rollout_id: 1.0, other.rollout_id: 0.5}
        with pytest.raises(UserError, match="gives no reward"):
            selectors.rewards(queue, "flags")
        services.set_closed(queue=queue, closed=True, actor=people["operator"])
        assert list(detectors.disputed_rollouts()) == [], "it is settled"

    def test_labels_narrow_the_list_of_rollouts(self, queue: Queue, people: dict[str, User]) -> None:
        item = queue.items.earliest("pk")
        services.label(item=item, answers=WRONG, actor=people["reviewer"])
        page = browser(people["viewer"])

        def found(label: str) -> list[int]:
            return [row.pk for row in page.get("/rollouts/", {"label": label}).context["table"].page.object_list.data]

        assert found("quality") == found("quality:flags=reward_hack") == [item.rollout_id]
        assert found("quality:verdict=right") == found("other") == found("quality:verdict") == []


@pytest.mark.django_db
class TestWhatLabelsDo:
    def test_rollouts_are_kept_out_of_training(self, queue: Queue, people: dict[str, User], second: User) -> None:
        item = queue.items.earliest("pk")
        services.label(item=item, answers=WRONG, actor=people["reviewer"])
        services.label(item=item, answers=RIGHT, actor=second)
        hack = {"queue": queue, "question": "flags", "value": "reward_hack", "actor": people["operator"]}
        assert excluding.exclude(**hack) == 0  # one of two is no majority
        services.label(item=item, answers=WRONG, actor=second)
        assert excluding.exclude(**hack) == 1
        assert excluding.exclude(**hack) == 0
        assert in_quarantine(item.rollout)
        finding = Finding.objects.get(rollout=item.rollout)
        assert (finding.rule, finding.state) == ("review-label", "confirmed")
        assert [t.to_state for t in finding.transitions.all()] == ["open", "confirmed"]
        assert browser(people["viewer"]).get(f"/findings/{finding.pk}/").status_code == 200
        findings.decide(finding=finding, to="dismissed", actor=people["reviewer"])
        assert not in_quarantine(item.rollout)

    def test_their_tasks_are_dispatched_no_more(self, running: Run, queue: Queue, people: dict[str, User]) -> None:
        item = queue.items.earliest("pk")
        services.label(item=item, answers={**WRONG, "flags": ["bad_task"]}, actor=people["reviewer"])
        unfair = {"queue": queue, "question": "flags", "value": "bad_task", "actor": people["operator"]}
        assert excluding.exclude(**unfair, tasks=True) == 1
        assert Quarantine.objects.get().task_version == item.rollout.group.task_version
        order = prompt_order("train", seed=running.seed)
        assert item.rollout.group.task_version_id in order
        left = set(order) - set(Quarantine.objects.filter(state="active").values_list("task_version_id", flat=True))
        assert len(left) == len(order) - 1

    @pytest.mark.parametrize(("question", "value"), [("note", "x"), ("flags", "x"), ("none", "x"), ("quality", "9")])
    def test_what_no_label_says_is_refused(
        self, queue: Queue, people: dict[str, User], question: str, value: str
    ) -> None:
        with pytest.raises(UserError):
            excluding.exclude(queue=queue, question=question, value=value, actor=people["operator"])


@pytest.mark.django_db
class TestPages:
    def test_who_may_what(self, queue: Queue, people: dict[str, User]) -> None:
        item = queue.items.earliest("pk")
        reads = ["/review/", "/review/quality/", "/drafts/"]
        reviews = ["/review/quality/next/", f"/review/quality/{item.pk}/"]
        for path in reads + reviews:
            assert Client().get(path).status_code == 302, path
            assert browser(people["viewer"]).get(path).status_code == (200 if path in reads else 403), path
            assert browser(people["reviewer"]).get(path, follow=True).status_code == 200, path
        posts = {f"/review/quality/{item.pk}/label/": "reviewer", "/review/new/": "operator"}
        posts |= {f"/review/quality/do/{name}/": "operator" for name in ("fill", "close", "open", "exclude")}
        below = {"reviewer": "viewer", "operator": "reviewer"}
        for path, role in posts.items():
            assert Client().post(path).status_code == 302, path
            assert browser(people[below[role]]).post(path).status_code == 403, path
            assert browser(people[role]).get(path).status_code == (302 if "/new/" in path else 405), path
            assert browser(people[role]).post(path).status_code == (422 if "/new/" in path else 302), path
            strict = Client(enforce_csrf_checks=True)
            strict.force_login(people[role])
            assert strict.post(path).status_code == 403, path
        assert browser(people["operator"]).post("/review/quality/do/erase/").status_code == 404
        assert browser(people["operator"]).get("/review/none/").status_code == 404
        assert not Label.objects.exists()

    def test_a_reviewer_answers_and_then_sees_others(self, queue: Queue, people: dict[str, User], second: User) -> None:
        item, page = queue.items.earliest("pk"), browser(people["reviewer"])
        services.label(item=item, answers={**WRONG, "note": "<b>zebra</b>"}, actor=second)
        path = f"/review/quality/{item.pk}/"
        assert page.get("/review/quality/next/")["Location"] == path
        html = page.get(path).content.decode()
        assert "zebra" not in html
        assert "Hidden until you have answered" in html
        fetch = {"headers": {"X-Requested-With": "fetch"}}
        wrong = page.post(f"{path}label/", {"q-verdict": "right"}, **fetch)
        assert (wrong.status_code, wrong.json()["message"]) == (422, "quality: required; give an answer")
        told = page.post(
            f"{path}label/", {"q-verdict": "right", "q-quality": "3", "q-flags": ["eager"]}, **fetch
        ).json()
        after = queue.items.order_by("pk")[1]
        assert told["next"] == f"/review/quality/{after.pk}/"
        html = as_read(page.get(path).content)
        assert "&lt;b&gt;zebra" in html
        assert 'value="right" data-hotkey="1" checked' in html
        assert "flags reward_hack" in browser(people["viewer"]).get("/review/quality/").content.decode()

    def test_a_huge_trajectory_is_judged_by_its_copy(self, queue: Queue, people: dict[str, User]) -> None:
        item = queue.items.select_related("rollout").earliest("pk")
        turns = tuple(
            Turn(
                index=i,
                text=f"look at part {i}",
                token_start=0,
                token_end=0,
                calls=(ToolCall(id="c", name="terminal", arguments={"command": "cat log"}),),
                results=(ToolResult(call_id="c", output=f"part {i}\n" + "lorem ipsum " * 2100, seconds=0.1),),
            )
            for i in range(2000)
        )
        case = CaseResult(id="case-7", status="failed", message="got 3")
        small = selectors_of_rollouts.trajectory(item.rollout)
        report = small.report.model_copy(update={"cases": (case,)})
        patch = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n"
        large = small.model_copy(update={"turns": turns, "report": report, "patch": patch})
        assert len(large.model_dump_json()) > 50_000_000
        trajectory_store.record(item.rollout.artifact_key, large)
        artifacts().put(item.rollout.artifact_key, b"nobody can read this as a whole")
        page, path = browser(people["reviewer"]), f"/review/quality/{item.pk}/"
        html = page.get(path).content.decode()
        for words in ("look at part 19<", "Turns from 21 of 2000", "case-7", "got 3", "1 file, +1", "Part</th>"):
            assert words in html, words
        assert "look at part 20<" not in html
        piece = page.get(f"{path}?turn=1999", headers={"HX-Request": "true", "HX-Target": "item-turns"})
        html = piece.content.decode()
        assert "look at part 1999<" in html
        assert "case-7" not in html  # the rest of the page, answers in it, stays as it is
        assert 'name="q-verdict"' not in html

    def test_findings_are_shown_and_labels_in_them_are_not(
        self, queue: Queue, people: dict[str, User], second: User
    ) -> None:
        item, page = queue.items.select_related("rollout__group").earliest("pk"), browser(people["reviewer"])
        seen = {
            "subject": "rollout",
            "rule": "tampering",
            "rule_version": 1,
            "severity": "high",
            "summary": "touched it",
        }
        finding = Finding.objects.create(
            rollout=item.rollout,
            group=item.rollout.group,
            task_version=item.rollout.group.task_version,
            **seen,  # type: ignore[arg-type]
        )
        findings.decide(finding=finding, to="confirmed", note="surely a cheat", actor=second)
        services.label(item=item, answers=WRONG, actor=second)
        excluding.exclude(queue=queue, question="flags", value="reward_hack", actor=people["operator"])
        path = f"/review/quality/{item.pk}/"
        html = page.get(path).content.decode()
        assert "touched it" in html
        for words in ("reviewers of quality", "surely a cheat", "confirmed", "in quarantine"):
            assert words not in html, words
        services.label(item=item, answers=RIGHT, actor=people["reviewer"])
        html = page.get(path).content.decode()
        for words in ("reviewers of quality", "surely a cheat", "confirmed", "in quarantine"):
            assert words in html, words

    def test_an_operator_makes_a_queue_of_filters(self, recorded: list[Rollout], people: dict[str, User]) -> None:
        page = browser(people["operator"])
        values = {
            "name": "failed",
            "questions": EXAMPLE.model_dump_json(),
            "filters": "verdict=failed",
            "reviewers": "3",
        }
        html = page.post("/review/new/", values, follow=True).content.decode()
        assert "Queue failed has 4 rollouts." in html
        assert Queue.objects.get(name="failed").reviewers == 3
        for changes, words in (
            ({"name": "No"}, "lower-case letters"),
            ({"name": "failed"}, "there is a queue"),
            ({"questions": "{"}, "no JSON"),
            ({"filters": "colour=red"}, "there is no filter"),
            ({"filters": "verdict=good"}, "verdict: "),
            ({"reviewers": "many"}, "a whole number"),
        ):
            html = page.post("/review/new/", {**values, "name": "other", **changes}, follow=True).content.decode()
            assert words in html, changes
            assert 'name="f-verdict"' in html, "what was given stands in the form again"
        assert Queue.objects.count() == 1

    def test_filters_are_fields_and_counted(
        self, queue: Queue, recorded: list[Rollout], people: dict[str, User]
    ) -> None:
        page = browser(people["operator"])

        def count(**given: str) -> str:
            text = re.sub("<[^>]*>", "", page.get("/review/new/count/", given).content.decode())
            return " ".join(unescape(text).split())

        assert count(limit="200") == "8 recorded rollouts will be added."
        assert count(**{"f-verdict": "failed", "limit": "3"}) == "4 recorded rollouts: newest 3 will be added."
        assert count(**{"f-turns_min": "x"}).startswith("turns_min:")
        assert count(limit="many") == "limit is a whole number, not 'many'"
        assert count(queue="quality") == "No recorded rollout that is not in the queue yet."
        queue.items.order_by("pk").first().delete()  # type: ignore[union-attr]
        assert count(queue="quality") == "1 recorded rollout not in the queue yet will be added."
        assert page.get("/review/new/count/", {"queue": "none"}).status_code == 404
        assert browser(people["reviewer"]).get("/review/new/count/").status_code == 403
        given = {"name": "by-fields", "questions": EXAMPLE.model_dump_json(), "f-verdict": "failed", "limit": "3"}
        assert "Queue by-fields has 3 rollouts." in page.post("/review/new/", given, follow=True).content.decode()
        html = page.get("/review/?filters=verdict%3Dfailed%26turns_min%3D4").content.decode()
        assert '<option value="failed" selected>' in html
        assert 'name="f-turns_min" value="4"' in html
        page.post("/review/quality/do/fill/", {"f-verdict": "failed", "limit": "10"})
        assert queue.items.count() == 8

    def test_a_queue_that_cannot_be_filled_is_not_made(self, recorded: list[Rollout], people: dict[str, User]) -> None:
        page = browser(people["operator"])
        given = {"name": "none", "questions": EXAMPLE.model_dump_json(), "limit": "99999", "title": "Kept words"}
        answer = page.post("/review/new/", given)
        assert (answer.status_code, Queue.objects.count()) == (422, 0)
        assert "1 to 5000 rollouts, not 99999" in answer.content.decode()
        assert 'value="Kept words"' in answer.content.decode()

    def test_what_to_exclude_is_chosen_among_the_answers(self, queue: Queue, people: dict[str, User]) -> None:
        html = browser(people["operator"]).get("/review/quality/").content.decode()
        for value in ("flags=reward_hack", "verdict=wrong", "quality=5"):
            assert f'<option value="{value}">' in html, value
        assert "note=" not in html

    def test_queries_do_not_grow(self, queue: Queue, people: dict[str, User], second: User) -> None:
        page, item = browser(people["operator"]), queue.items.earliest("pk")
        paths = (
            "/review/",
            "/review/quality/",
            f"/review/quality/{item.pk}/",
            "/rollouts/?label=quality:verdict=right",
        )

        def counts() -> dict[str, int]:
            found = {}
            for path in paths:
                page.get(path)
                with CaptureQueriesContext(connection) as seen:
                    assert page.get(path).status_code == 200
                found[path] = len(seen)
            return found

        for person, answers in ((people["reviewer"], RIGHT), (second, WRONG)):
            services.label(item=item, answers=answers, actor=person)
        before = counts()
        for one in list(queue.items.order_by("pk"))[1:-1]:  # something still waits
            for person, answers in ((people["reviewer"], RIGHT), (second, WRONG)):
                services.label(item=one, answers=answers, actor=person)
        services.create_queue(name="another", questionnaire=EXAMPLE, actor=people["operator"])
        after = counts()
        assert after == before
        assert max(after.values()) <= 18, after


@pytest.mark.django_db
class TestElsewhere:
    def test_the_api_does_the_same(self, recorded: list[Rollout], people: dict[str, User], bearer: Bearer) -> None:
        client = Client()
        read, review, operate = bearer("viewer"), bearer("reviewer", "review"), bearer("operator", "operate")

        def post(path: str, body: Any, headers: dict[str, str]) -> Any:
            return client.post(
                f"/api/v1/review{path}", json.dumps(body), content_type="application/json", headers=headers
            )

        questions = EXAMPLE.model_dump(mode="json")["questions"]
        body = {"name": "q", "questions": questions, "filters": "verdict=failed", "reviewers": 2}
        assert client.get("/api/v1/review").status_code == 401
        assert post("", body, review).status_code == 403
        assert post("", {**body, "filters": "x=1"}, operate).status_code == 422
        made = post("", body, operate)
        assert (made.status_code, made.json()["rollouts"]) == (201, 4)
        assert client.get("/api/v1/review/q/next", headers=read).status_code == 403
        rollout = client.get("/api/v1/review/q/next", headers=review).json()["rollout"]
        assert post("/q/labels", {"rollout": rollout, "answers": {"verdict": "x"}}, review).status_code == 422
        assert post("/q/labels", {"rollout": rollout, "answers": RIGHT}, read).status_code == 403
        assert post("/q/labels", {"rollout": 0, "answers": RIGHT}, review).status_code == 404
        assert post("/q/labels", {"rollout": rollout, "answers": RIGHT}, review).json()["reviewer"] == "reviewer"
        assert client.get(f"/api/v1/review/q/labels/{rollout}", headers=operate).json() is None
        assert post("/q/labels", {"rollout": rollout, "answers": WRONG}, operate).status_code == 201
        assert len(client.get(f"/api/v1/review/q/labels/{rollout}", headers=operate).json()) == 2
        assert client.get("/api/v1/review/q/agreement", headers=read).json()[0]["items"] == 1
        assert client.get("/api/v1/review/q/disagreements", headers=read).json()[0]["rollout"] == rollout
        assert client.get("/api/v1/review/q/rewards?question=quality", headers=read).json() == [
            {"rollout": rollout, "value": 0.5}
        ]
        assert client.get("/api/v1/rollouts?label=q:verdict=wrong", headers=read).json()["items"][0]["id"] == rollout
        assert post("/q/exclude", {"question": "verdict", "value": "wrong"}, review).status_code == 403
        assert post("/q/exclude", {"question": "verdict", "value": "wrong"}, operate).json() == {"count": 0}
        assert post("/q/close", {}, operate).json()["closed_at"]
        assert post("/q/labels", {"rollout": rollout, "answers": RIGHT}, review).status_code == 409
