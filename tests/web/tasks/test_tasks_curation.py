"""Curation of tasks: reviews, admission, bulk changes with undo, history, versions, facets; pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import User
from composer_web.core.errors import Conflict, UserError
from composer_web.tasks import reviewing, selectors
from composer_web.tasks.curation import services as curation
from composer_web.tasks.models import Suite, SuiteMembership, Task, TaskChange, TaskReview
from composer_web.tasks.services import build_suite
from tests.browser.episodes import task as spec
from tests.web import pool
from tests.web.helpers import as_read
from tests.web.pool import browser, newest, state

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


tasks, other = pool.tasks, pool.other


class TestReviews:
    def test_two_who_agree_admit(self, tasks: list[Task], people: dict[str, User], other: User) -> None:
        version = newest(tasks[0])
        assert state(tasks[0]) == "new"
        reviewing.review(version=version, decision="accept", actor=people["reviewer"])
        assert (state(tasks[0]), reviewing.admitted(version)) == ("one", False)
        reviewing.review(version=version, decision="accept", actor=people["reviewer"])  # twice by one is one
        assert (state(tasks[0]), reviewing.admitted(version)) == ("one", False)
        reviewing.review(version=version, decision="accept", actor=other)
        assert (state(tasks[0]), reviewing.admitted(version)) == ("admitted", True)
        reviewing.review(version=version, decision="withdrawn", actor=other)
        assert (state(tasks[0]), reviewing.admitted(version)) == ("one", False)

    def test_a_disagreement_waits_for_a_third(self, tasks: list[Task], people: dict[str, User], other: User) -> None:
        version = newest(tasks[0])
        reviewing.review(version=version, decision="accept", actor=people["reviewer"])
        reviewing.review(version=version, decision="reject", actor=other, note="two right answers")
        assert state(tasks[0]) == "disputed"
        (row,) = reviewing.disagreements(people["operator"])
        assert (row.reviews, row.hidden, row.opinions) == (2, True, ())
        (row,) = reviewing.disagreements(other)
        assert [(one.reviewer.username, one.decision) for one in row.opinions] == [
            ("reviewer", "accept"),
            ("second", "reject"),
        ]
        reviewing.review(version=version, decision="accept", actor=people["operator"])
        assert state(tasks[0]) == "admitted"

    def test_others_words_are_hidden_until_ones_own(
        self, tasks: list[Task], people: dict[str, User], other: User
    ) -> None:
        version = newest(tasks[0])
        reviewing.review(version=version, decision="reject", actor=other, note="zebra")
        path = f"/tasks/review/{tasks[0].slug}/"
        page = browser(people["reviewer"])
        for seen in (page.get(path), page.get(f"/tasks/{tasks[0].slug}/"), page.get("/tasks/disagreements/")):
            assert "zebra" not in seen.content.decode()
            assert "second: reject" not in seen.content.decode()
        assert "Hidden until you have reviewed it" in page.get(path).content.decode()
        page.post(f"{path}decide/", {"decision": "accept"})
        assert "second: reject, “zebra”" in as_read(page.get(path).content)

    def test_an_author_does_not_review(self, tasks: list[Task], people: dict[str, User]) -> None:
        made = curation.edit_instruction(task=tasks[0], text="Other words", actor=people["reviewer"])
        with pytest.raises(UserError, match=r"you wrote .* v2 yourself"):
            reviewing.review(version=made, decision="accept", actor=people["reviewer"])
        with pytest.raises(IntegrityError, match="may not review it"), transaction.atomic():
            TaskReview.objects.create(task_version=made, reviewer=people["reviewer"], decision="accept")
        with pytest.raises(Conflict, match="not the newest"):
            reviewing.review(version=tasks[0].versions.get(number=1), decision="accept", actor=people["operator"])

    def test_a_new_version_begins_anew(self, tasks: list[Task], people: dict[str, User], other: User) -> None:
        for person in (people["reviewer"], other):
            reviewing.review(version=newest(tasks[0]), decision="accept", actor=person)
        assert state(tasks[0]) == "admitted"
        curation.edit_instruction(task=tasks[0], text="Other words", actor=people["operator"])
        assert state(tasks[0]) == "new"

    def test_the_queue_goes_through_what_one_has_not_reviewed(self, tasks: list[Task], people: dict[str, User]) -> None:
        user, query = people["reviewer"], selectors.tasks()
        seen, task = [], reviewing.following(query, user, None)
        while task is not None:
            seen.append(task.pk)
            if task.pk == tasks[2].pk and seen.count(task.pk) == 1:  # skipped once, it comes again at the end
                task = reviewing.following(query, user, task)
                continue
            reviewing.review(version=newest(task), decision="accept", actor=user)
            task = reviewing.following(query, user, task)
        assert seen == [*(t.pk for t in tasks), tasks[2].pk]
        assert reviewing.waiting(query, people["operator"]).count() == 6


class TestAdmission:
    def test_a_reviewed_suite_takes_only_what_two_admit(
        self, tasks: list[Task], people: dict[str, User], other: User
    ) -> None:
        operator = people["operator"]
        suite = curation.open_suite(name="bench", purpose="benchmark", reviewed=True, actor=operator)
        with pytest.raises(UserError, match="not admitted: two reviewers"):
            curation.apply(tasks=tasks[:1], action="suite", value="bench", actor=operator)
        assert (
            curation.decide(task=tasks[0], version=newest(tasks[0]), decision="accept", actor=other, into="bench")
            is False
        )
        version = newest(tasks[0])
        with pytest.raises(IntegrityError, match="was not admitted"), transaction.atomic():
            SuiteMembership.objects.create(suite=suite, task_version=version, position=0)
        assert curation.decide(
            task=tasks[0], version=version, decision="accept", actor=people["reviewer"], into="bench"
        )
        assert [v.pk for v in suite.versions.all()] == [version.pk]
        with pytest.raises(IntegrityError, match="was not admitted"), transaction.atomic():
            suite.memberships.update(task_version=newest(tasks[1]))
        with pytest.raises(UserError, match="not admitted"):
            build_suite(name="bench", purpose="benchmark", specs=[spec(1)])

    def test_it_stays_reviewed(self, tasks: list[Task], people: dict[str, User]) -> None:
        suite = curation.open_suite(name="bench", purpose="benchmark", reviewed=True, actor=people["operator"])
        with pytest.raises(IntegrityError, match="stays reviewed"), transaction.atomic():
            Suite.objects.filter(pk=suite.pk).update(reviewed=False)
        loose = curation.open_suite(name="loose", purpose="benchmark", reviewed=False, actor=people["operator"])
        curation.apply(tasks=tasks[:1], action="suite", value="loose", actor=people["operator"])
        with pytest.raises(IntegrityError, match="not admitted"), transaction.atomic():
            Suite.objects.filter(pk=loose.pk).update(reviewed=True)

    def test_sides_do_not_mix(self, tasks: list[Task], people: dict[str, User]) -> None:
        operator = people["operator"]
        curation.open_suite(name="mine", purpose="train", reviewed=False, actor=operator)
        curation.apply(tasks=tasks[:1], action="split", value="benchmark", actor=operator)
        with pytest.raises(UserError, match="has the split 'benchmark'"):
            curation.apply(tasks=tasks[:2], action="suite", value="mine", actor=operator)
        curation.apply(tasks=tasks[1:2], action="suite", value="mine", actor=operator)
        with pytest.raises(UserError, match="is in suite 'mine'"):
            curation.apply(tasks=tasks[:2], action="split", value="held-out", actor=operator)
        assert not Task.objects.filter(split="held-out").exists()


class TestChanges:
    def test_many_at_once_and_back(self, tasks: list[Task], people: dict[str, User]) -> None:
        operator = people["operator"]
        first = curation.apply(tasks=tasks[:2], action="tag", value="hard", actor=operator)
        second = curation.apply(tasks=tasks[:3], action="tag", value="Hard,  odd one", actor=operator)
        assert (first.changed, second.changed) == (2, 3)
        assert Task.objects.get(pk=tasks[0].pk).tags == ["hard", "odd one"]
        with pytest.raises(Conflict, match="changed again since"):
            curation.undo(batch=first.id, actor=operator)
        back = curation.undo(batch=second.id, actor=operator)
        assert [t.tags for t in Task.objects.order_by("pk")[:3]] == [["hard"], ["hard"], []]
        with pytest.raises(Conflict, match="undone already"):
            curation.undo(batch=second.id, actor=operator)
        curation.undo(batch=back.id, actor=operator)  # undoing the undoing does it again
        assert Task.objects.get(pk=tasks[2].pk).tags == ["hard", "odd one"]
        assert TaskChange.objects.count() == 2 + 3 + 3 + 3

    def test_suites_and_back(self, tasks: list[Task], people: dict[str, User]) -> None:
        operator = people["operator"]
        suite = curation.open_suite(name="mine", purpose="held-out", reviewed=False, actor=operator)
        done = curation.apply(tasks=tasks, action="suite", value="mine", actor=operator)
        assert suite.versions.count() == 6
        out = curation.apply(tasks=tasks[:2], action="unsuite", value="mine", actor=operator)
        assert suite.versions.count() == 4
        curation.undo(batch=out.id, actor=operator)
        assert suite.versions.count() == 6
        with pytest.raises(Conflict, match="undone already"):
            curation.undo(batch=out.id, actor=operator)
        curation.undo(batch=done.id, actor=operator)
        assert suite.versions.count() == 0
        again = curation.apply(tasks=tasks[:1], action="suite", value="mine", actor=operator)
        assert (again.changed, again.unchanged) == (1, 0)
        assert curation.apply(tasks=tasks[:1], action="suite", value="mine", actor=operator).changed == 0

    def test_history_is_append_only(self, tasks: list[Task], people: dict[str, User]) -> None:
        curation.apply(tasks=tasks[:1], action="tag", value="x", actor=people["operator"])
        reviewing.review(version=newest(tasks[0]), decision="accept", actor=people["operator"])
        for query in (TaskChange.objects.all(), TaskReview.objects.all()):
            with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
                query.update(**({"field": "x"} if query.model is TaskChange else {"note": "x"}))
            with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
                query.delete()

    @pytest.mark.parametrize(
        ("action", "value", "words"),
        [
            ("tag", "", "at least one tag"),
            ("tag", "<b>", "a tag has up to 40"),
            ("tag", ",".join(f"t{i}" for i in range(21)), "at most 20"),
            ("split", "left", "a split is"),
            ("suite", "nobody", "there is no suite"),
            ("erase", "x", "not 'erase'"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, tasks: list[Task], people: dict[str, User], action: Any, value: str, words: str
    ) -> None:
        with pytest.raises(UserError, match=words):
            curation.apply(tasks=tasks, action=action, value=value, actor=people["operator"])
        assert not TaskChange.objects.exists()

    def test_words_make_a_version(self, tasks: list[Task], people: dict[str, User]) -> None:
        made = curation.edit_instruction(task=tasks[0], text="  Say it\r\nplainly ", actor=people["reviewer"])
        assert (made.number, made.bundle.instruction, made.author) == (2, "Say it\nplainly", people["reviewer"])
        assert made.controls_ok is None
        for text, words in (("Say it\nplainly", "the same"), (" ", "1 to 20,000"), ("x" * 20_001, "1 to 20,000")):
            with pytest.raises(UserError, match=words):
                curation.edit_instruction(task=tasks[0], text=text, actor=people["reviewer"])
        first = tasks[0].versions.get(number=1).bundle.instruction
        with pytest.raises(Conflict, match="version 1 had exactly these words"):
            curation.edit_instruction(task=tasks[0], text=first, actor=people["reviewer"])
        html = browser(people["reviewer"]).get(f"/tasks/{tasks[0].slug}/compare/").content.decode()
        assert "Version 1 to 2" in html
        assert "plainly" in html
        html = browser(people["viewer"]).get(f"/tasks/{tasks[0].slug}/compare/?from=1&to=9")
        assert html.status_code == 404


class TestPages:
    def test_who_may_what(self, tasks: list[Task], people: dict[str, User]) -> None:
        slug = tasks[0].slug
        reads = ["/tasks/facets/", "/tasks/changes/", "/tasks/disagreements/", f"/tasks/{slug}/compare/"]
        reviews = ["/tasks/review/", f"/tasks/review/{slug}/"]
        for path in reads + reviews:
            assert Client().get(path).status_code == 302, path
            assert browser(people["viewer"]).get(path).status_code == (200 if path in reads else 403), path
            assert browser(people["reviewer"]).get(path, follow=True).status_code == 200, path
        posts = {"/tasks/undo/": "reviewer", "/suites/open/": "reviewer", "/tasks/bulk/": "operator"}
        posts |= {f"/tasks/review/{slug}/{name}/": "reviewer" for name in ("decide", "edit", "tag", "split")}
        below = {"reviewer": "viewer", "operator": "reviewer"}
        for path, role in posts.items():
            assert Client().post(path).status_code == 302, path
            assert browser(people[below[role]]).post(path).status_code == 403, path
            shown_again = (
                path == "/suites/open/"
            )  # a refusal shows the form at this address; its links lead to the list
            assert browser(people[role]).get(path).status_code == (302 if shown_again else 405), path
            assert browser(people[role]).post(path).status_code == (422 if shown_again else 302), path
            strict = Client(enforce_csrf_checks=True)
            strict.force_login(people[role])
            assert strict.post(path).status_code == 403, path
        assert not TaskReview.objects.exists()

    def test_the_queue_answers_scripts(self, tasks: list[Task], people: dict[str, User]) -> None:
        page, slug = browser(people["reviewer"]), tasks[0].slug
        fetch = {"headers": {"X-Requested-With": "fetch"}}
        path = f"/tasks/review/{slug}/"
        told = page.post(f"{path}tag/?source=procedural", {"value": "odd"}, **fetch).json()
        assert told["next"] == f"{path}?source=procedural"
        undone = page.post("/tasks/undo/", {"batch": told["undo"], "next": path}, **fetch).json()
        assert undone == {"message": "Undone: 1 task changed back.", "next": path, "undo": "", "waiting": None}
        wrong = page.post(f"{path}decide/", {"decision": "accept", "version": "7"}, **fetch)
        assert (wrong.status_code, "newer version" in wrong.json()["message"]) == (422, True)
        told = page.post(f"{path}decide/", {"decision": "accept", "version": "1"}, **fetch).json()
        assert (told["next"], told["waiting"]) == (f"/tasks/review/{tasks[1].slug}/", "5")
        assert page.post(f"{path}none/").status_code == 404
        for task in tasks[1:]:
            told = page.post(f"/tasks/review/{task.slug}/decide/", {"decision": "reject"}, **fetch).json()
        assert "Nothing waits for your review" in page.get(told["next"]).content.decode()

    def test_reviewers_undo_their_own(self, tasks: list[Task], people: dict[str, User]) -> None:
        done = curation.apply(tasks=tasks, action="tag", value="x", actor=people["operator"])
        html = browser(people["reviewer"]).post("/tasks/undo/", {"batch": str(done.id)}, follow=True).content.decode()
        assert "an operator can undo them" in html
        page = browser(people["operator"])
        html = page.post(
            "/tasks/bulk/", {"task": [tasks[0].pk, "x"], "action": "split", "value_split": "train"}, follow=True
        )
        assert "1 task changed." in html.content.decode()
        batch = TaskChange.objects.filter(field="split").get().batch
        assert f'value="{batch}"' in html.content.decode()
        page.post("/tasks/undo/", {"batch": str(batch), "next": "//evil.example/"}, follow=False)
        assert Task.objects.get(pk=tasks[0].pk).split == ""

    def test_hostile_words_stay_text(self, tasks: list[Task], people: dict[str, User]) -> None:
        bad = "</textarea><script>alert(1)</script>"
        curation.edit_instruction(task=tasks[0], text=bad, actor=people["operator"])
        reviewing.review(version=newest(tasks[0]), decision="reject", actor=people["reviewer"], note=bad)
        page = browser(people["reviewer"])
        for path in (f"/tasks/review/{tasks[0].slug}/", f"/tasks/{tasks[0].slug}/compare/", "/tasks/changes/"):
            assert "<script>alert" not in page.get(path).content.decode(), path

    def test_facets_count_under_the_other_filters(self, tasks: list[Task], people: dict[str, User]) -> None:
        curation.apply(tasks=tasks[:2], action="tag", value="odd", actor=people["operator"])
        page = browser(people["viewer"])

        def count(address: str) -> dict[str, int]:
            bearer = page.get(f"/api/v1/curation/facets{address}").json()
            return {f"{f['name']}={v['value']}": v["count"] for f in bearer for v in f["values"]}

        everything = count("")
        assert everything["controls=true"] == 4
        assert everything["controls=none"] == 2
        assert everything["strength=fair"] == 4
        assert everything["tag=odd"] == 2
        narrowed = count("?tag=odd&controls=none")
        assert narrowed["controls=true"] == 2  # under the tag, not under the chosen controls
        assert "tag=odd" not in narrowed
        assert 'aria-current="true"' in page.get("/tasks/facets/?tag=odd").content.decode()
        closed = page.get("/tasks/facets/?controls=none").content.decode()
        assert "controls=none&amp;only=tag" in closed and "odd" not in closed
        opened = page.get("/tasks/facets/?controls=true&only=tag").content.decode()  # both passed theirs
        assert 'href="?controls=true&amp;tag=odd"' in opened and "<summary>" not in opened
        assert len(page.get("/tasks/?tag=odd").context["table"].page.object_list) == 2

    def test_my_newest_review_is_a_filter(self, tasks: list[Task], people: dict[str, User], other: User) -> None:
        for task, *decisions in zip(tasks, ["accept", "accept", "reject"], ["", "withdrawn", "accept"], strict=False):
            for decision in filter(None, decisions):
                reviewing.review(version=newest(task), decision=decision, actor=people["reviewer"])
        reviewing.review(version=newest(tasks[3]), decision="reject", actor=other)
        page = browser(people["reviewer"])

        def found(value: str) -> set[str]:
            return {task["slug"] for task in page.get(f"/api/v1/tasks?mine={value}").json()["items"]}

        slugs = [task.slug for task in tasks]
        assert found("accept") == {slugs[0], slugs[2]}
        assert found("reject") == set()
        assert found("none") == {slugs[1], *slugs[3:]}
        counted = {f["name"]: f["values"] for f in page.get("/api/v1/curation/facets?mine=none").json()}
        assert sum(value["count"] for value in counted["controls"]) == len(slugs) - 2

    def test_queries_do_not_grow(self, tasks: list[Task], people: dict[str, User], other: User) -> None:
        page = browser(people["operator"])
        paths = (
            "/tasks/",
            "/tasks/facets/",
            "/tasks/changes/",
            "/tasks/disagreements/",
            f"/tasks/review/{tasks[0].slug}/",
        )

        def counts() -> dict[str, int]:
            found = {}
            for path in paths:
                page.get(path)
                with CaptureQueriesContext(connection) as seen:
                    assert page.get(path).status_code == 200
                found[path] = len(seen)
            return found

        curation.apply(tasks=tasks[:1], action="tag", value="x", actor=people["operator"])
        reviewing.review(version=newest(tasks[0]), decision="accept", actor=people["reviewer"])
        reviewing.review(version=newest(tasks[0]), decision="reject", actor=other)
        build_suite(name="few", purpose="train", specs=[spec(40)])
        before = counts()
        build_suite(name="more", purpose="train", specs=[spec(i) for i in range(10, 30)])
        curation.apply(tasks=list(Task.objects.all()), action="tag", value="y", actor=people["operator"])
        for task in Task.objects.all()[:9]:
            reviewing.review(version=newest(task), decision="accept", actor=people["reviewer"])
            reviewing.review(version=newest(task), decision="reject", actor=other)
        after = counts()
        assert after == before
        assert max(after.values()) <= 20, after
