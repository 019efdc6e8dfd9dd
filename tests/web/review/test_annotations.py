"""Annotations: verdicts, tags, comments, requests for review and assignees, from page, API and command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.errors import Denied, UserError
from composer_web.review import annotated as selectors
from composer_web.review import annotating as services
from composer_web.review import services as review
from composer_web.review.models import Annotation, Queue
from composer_web.review.questions import EXAMPLE
from composer_web.rollouts.exports.exported import table
from composer_web.rollouts.models import Rollout
from tests.web.cli.fixtures import Cli
from tests.web.review.test_review import RIGHT, browser, queue, recorded, second

__all__ = ["queue", "recorded", "second"]  # fixtures
pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


@pytest.fixture
def rollout(recorded: Any) -> Rollout:
    found = Rollout.objects.exclude(artifact_key="").earliest("pk")
    Rollout.objects.filter(pk=found.pk).update(turns=2)
    found.refresh_from_db()
    return found


def test_a_verdict_replaces_the_same_persons_and_nobody_elses(
    rollout: Rollout, people: dict[str, User], second: User
) -> None:
    reviewer = people["reviewer"]
    services.annotate(rollout=rollout, kind="verdict", value="good", actor=reviewer)
    services.annotate(rollout=rollout, kind="verdict", value="bad", actor=second)
    again = services.annotate(rollout=rollout, kind="verdict", value="unsure", actor=reviewer)
    assert services.annotate(rollout=rollout, kind="verdict", value="unsure", actor=reviewer) == again
    sheet = selectors.sheet_of(rollout, reviewer)
    assert [(one.author.username, one.value) for one in sheet.verdicts] == [("second", "bad"), ("reviewer", "unsure")]
    assert sheet.mine == again
    assert Annotation.objects.filter(removed_at__isnull=False).count() == 1, "what was said before is kept"


def test_what_a_rollout_has_once_is_there_once(rollout: Rollout, people: dict[str, User], second: User) -> None:
    for actor in (people["reviewer"], second):
        services.annotate(rollout=rollout, kind="tag", value="Reward hack", actor=actor)
        services.annotate(rollout=rollout, kind="needs_review", actor=actor)
        services.annotate(rollout=rollout, kind="assignee", assignee="reviewer", actor=actor)
        services.annotate(rollout=rollout, kind="comment", text=" twice ", actor=actor)
    sheet = selectors.sheet_of(rollout, second)
    assert [tag.value for tag in sheet.tags] == ["reward-hack"]
    assert (sheet.count, len(sheet.comments), sheet.comments[0].text) == (5, 2, "twice")
    assert selectors.tags() == ["reward-hack"]
    assert AuditEntry.objects.filter(action="rollout.annotate").count() == 5


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"kind": "mood"}, "kind", "verdict, tag, comment"),
        ({"kind": "verdict", "value": "great"}, "value", "good, bad, unsure"),
        ({"kind": "tag", "value": "<b>"}, "value", "shorten it"),
        ({"kind": "comment", "text": "  "}, "text", "empty"),
        ({"kind": "comment", "text": "x" * 4001}, "text", "4000"),
        ({"kind": "comment", "text": "x", "turn": 999}, "turn", "not 999"),
        ({"kind": "comment", "text": "x", "tokens": (1, 2)}, "turn", "name the turn"),
        ({"kind": "comment", "text": "x", "turn": 0, "tokens": (3, 3)}, "token_end", "3 to 3"),
        ({"kind": "tag", "value": "x", "turn": 0}, "turn", "only a comment"),
        ({"kind": "assignee", "assignee": "viewer"}, "assignee", "no reviewer"),
    ],
)
def test_refusals_name_the_field(
    rollout: Rollout, people: dict[str, User], given: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(UserError, match=words) as refused:
        services.annotate(rollout=rollout, actor=people["reviewer"], **given)
    assert refused.value.field == field
    assert not Annotation.objects.exists()


def test_only_the_author_or_an_admin_removes_words(rollout: Rollout, people: dict[str, User], second: User) -> None:
    comment = services.annotate(rollout=rollout, kind="comment", text="wrong file", actor=people["reviewer"])
    tag = services.annotate(rollout=rollout, kind="tag", value="odd", actor=people["reviewer"])
    with pytest.raises(Denied):
        services.remove(annotation=comment, actor=second)
    services.remove(annotation=tag, actor=second)
    services.remove(annotation=comment, actor=people["admin"])
    assert not selectors.present().exists()


def test_the_database_keeps_an_annotation_as_it_was(rollout: Rollout, people: dict[str, User]) -> None:
    made = services.annotate(rollout=rollout, kind="comment", text="first", actor=people["reviewer"])
    with pytest.raises(IntegrityError), transaction.atomic():
        Annotation.objects.filter(pk=made.pk).update(text="second")
    with pytest.raises(IntegrityError), transaction.atomic():
        Annotation.objects.create(
            rollout=rollout, kind="comment", text="x", token_start=1, token_end=2, author=made.author
        )


def found(client: Client, query: str) -> list[int]:
    answer = client.get(f"/api/v1/rollouts?{query}")
    assert answer.status_code == 200, answer.content
    return [row["id"] for row in answer.json()["items"]]


def test_annotations_filter_rollouts(rollout: Rollout, people: dict[str, User], bearer: Bearer) -> None:
    everything = Rollout.objects.count()
    mine = people["reviewer"]
    services.annotate(rollout=rollout, kind="verdict", value="bad", actor=mine)
    services.annotate(rollout=rollout, kind="tag", value="flaky", actor=mine)
    services.annotate(rollout=rollout, kind="assignee", assignee="reviewer", actor=mine)
    client = Client(headers=bearer("reviewer", "read"))
    for query in ("verdict=bad", "verdict", "tag=flaky", "assignee=me", "assignee=reviewer"):
        assert found(client, f"annotation={query.replace('=', '%3D')}") == [rollout.pk], query
    for query in ("verdict%3Dgood", "tag%3Dother", "comment", "needs_review", "nonsense"):
        assert found(client, f"annotation={query}") == [], query
    assert len(found(client, "annotation=none&limit=200")) == everything - 1
    assert found(Client(headers=bearer("operator", "read")), "annotation=assignee%3Dme") == []


def test_api_and_command_line(
    rollout: Rollout, bearer: Bearer, cli: Cli, capsys: pytest.CaptureFixture[str], people: dict[str, User]
) -> None:
    client = Client(headers=bearer("reviewer", "read", "review"))
    body = {"rollout": rollout.pk, "kind": "comment", "text": "off by one", "turn": 1, "token_start": 2, "token_end": 5}
    made = client.post("/api/v1/annotations", json.dumps(body), "application/json")
    assert made.status_code == 201, made.content
    assert {**body, "author": "reviewer"}.items() <= made.json().items()
    half = {**body, "token_end": None}
    assert client.post("/api/v1/annotations", json.dumps(half), "application/json").status_code == 422
    reader = Client(headers=bearer("viewer", "read"))
    assert reader.post("/api/v1/annotations", json.dumps(body), "application/json").status_code == 403
    listed = reader.get(f"/api/v1/annotations?kind=comment&rollout={rollout.pk}&text=off").json()["items"]
    assert [row["id"] for row in listed] == [made.json()["id"]]
    assert client.delete(f"/api/v1/annotations/{made.json()['id']}").status_code == 204
    assert cli("annotations", "create", str(rollout.pk), "verdict", "bad")[0] == 0
    capsys.readouterr()
    assert cli("annotations", "list", "--kind", "verdict", "--json")[0] == 0


def test_the_bar_on_the_page(rollout: Rollout, people: dict[str, User]) -> None:
    page, path = browser(people["reviewer"], headers={"HX-Request": "true"}), f"/rollouts/{rollout.pk}/annotate/"
    answer = page.post(path, {"kind": "verdict", "value": "good"})
    assert re.search(r'verdict--good"\s+aria-pressed="true"', answer.content.decode())
    assert json.loads(answer["HX-Trigger"]) == {"oc:toast": "Verdict saved"}
    for sent, at in (
        ({"kind": "comment", "text": "x", "turn": "999"}, "#comment-problem"),
        ({"kind": "tag"}, "#annotations-problem"),
    ):
        refused = page.post(path, sent)  # only the reason is put into the page: text, turn and tokens stay in the form
        assert refused["HX-Retarget"] == at and 'class="notice' in refused.content.decode()
        assert "<form" not in refused.content.decode()
    page.post(path, {"kind": "comment", "text": "<script>alert(1)</script>", "turn": "1"})
    html = page.get(f"/rollouts/{rollout.pk}/").content.decode()
    assert 'id="comment-problem" role="alert"' in html and 'id="annotations-problem" role="alert"' in html
    assert 'data-comment-of="1"' in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert '<option value="odd">' not in page.get(f"/rollouts/{rollout.pk}/annotations/choices/").content.decode()
    page.post(path, {"kind": "tag", "value": "odd"})
    choices = page.get(f"/rollouts/{rollout.pk}/annotations/choices/").content.decode()
    assert '<option value="odd">' in choices
    assert 'value="reviewer"' in choices
    assert 'value="viewer"' not in choices
    tag = Annotation.objects.get(kind="tag")
    assert "Remove tag odd" not in page.post(f"/annotations/{tag.pk}/delete/").content.decode()
    assert "<script>alert" not in page.get("/annotations/?kind=comment").content.decode()
    viewer = browser(people["viewer"])
    assert viewer.post(path, {"kind": "verdict", "value": "good"}).status_code == 403
    assert 'data-annotate="1"' not in viewer.get(f"/rollouts/{rollout.pk}/").content.decode()


def test_a_form_that_the_browser_sent_by_itself_leads_to_the_whole_page(
    rollout: Rollout, people: dict[str, User]
) -> None:
    page, path = browser(people["reviewer"]), f"/rollouts/{rollout.pk}/annotate/"
    sent: tuple[dict[str, str], ...] = ({"kind": "verdict", "value": "good"}, {"kind": "comment"})
    for given, said in zip(sent, ("Verdict saved", "the comment is empty"), strict=True):
        answer = page.post(path, given, follow=True)
        assert answer.redirect_chain == [(f"/rollouts/{rollout.pk}/", 302)]
        assert said in answer.content.decode()
    mine = Annotation.objects.get(kind="verdict")
    answer = page.post(f"/annotations/{mine.pk}/delete/", follow=True)
    assert answer.redirect_chain and "Annotation removed" in answer.content.decode()


def test_a_long_list_of_comments_costs_no_query_each(rollout: Rollout, people: dict[str, User]) -> None:
    page, path = browser(people["operator"]), f"/rollouts/{rollout.pk}/"

    def queries() -> int:
        page.get(path)
        with CaptureQueriesContext(connection) as asked:
            page.get(path)
        return len(asked)

    services.annotate(rollout=rollout, kind="comment", text="one", actor=people["operator"])
    before = queries()
    for number in range(10):
        services.annotate(rollout=rollout, kind="comment", text=f"{number}", turn=0, actor=people["operator"])
    assert queries() == before


def test_an_export_holds_them(rollout: Rollout, people: dict[str, User]) -> None:
    services.annotate(rollout=rollout, kind="tag", value="kept", actor=people["operator"])
    exported = table("annotations")
    rows = exported.select(exported.clean("kind=tag&page=2"), asker=people["operator"])
    [[row]] = exported.pages(rows, exported.columns, 10, None)
    assert (row["rollout"], row["kind"], row["value"], row["author"]) == (rollout.pk, "tag", "kept", "operator")


def test_a_queues_reviewer_is_told_nothing_before_answering(
    queue: Queue, people: dict[str, User], second: User, bearer: Bearer
) -> None:
    item = queue.items.select_related("rollout").earliest("pk")
    services.annotate(rollout=item.rollout, kind="comment", text="others say so", actor=second)
    reviewer = people["reviewer"]
    client, page = Client(headers=bearer("reviewer", "read")), browser(reviewer)

    def told() -> set[bool]:
        return {
            "others say so" in page.get(f"/rollouts/{item.rollout_id}/").content.decode(),
            "others say so" in page.get("/annotations/").content.decode(),
            bool(client.get("/api/v1/annotations").json()["items"]),
            bool(found(client, "annotation=comment")),
        }

    assert told() == {False}
    services.annotate(rollout=item.rollout, kind="comment", text="mine", actor=reviewer)
    assert "mine" in page.get(f"/rollouts/{item.rollout_id}/").content.decode()
    review.label(item=item, answers=RIGHT, actor=reviewer)
    assert told() == {True}


def test_a_queue_is_not_called_annotations(people: dict[str, User]) -> None:
    with pytest.raises(UserError, match="choose another name"):
        review.create_queue(name="annotations", questionnaire=EXAMPLE, actor=people["operator"])
