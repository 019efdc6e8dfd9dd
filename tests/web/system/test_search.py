"""What the command palette finds, for whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.evals.models import Evaluation
from composer_web.policies.models import Policy
from composer_web.runs import services
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite, Task

pytestmark = pytest.mark.django_db
Ask = Callable[..., dict[str, list[dict[str, Any]]]]


@pytest.fixture
def ask(people: dict[str, User]) -> Ask:
    def search(q: str, *, who: str = "operator", here: str = "/") -> dict[str, list[dict[str, Any]]]:
        client = Client()
        client.force_login(people[who])
        answer = client.get("/search/", {"q": q, "here": here})
        assert answer.status_code == 200
        return {group["title"]: group["items"] for group in answer.json()["groups"]}

    return search


def test_everything_is_found_by_its_name(ask: Ask, running: Run) -> None:
    assert [hit["url"] for hit in ask("SMALL")["Runs"]] == [f"/runs/{running.pk}/"]
    assert [hit["url"] for hit in ask(f"#{running.pk}")["Runs"]] == [f"/runs/{running.pk}/"]
    assert ask("base")["Policies"][0]["url"] == "/policies/base/"
    assert ask("train")["Suites"][0]["url"] == "/suites/train/"
    slug = Task.objects.values_list("slug", flat=True)[0]
    assert f"/tasks/{slug}/" in [hit["url"] for hit in ask(slug)["Tasks"]]
    assert ask("alert rule")["Pages"][0]["url"] == "/alerts/rules/"
    assert ask("dark")["Actions"][0]["command"] == "theme"
    assert ask("nothing is called like this") == {}


def test_rollouts_are_found_by_their_task_and_evaluations_by_what_they_measure(ask: Ask, running: Run) -> None:
    slug = Task.objects.values_list("slug", flat=True)[0]
    of_task = {hit["title"]: hit["url"] for hit in ask(slug)["Rollouts"]}
    assert of_task[f"Rollouts of {slug}"] == f"/rollouts/?task={slug}"
    here = {hit["title"]: hit for hit in ask(slug, here=f"/runs/{running.pk}/charts/")["Rollouts"]}
    assert here[f"Rollouts of {slug}"]["url"] == f"/rollouts/?task={slug}&run={running.pk}"
    assert here[f"Rollouts of {slug}"]["detail"] == f"in {running.name}"
    evaluation = Evaluation.objects.create(
        policy=Policy.objects.get(name="base"), version=1, suite=Suite.objects.get(name="train"), tasks=1, samples=1,
        temperature=1.0, phase="alone",
    )  # fmt: skip
    for text in ("base", "trai", str(evaluation.pk)):
        assert f"/evaluations/{evaluation.pk}/" in [hit["url"] for hit in ask(text)["Evaluations"]]


def test_without_a_text_recent_runs_actions_and_pages_are_offered(ask: Ask, running: Run) -> None:
    found = ask("")
    assert list(found) == ["Runs", "Actions", "Pages"]
    assert found["Runs"][0]["title"] == running.name


def test_actions_of_the_run_of_the_page_are_for_operators(ask: Ask, running: Run) -> None:
    here = f"/runs/{running.pk}/charts/"
    (stop,) = [hit for hit in ask("stop", here=here)["This run"] if hit["title"].startswith("Stop")]
    assert stop["post"] and stop["confirm"] and stop["url"] == f"/runs/{running.pk}/stop/"
    assert "This run" not in ask("stop", who="viewer", here=here)
    assert "Actions" not in ask("new run", who="viewer")
    services.cancel_run(run=running)
    assert "This run" not in ask("stop", here=here)
    assert "This run" not in ask("stop", here="/runs/999999/")


@pytest.mark.parametrize("text", ["\x00", "²", "9" * 40, "%", "_", "'"])
def test_odd_texts_find_nothing_and_break_nothing(ask: Ask, running: Run, text: str) -> None:
    assert "Rollouts" not in ask(text)
