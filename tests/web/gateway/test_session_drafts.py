"""A user's recorded session becomes a draft of a task in the environment of a task that is there already."""

from __future__ import annotations

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.gateway.models import Session
from composer_web.review.models import Draft
from composer_web.rollouts.models import Rollout
from composer_web.tasks.models import Task
from tests.browser.sessions import recorded
from tests.web.review.test_drafts import rollout

__all__ = ["rollout"]  # a fixture
pytestmark = pytest.mark.django_db


@pytest.fixture
def session(rollout: Rollout, people: dict[str, User]) -> Session:
    recorded(people, hostile="nothing")
    return Session.objects.earliest("pk")


def test_a_session_becomes_a_task(session: Session, rollout: Rollout, people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["reviewer"])
    source = rollout.group.task_version.task.slug
    said = {"task": source, "slug": "asked-by-a-user", "instruction": session.opening, "category": "debug"}
    page = client.post(f"/gateway/sessions/{session.pk}/drafts/", said, follow=True)
    draft = Draft.objects.get(slug="asked-by-a-user")
    assert page.redirect_chain[-1][0] == f"/drafts/{draft.pk}/"
    assert draft.instruction == session.opening and draft.state == "open"
    assert (draft.provenance["session"], draft.provenance["task"]) == (session.pk, source)
    assert draft.provenance["session_policy"] == "base@0"
    assert f"/drafts/{draft.pk}/" in client.get(f"/gateway/sessions/{session.pk}/").content.decode()
    client.post(f"/drafts/{draft.pk}/publish/", follow=True)
    task = Task.objects.get(slug="asked-by-a-user")
    version = task.versions.get()
    assert (task.source, version.bundle.instruction, version.author) == ("session", session.opening, people["reviewer"])
    assert version.controls_ok is None, "nothing may use it before its controls hold"
    assert version.bundle.environment == rollout.group.task_version.bundle.environment


def test_the_api_does_the_same(session: Session, rollout: Rollout, bearer, people: dict[str, User]) -> None:
    said = {"task": rollout.group.task_version.task.slug, "slug": "by-api", "instruction": "Fix it"}
    where = f"/api/v1/gateway/sessions/{session.pk}/drafts"
    assert Client().post(where, said, content_type="application/json", headers=bearer("viewer")).status_code == 403
    answer = Client().post(where, said, content_type="application/json", headers=bearer("reviewer", "review"))
    assert answer.status_code == 201, answer.content
    assert answer.json()["provenance"]["session"] == session.pk
    again = Client().post(where, said, content_type="application/json", headers=bearer("reviewer", "review"))
    assert again.status_code == 422 and Draft.objects.filter(slug="by-api").count() == 1
