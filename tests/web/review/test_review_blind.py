"""Who has yet to answer about a rollout is told nowhere what others labelled, nor what followed from it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.review import excluding, selectors, services
from composer_web.review.models import Queue, QueueItem
from composer_web.rollouts.models import Finding, Quarantine, Rollout
from tests.web.review.test_review import RIGHT, WRONG, browser, queue, recorded, second

__all__ = ["queue", "recorded", "second"]  # fixtures
pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]
WORDS = ("reviewers of quality", "in quarantine")


@pytest.fixture
def excluded(queue: Queue, second: User, people: dict[str, User]) -> QueueItem:
    """One of two reviewers called it a hack, and an operator let that exclude it."""
    item = queue.items.select_related("rollout").earliest("pk")
    services.label(item=item, answers=WRONG, actor=second)
    assert excluding.exclude(queue=queue, question="flags", value="reward_hack", actor=people["operator"]) == 1
    assert Quarantine.objects.get().rollout == item.rollout
    return item


def told(user: User, headers: dict[str, str], item: QueueItem) -> dict[str, bool]:
    """Where this person can learn that somebody called the rollout a hack."""
    pages, api = browser(user), Client(headers=headers)
    pk, finding = item.rollout_id, Finding.objects.get()

    def says(path: str) -> bool:
        answer = pages.get(path)
        return answer.status_code == 200 and any(words in answer.content.decode() for words in WORDS)

    def lists(path: str) -> bool:
        return any(row["id"] == pk for row in api.get(f"/api/v1/rollouts?{path}").json()["items"])

    def found(path: str) -> bool:
        return bool(api.get(f"/api/v1/findings{path}").json()["items"])

    rewards = api.get("/api/v1/review/quality/rewards?question=verdict").json()
    labels = api.get(f"/api/v1/review/quality/labels/{pk}").json()
    return {
        "rollout": says(f"/rollouts/{pk}/"),
        "group": "quarantined" in pages.get(f"/groups/{item.rollout.group_id}/").content.decode(),
        "findings": says("/findings/"),
        "finding": says(f"/findings/{finding.pk}/"),
        "api findings": found("") or found("?rule=review-label") or found("?quarantined=true"),
        "api finding": api.get(f"/api/v1/findings/{finding.pk}").status_code == 200,
        "by label": lists("label=quality:flags=reward_hack") or lists("label=quality"),
        "by finding": lists("finding=review-label") or lists("finding=any"),
        "by quarantine": lists("quarantined=true"),
        "rewards": any(row["rollout"] == pk for row in rewards),
        "labels": labels is not None,
    }


def test_a_reviewer_before_and_after(excluded: QueueItem, people: dict[str, User], bearer: Bearer) -> None:
    reviewer = people["reviewer"]
    assert set(told(reviewer, bearer("reviewer", "read"), excluded).values()) == {False}
    refused = Client(headers=bearer("reviewer", "review")).post(
        f"/api/v1/findings/{Finding.objects.get().pk}/dismiss", json.dumps({"note": ""}), "application/json"
    )
    assert refused.status_code == 404
    services.label(item=excluded, answers=RIGHT, actor=reviewer)
    assert set(told(reviewer, bearer("reviewer", "read"), excluded).values()) == {True}


def test_a_viewer_answers_nothing_and_sees_everything(
    excluded: QueueItem, people: dict[str, User], bearer: Bearer
) -> None:
    assert set(told(people["viewer"], bearer("viewer"), excluded).values()) == {True}


def test_an_operator_undoes_what_labels_did_without_reading_them_on_the_rollout(
    excluded: QueueItem, people: dict[str, User], bearer: Bearer
) -> None:
    seen = told(people["operator"], bearer("operator", "read"), excluded)
    assert [where for where, there in seen.items() if not there] == ["rollout", "labels"]


def test_a_closed_queue_hides_nothing(
    queue: Queue, excluded: QueueItem, people: dict[str, User], bearer: Bearer
) -> None:
    services.set_closed(queue=queue, closed=True, actor=people["operator"])
    assert set(told(people["reviewer"], bearer("reviewer", "read"), excluded).values()) == {True}


def test_another_queue_about_the_same_rollout_gives_nothing_away(
    queue: Queue, excluded: QueueItem, people: dict[str, User]
) -> None:
    other = services.create_queue(name="other", questionnaire=queue.questionnaire, actor=people["operator"])
    services.fill(queue=other, rollouts=Rollout.objects.filter(pk=excluded.rollout_id), actor=people["operator"])
    item = other.items.get()
    services.label(item=item, answers=RIGHT, actor=people["reviewer"])
    assert selectors.sees_labels(item, people["reviewer"])
    html = browser(people["reviewer"]).get(f"/review/other/{item.pk}/").content.decode()
    assert not any(words in html for words in WORDS)


def test_an_auditors_finding_is_told_whoever_asks(excluded: QueueItem, people: dict[str, User], queue: Queue) -> None:
    """Only quarantines behind which labels stand are left out."""
    rollout = queue.items.select_related("rollout__group").latest("pk").rollout
    Finding.objects.create(
        subject="rollout", rule="tampering", rule_version=1, severity="high", summary="touched it", rollout=rollout,
        group=rollout.group, task_version=rollout.group.task_version,
    )  # fmt: skip
    Quarantine.objects.create(rollout=rollout)
    page = browser(people["reviewer"])
    assert "touched it" in page.get("/findings/").content.decode()
    html = page.get(f"/rollouts/{rollout.pk}/").content.decode()
    assert "touched it" in html and "in quarantine" in html
