"""Every page: who may see it, what it says, and what its buttons do."""

from __future__ import annotations

import re

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse

from composer_web.core.models import Outbox
from composer_web.repositories import services as repositories
from composer_web.repositories.building import locked_packages
from composer_web.repositories.models import Environment
from composer_web.rollouts.models import Finding, Rollout
from composer_web.runs.models import Run
from composer_web.tasks.models import TaskVersion
from tests.browser import seed
from tests.web import seeded
from tests.web.seeded import client

pytestmark = pytest.mark.django_db
world = seeded.world


def paths(world: seed.World) -> dict[str, str]:
    rollout = Rollout.objects.exclude(artifact_key="").filter(group__run=world.run).earliest("pk")
    evaluation = world.run.evaluations.earliest("pk")
    return {
        "home": "/",
        "runs": "/runs/",
        "run form": "/runs/new/",
        "run": f"/runs/{world.run.pk}/",
        "comparison": f"/runs/compare/?run={world.run.pk}&run={world.other.pk}",
        "supervised run": f"/runs/{world.finished.pk}/",
        "rollouts": "/rollouts/",
        "exports": "/rollouts/exports/",
        "tasks and rollouts": f"/rollouts/waffle/{world.run.pk}/",
        "findings": "/findings/",
        "finding": f"/findings/{Finding.objects.filter(severity='high').earliest('pk').pk}/",
        "trajectory": f"/rollouts/{rollout.pk}/",
        "prompt": f"/groups/{rollout.group_id}/",
        "turns": f"/rollouts/{rollout.pk}/turns/?turn=1",
        "search": f"/rollouts/{rollout.pk}/search/?q=scale",
        "tokens of a trajectory": f"/rollouts/{rollout.pk}/tokens/",
        "download": f"/rollouts/{rollout.pk}/download/",
        "tasks": "/tasks/",
        "task": "/tasks/scale-train-0000/",
        "suites": "/suites/",
        "suite": "/suites/train/",
        "environments": "/environments/",
        "policies": "/policies/",
        "policy": "/policies/base/",
        "evals": "/evaluations/",
        "evaluation": f"/evaluations/{evaluation.pk}/",
        "system": "/system/",
        "reconcile": "/system/reconcile/",
        "fidelity": "/system/fidelity/",
        "tokens": "/tokens/",
        "security": "/2fa/",
        "sessions": "/account/sessions/",
        "alerts": "/alerts/",
        "alert rules": "/alerts/rules/",
        "webhooks": "/alerts/webhooks/",
        "deliveries": "/alerts/deliveries/",
        "notifications": "/notifications/",
        "quotas": "/system/quotas/",
        "API documentation": "/api/v1/docs",
    }


OPERATOR_ONLY = {"run form", "webhooks", "deliveries"}


def test_every_page_answers(world: seed.World) -> None:
    operator, viewer, nobody = client(world), client(world, "viewer"), Client()
    for name, path in paths(world).items():
        assert operator.get(path).status_code == 200, name
        assert viewer.get(path).status_code == (403 if name in OPERATOR_ONLY else 200), name
        refused = nobody.get(path)
        assert refused.status_code == 302, name
        assert refused["Location"].startswith("/login/"), name


def test_pages_have_no_inline_script_or_style(world: seed.World) -> None:
    operator = client(world)
    for name, path in paths(world).items():
        answer = operator.get(path)
        if "html" not in answer["Content-Type"]:
            continue
        html = answer.content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)[^>]*>", html), name
        assert not re.search(r"<[^>]+\s(on[a-z]+|style)=", re.sub(r'"[^"]*"', '""', html)), name
        policy = answer["Content-Security-Policy"]
        assert "script-src 'self';" in f"{policy};", name
        assert "style-src 'self';" in f"{policy};", name


def test_missing_things_are_404(world: seed.World) -> None:
    operator = client(world)
    for path in (
        "/runs/999999/",
        "/rollouts/999999/",
        "/tasks/none/",
        "/suites/none/",
        "/policies/none/",
        "/evaluations/999999/",
        "/environments/9/",
        f"/runs/{world.run.pk}/part/none/",
        "/nothing/",
    ):
        assert operator.get(path).status_code == 404, path


def test_gold_is_for_operators(world: seed.World) -> None:
    path = "/tasks/scale-train-0000/"
    assert "return [value * by" in client(world).get(path).content.decode()
    html = client(world, "viewer").get(path).content.decode()
    assert "return [value * by" not in html
    assert "Operators see the gold patch" in html


def test_filters_are_in_the_url(world: seed.World) -> None:
    operator = client(world)
    html = operator.get(f"/rollouts/?run={world.run.pk}&verdict=passed").content.decode()
    assert "badge--good" in html
    assert "badge--bad" not in html
    assert "No rollout matches these filters" in operator.get("/rollouts/?task=nothing-like-it").content.decode()
    assert "No run matches" in operator.get("/runs/?q=nothing-like-it").content.decode()
    assert operator.get("/rollouts/?verdict=bogus").status_code == 422
    listed = operator.get("/runs/?kind=midtrain").content.decode().partition("<main")[2]
    assert "RL on small repositories" not in listed
    assert operator.get("/tasks/?suite=held-out&controls=true&page=2").status_code == 200


def test_metrics_answer_in_buckets(world: seed.World) -> None:
    path = reverse("runs:metrics", args=[world.run.pk])
    rows = client(world).get(f"{path}?keys=reward/mean,none&buckets=4").json()["series"]
    assert rows["none"] == []
    assert len(rows["reward/mean"]) == 4
    assert all(row["min"] <= row["last"] <= row["max"] for row in rows["reward/mean"])
    assert [
        r["step"] for r in client(world).get(f"{path}?keys=reward/mean&from=3&to=5").json()["series"]["reward/mean"]
    ] == [3, 4, 5]
    assert client(world).get(f"{path}?keys=reward/mean&from=x").status_code == 422


