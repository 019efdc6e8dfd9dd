"""Every page: who may see it, what it says, that hostile text stays text, and how often it asks the database."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from composer_web.accounts.models import User
from composer_web.ops.models import Outbox
from composer_web.repositories import services as repositories
from composer_web.repositories.building import locked_packages
from composer_web.repositories.models import Environment
from composer_web.rollouts.models import Finding, Rollout
from composer_web.rollouts.services import pump
from composer_web.runs.forms import default_values
from composer_web.runs.models import Run
from composer_web.runs.services import create_run
from composer_web.tasks.models import TaskVersion
from tests.browser import seed

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[seed.World]:
    """One seeded product for the whole module, in a transaction that is rolled back at its end."""
    with django_db_blocker.unblock(), transaction.atomic():  # type: ignore[attr-defined]
        yield seed.world(steps=12, groups=4)
        transaction.set_rollback(True)


def client(world: seed.World, role: str = "operator") -> Client:
    made = Client()
    made.force_login(world.people[role])
    return made


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
        "evals": "/evals/",
        "evaluation": f"/evals/{evaluation.pk}/",
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
        "/evals/999999/",
        "/environments/9/",
        f"/runs/{world.run.pk}/part/none/",
        "/nothing/",
    ):
        assert operator.get(path).status_code == 404, path


def test_hostile_trajectory_is_only_text(world: seed.World) -> None:
    rollout = Rollout.objects.filter(group__run=world.run, group__prompt_index=0).earliest("pk")
    pair = "&".join(f"pair={pk}" for pk in rollout.group.rollouts.values_list("pk", flat=True)[:2])
    for path in (
        f"/rollouts/{rollout.pk}/",
        f"/rollouts/{rollout.pk}/tokens/",
        f"/rollouts/{rollout.pk}/search/?q=<script>",
        f"/groups/{rollout.group_id}/?{pair}",
    ):
        html = client(world).get(path).content.decode()
        assert "<script>alert" not in html
        assert "<img src=x" not in html
    html = client(world).get(f"/rollouts/{rollout.pk}/").content.decode()
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5  # message, text, arguments, output, patch
    assert "{{ 7*7 }}" in html
    assert "cut the middle out of outputs in 1 turn " in html
    assert "4096 bytes cut by the harness" in html


def test_trajectory_shows_everything(world: seed.World) -> None:
    rollout = Rollout.objects.filter(group__run=world.run, verdict="failed").latest("pk")
    html = client(world).get(f"/rollouts/{rollout.pk}/").content.decode()
    for text in (
        "Turn 4",
        "edit_file",
        "old_string not found",
        "not found",
        "case-000",
        "of 6 cases failed",
        "length",
        "memory, processes, disk",
        "finished",
    ):
        assert text in html, text
    position = f"{rollout.sample + 1} of 8"
    assert position in html
    assert ('rel="prev"' in html) == (rollout.sample > 0)
    assert ('rel="next"' in html) == (rollout.sample < 7)


def test_a_long_trajectory_comes_in_windows(world: seed.World) -> None:
    rollout = Rollout.objects.get(group__run=world.run, group__prompt_index=1, sample=0)
    path, operator = f"/rollouts/{rollout.pk}/", client(world)
    html = operator.get(path).content.decode()
    assert html.count("data-turn=") == 20
    assert "Turns from 21 of 152" in html
    html = operator.get(f"{path}?turn=151").content.decode()
    assert 'id="t=151"' in html
    assert 'data-window="7"' in html
    later = operator.get(f"{path}turns/?at=60").content.decode()
    assert (later.count("data-turn="), 'data-window="3"' in later, "data-gap" in later) == (20, True, False)
    assert later.count('data-of="3"') == 20
    assert operator.get(f"{path}turns/?turn=x").status_code == 404
    assert "does not occur" in operator.get(f"{path}search/?q=zebra").content.decode()
    hits = operator.get(f"{path}search/?q=finish").content.decode()
    assert 'href="#t=151"' in hits


def test_chips_narrow_the_turns(world: seed.World) -> None:
    rollout = Rollout.objects.get(group__run=world.run, group__prompt_index=1, sample=0)
    path, operator = f"/rollouts/{rollout.pk}/", client(world)
    html = operator.get(f"{path}?only=tool:finish").content.decode()
    assert html.count("data-turn=") == 1
    assert 'data-only="tool:finish" aria-pressed="true"' in html
    window = operator.get(f"{path}turns/?only=tool:grep&at=40").content.decode()
    assert (window.count("data-turn="), 'data-total="75"' in window) == (20, True)
    assert 'data-turn="80"' in window
    assert "No turn is left" in operator.get(f"{path}?only=summaries,<script>").content.decode()
    one = operator.get(f"{path}turns/?one=151").content.decode()
    assert one.count("data-turn=") == 1
    assert operator.get(f"{path}turns/?one=152").status_code == 404


def test_rollouts_of_a_prompt_side_by_side(world: seed.World) -> None:
    group = Rollout.objects.get(group__run=world.run, group__prompt_index=1, sample=0).group
    first, second = group.rollouts.order_by("sample")[1:3]
    operator, path = client(world), f"/groups/{group.pk}/"
    html = operator.get(path).content.decode()
    assert html.count('name="pair"') == group.size
    assert "Their ways part in turn 3" in html
    assert "Part: tests" in html
    both = operator.get(f"{path}?pair={first.pk}&pair={second.pk}").content.decode()
    assert "Side by side</h2>" in both
    assert both.count("<h3>Turn 1</h3>") == 2
    assert "Side by side</h2>" not in operator.get(f"{path}?pair={first.pk}&pair=1").content.decode()
    assert operator.get("/groups/999999/").status_code == 404


def test_download_is_the_whole_trajectory(world: seed.World) -> None:
    rollout = Rollout.objects.filter(group__run=world.run).exclude(artifact_key="").latest("pk")
    answer = client(world).get(f"/rollouts/{rollout.pk}/download/")
    assert answer["Content-Disposition"] == f'attachment; filename="rollout-{rollout.pk}.json"'
    assert json.loads(b"".join(answer.streaming_content))["turns"][0]["calls"][0]["name"] == "grep"


def test_a_trajectory_leaves_as_a_page_as_lines_and_as_atif(world: seed.World) -> None:
    rollout = Rollout.objects.filter(group__run=world.run, group__prompt_index=0).earliest("pk")
    operator, path = client(world), f"/rollouts/{rollout.pk}/export/"
    answer = operator.get(f"{path}html/")
    html = b"".join(answer.streaming_content).decode()
    assert answer["Content-Disposition"] == f'attachment; filename="rollout-{rollout.pk}.html"'
    assert html.count("<h3>Turn ") == 4
    assert "default-src 'none'" in html
    assert "{{ 7*7 }}" in html
    assert not re.search(r"<(script|img|link|form|iframe)\b", html)
    lines = [json.loads(line) for line in b"".join(operator.get(f"{path}jsonl/").streaming_content).splitlines()]
    assert [line["type"] for line in lines] == ["trajectory", "turn", "turn", "turn", "turn", "segment"]
    assert lines[1]["calls"][0]["name"] == "grep"
    assert len(lines[5]["tokens"]) == len(lines[5]["logprobs"])
    atif = operator.get(f"{path}atif/").json()
    assert atif["schema_version"].startswith("ATIF-v1")
    assert operator.get(f"{path}docx/").status_code == 404
    assert operator.get("/rollouts/999999/export/html/").status_code == 404


def test_a_run_as_tasks_and_rollouts(world: seed.World) -> None:
    path, operator = f"/rollouts/waffle/{world.run.pk}/", client(world)
    html = operator.get(path).content.decode()
    assert html.count('aria-label="sample ') >= 32
    assert 'aria-label="sample 0: ' in html
    hardest = operator.get(f"{path}?sort=reward").content.decode()
    means = re.findall(r'of 8</td><td class="num">([-\d.]+)', hardest)
    assert means == sorted(means, key=float)
    assert operator.get("/rollouts/waffle/999999/").status_code == 404
    assert "No prompt of this run" in operator.get(f"/rollouts/waffle/{world.finished.pk}/").content.decode()


def test_open_rollout_says_so(world: seed.World) -> None:
    pump(run_id=world.run.pk)
    rollout = Rollout.objects.filter(group__run=world.run, verdict="").earliest("pk")
    html = client(world).get(f"/rollouts/{rollout.pk}/").content.decode()
    assert "its trajectory appears here turn by turn" in html
    assert client(world).get(f"/rollouts/{rollout.pk}/download/").status_code == 404


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
    assert operator.get("/rollouts/?verdict=bogus").status_code == 200
    assert "RL on small repositories" not in operator.get("/runs/?kind=midtrain").content.decode()
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


LISTS = ("/", "/runs/", "/rollouts/", "/findings/", "/tasks/", "/suites/", "/policies/", "/evals/", "/suites/train/")


def count_queries(visitor: Client, path: str) -> int:
    visitor.get(path)
    with CaptureQueriesContext(connection) as seen:
        assert visitor.get(path).status_code == 200
    return len(seen)


def test_query_counts_do_not_grow_with_rows(world: seed.World) -> None:
    operator = client(world)
    before = {path: count_queries(operator, path) for path in LISTS}
    run_before = count_queries(operator, f"/runs/{world.run.pk}/")
    for index in range(3):
        config = world.run.configuration.model_copy(update={"name": f"another {index}"})

        create_run(config=config, actor=world.people["operator"])
    seed.suite(f"more-{before['/']}", 12, purpose="benchmark")
    seed.curves(Run.objects.get(pk=world.run.pk), range(13, 15), draw=random.Random(1))
    assert {path: count_queries(operator, path) for path in LISTS} == before
    assert count_queries(operator, f"/runs/{world.run.pk}/") == run_before
    assert max(before.values()) <= 14, before
    assert run_before <= 22


def test_run_actions_need_an_operator_and_a_post(world: seed.World) -> None:
    pause = reverse("runs:action", args=[world.run.pk, "pause"])
    assert client(world, "viewer").post(pause).status_code == 403
    assert client(world).get(pause).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(world.people["operator"])
    assert strict.post(pause).status_code == 403
    assert Run.objects.get(pk=world.run.pk).state == "running"
    answer = client(world).post(pause, follow=True)
    assert "It pauses after the current step" in answer.content.decode()
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
    assert "controls of 2 tasks are on their way" in html
    (asked,) = Outbox.objects.filter(task="tasks.run_controls").order_by("-pk")[:1]
    assert sorted(asked.kwargs["version_ids"]) == sorted(version.pk for version in picked)


def test_runs_are_compared(world: seed.World) -> None:
    operator = client(world)
    html = operator.get(f"/runs/compare/?run={world.run.pk}&run={world.other.pk}&run=999999&run=x").content.decode()
    assert "stage.max_staleness" in html
    assert "stage.group_size" not in html  # equal in both
    assert f"?run={world.other.pk}" in html  # leaves the first out
    assert html.count("/metrics/&quot;") >= 2
    assert "No run chosen" in operator.get("/runs/compare/").content.decode()
    many = "&".join(f"run={run.pk}" for run in Run.objects.all()) + "&run=1" * 20
    assert operator.get(f"/runs/compare/?{many}").status_code == 200


def test_form_starts_from_a_run_a_checkpoint_or_a_preset(world: seed.World) -> None:
    operator = client(world)
    html = operator.get(f"/runs/new/?from={world.run.pk}").content.decode()
    assert "Everything as in run RL on small repositories" in html
    assert f'name="parent" value="{world.run.pk}"' in html
    html = operator.get(f"/runs/new/?from={world.run.pk}&policy=base@0").content.decode()
    assert 'value="base@0" selected' in html
    assert '<a href="#f-policy">Policy</a></dt><dd>base → base@0' in html
    assert operator.get("/runs/new/?from=999999").status_code == 404


def test_check_tells_changes_and_what_was_measured(world: seed.World) -> None:
    values = {**default_values(), "name": "changed", "preset": "rl-smoke", "stage": "rl"}
    values |= {"stage.rl.steps": "4", "stage.rl.groups_per_step": "2", "stage.rl.group_size": "4"}
    values |= {"stage.rl.max_in_flight_groups": "4", "stage.rl.optimizer.warmup_steps": "1"}
    body = client(world).post("/runs/new/check/", values).json()
    assert body["changes"]["stage.rl.steps"] == "3"
    assert "stage.rl.group_size" not in body["changes"]
    assert "Time, expected" in body["plan"]
    assert world.run.name in body["plan"]
    values = {**default_values(), "name": "new kind", "preset": "sft-toy", "stage": "sft"}
    assert "no time is guessed" in client(world).post("/runs/new/check/", values).json()["plan"]


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


def test_form_creates_a_run(world: seed.World) -> None:
    operator = client(world)

    values = {
        **default_values(),
        "name": "From the form",
        "stage": "rl",
        "stage.rl.steps": "2",
        "stage.rl.groups_per_step": "2",
        "stage.rl.max_in_flight_groups": "4",
        "action": "start",
    }
    answer = operator.post("/runs/new/", values)
    run = Run.objects.get(name="From the form")
    assert answer["Location"] == f"/runs/{run.pk}/"
    assert (run.state, run.kind, run.steps_total) == ("queued", "rl", 2)
    assert run.created_by == User.objects.get(username="operator")


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"stage.rl.steps": "many"}, "stage.rl.steps", "A whole number is needed; found &#x27;many&#x27;."),
        ({"stage.rl.sampling.temperature": "3"}, "stage.rl.sampling.temperature", "Must be &gt; 0, ≤ 2; found"),
        ({"name": ""}, "name", "This is needed"),
        ({"stage.rl.max_in_flight_groups": "99"}, "stage.rl.max_in_flight_groups", "needs max_staleness"),
        ({"stage.rl.steps": "4000"}, "stage.rl.suite", "has 64"),
        ({"policy": "nobody"}, "policy", "there is no policy"),
        ({"stage": "bogus"}, "stage", "does not match any of the expected tags"),
    ],
)
def test_form_shows_errors_at_the_field(world: seed.World, changes: dict[str, str], field: str, message: str) -> None:

    values = {**default_values(), "name": "wrong", "stage": "rl", "stage.rl.steps": "2", **changes}
    answer = client(world).post("/runs/new/", values)
    assert answer.status_code == 422
    html = answer.content.decode()
    place = html.index(f'data-field="{field}"')
    assert message in html[place : html.index("field__error", place) + 300]
    assert not Run.objects.filter(name="wrong").exists()
    checked = client(world).post("/runs/new/check/", values).json()
    assert checked["errors"][field]


def test_check_says_what_will_run(world: seed.World) -> None:

    values = {
        **default_values(),
        "name": "plan",
        "stage": "rl",
        "stage.rl.steps": "3",
        "stage.rl.groups_per_step": "4",
        "stage.rl.max_in_flight_groups": "8",
    }
    body = client(world).post("/runs/new/check/", values).json()
    assert body["errors"] == {}
    assert "12 prompts × 8" in body["plan"]
    assert "toy" in body["plan"]
    assert client(world, "viewer").post("/runs/new/check/", values).status_code == 403


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