def test_run_actions_need_an_operator_and_a_post(world: seed.World) -> None:
    pause = reverse("runs:action", args=[world.run.pk, "pause"])
    assert client(world, "viewer").post(pause).status_code == 403
    assert client(world).get(pause).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(world.people["operator"])
    assert strict.post(pause).status_code == 403
    assert Run.objects.get(pk=world.run.pk).state == "running"
    answer = client(world).post(pause, follow=True)
    assert "Pausing after the current step" in answer.content.decode()
    assert Run.objects.get(pk=world.run.pk).state == "pausing"
    again = client(world).post(pause, follow=True)
    assert "notice--bad" in again.content.decode()


def test_one_action_on_several_runs(world: seed.World) -> None:
    path, wanted = "/runs/bulk/stop/", {"run": [world.run.pk, world.other.pk, "nonsense"]}
    assert client(world, "viewer").post(path, wanted).status_code == 403
    assert client(world).post("/runs/bulk/erase/", wanted).status_code == 404
    with transaction.atomic():
        html = client(world).post(path, wanted, follow=True).content.decode()
        assert Run.objects.get(pk=world.run.pk).state == "cancelled"
        transaction.set_rollback(True)
    assert f"{world.run.name}: Stopped." in html
    assert f"{world.other.name}: run {world.other.pk} is finished" in html  # refused, and the others went on


def test_controls_of_several_tasks(world: seed.World) -> None:
    picked = list(TaskVersion.objects.order_by("pk")[:2])
    wanted = {"task": [version.task_id for version in picked] + ["x"]}
    assert client(world, "viewer").post("/tasks/controls/run/", wanted).status_code == 403
    assert "data-tick" not in client(world, "viewer").get("/tasks/").content.decode()
    assert "data-tick" in client(world, "reviewer").get("/tasks/").content.decode()
    html = client(world, "reviewer").post("/tasks/controls/run/", wanted, follow=True).content.decode()
    assert "Validation of 2 tasks is queued" in html
    (asked,) = Outbox.objects.filter(task="tasks.run_controls").order_by("-pk")[:1]
    assert sorted(asked.kwargs["version_ids"]) == sorted(version.pk for version in picked)


def test_runs_are_compared(world: seed.World) -> None:
    operator = client(world)
    html = operator.get(f"/runs/compare/?run={world.run.pk}&run={world.other.pk}&run=999999&run=x").content.decode()
    assert "stage.max_off_policy_steps" in html
    assert "stage.group_size" not in html  # equal in both
    assert f"?run={world.other.pk}" in html  # leaves the first out
    assert html.count("/metrics/&quot;") >= 2
    assert "No run chosen" in operator.get("/runs/compare/").content.decode()
    many = "&".join(f"run={run.pk}" for run in Run.objects.all()) + "&run=1" * 20
    assert operator.get(f"/runs/compare/?{many}").status_code == 200


def test_environments_are_built_and_show_how_far_they_are(world: seed.World) -> None:
    operator, name = client(world), next(iter(locked_packages()))
    assert client(world, "viewer").post("/environments/build/", {"package": name}).status_code == 403
    assert "is not pinned" in operator.post("/environments/build/", {"package": "nope"}, follow=True).content.decode()
    assert "on its way" in operator.post("/environments/build/", {"package": name}, follow=True).content.decode()
    environment = Environment.objects.get(name=name)
    path = f"/environments/{environment.pk}/"
    html = operator.get(path).content.decode()
    for text in ("Waits for a build worker", "No build worker is alive", "no build has been measured here yet"):
        assert text in html, text
    taken = repositories.claim(environment_id=environment.pk, owner="build@seed/1", seconds=60)
    assert taken is not None
    assert "Building since" in operator.get(path).content.decode()
    repositories.fail(environment=environment, held=taken[1], cause="no space left")
    html = operator.get(path).content.decode()
    assert "no space left" in html
    assert "Build again" in html


def test_tokens_are_shown_once(world: seed.World) -> None:
    viewer = client(world, "viewer")
    answer = viewer.post("/tokens/", {"name": "nightly", "days": "30", "scopes": ["read"]})
    secret = re.search(r"oc_[\w-]{20,}", answer.content.decode())
    assert secret is not None
    assert answer["Cache-Control"] == "no-store"
    assert secret.group() not in viewer.get("/tokens/").content.decode()
    refused = viewer.post("/tokens/", {"name": "more", "days": "30", "scopes": ["operate"]})
    assert "not one of the available choices" in refused.content.decode()
    token = world.people["viewer"].tokens.get(name="nightly")
    assert client(world, "operator").post(f"/tokens/{token.pk}/revoke/").status_code == 404
    viewer.post(f"/tokens/{token.pk}/revoke/")
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_login_refuses_and_admits(world: seed.World) -> None:
    visitor = Client()
    assert (
        "User name or password is wrong"
        in visitor.post("/login/", {"username": "viewer", "password": "wrong"}).content.decode()
    )
    answer = visitor.post("/login/?next=/runs/", {"username": "viewer", "password": seed.PASSWORD, "next": "/runs/"})
    assert answer["Location"] == "/runs/"
    assert (
        visitor.post(
            "/login/", {"username": "viewer", "password": seed.PASSWORD, "next": "https://elsewhere.example/"}
        )["Location"]
        == "/"
    )
    assert visitor.post("/logout/")["Location"] == "/login/"
