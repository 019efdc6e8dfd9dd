"""The home page: headlines, curves, what needs attention, failures as they end, and the way out of an empty installation."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import User
from composer_web.core.models import Outbox
from composer_web.policies.models import Policy
from composer_web.runs import metrics, services
from composer_web.runs.charts.curves import POINTS, Curves, curves
from composer_web.runs.models import Run
from composer_web.system import demo, home
from composer_web.tasks.models import Suite
from composer_web.ui.templatetags.curves import curve

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(people: dict[str, User]) -> Client:
    client = Client()
    client.force_login(people["operator"])
    return client


def test_a_headline_compares_the_first_and_the_newest_measurement(running: Run) -> None:
    assert home.headline(running, Curves(held_out=[(0, 0.242)])) is None
    found = home.headline(running, Curves(held_out=[(0, 0.242), (40, 0.75)]))
    assert found == home.Headline("Held-out pass@1", "24.2", "75.0\u202f%", "+50.8 points", True)
    worse = home.headline(running, Curves(held_out=[(0, 0.5), (40, 0.25)]))
    assert worse is not None and worse.change == "−25.0 points" and not worse.better
    loss = home.headline(Run(kind="sft"), Curves(held_out=[(0, 2.0), (9, 1.5)]))
    assert loss is not None and loss.change == "−0.500" and loss.better, "less loss is better"


def test_a_long_curve_is_thinned_and_ends_with_the_newest_value(running: Run) -> None:
    rows = [(step, "reward/mean", step / 1000) for step in range(1, 1001)] + [(500, "eval/pass1", 0.5)]
    metrics.record_many(run=running, rows=[*rows, (1001, "reward/mean", 0.25)])
    services.set_progress(run=running, step=1001)
    with CaptureQueriesContext(connection) as seen:
        found = curves([running])[running.pk]
    assert len(seen) == 1
    assert POINTS / 2 < len(found.main) <= 2 * POINTS
    assert found.main[-1] == (1001, 0.25) == (running.step, running.latest["reward/mean"]), "as the run's tile says"
    assert found.held_out == [(500, 0.5)], "a measurement is never thinned away"


def test_the_page_shows_a_run_what_is_wrong_and_where(running: Run, operator: Client) -> None:
    rows = [(step, "groups/zero_signal", 1.0) for step in range(1, 9)]
    metrics.record_many(run=running, rows=[*rows, (0, "eval/pass1", 0.242), (8, "eval/pass1", 0.75)])
    services.set_progress(run=running, step=8)
    html = operator.get("/").content.decode()
    assert "24.2 → 75.0" in html and "+50.8 points" in html
    assert "need" in html and "Zero-advantage groups" in html
    assert f'href="/rollouts/waffle/{running.pk}/"' in html, "one click from the cause"
    assert f"run:{running.pk}" in html and "Get started" not in html
    viewer = operator.get("/", headers={"HX-Request": "true"}).content.decode()
    assert viewer.lstrip().startswith('<div id="home"')


def test_without_a_run_the_page_says_what_to_do(operator: Client, people: dict[str, User]) -> None:
    html = operator.get("/").content.decode()
    assert "Get started" in html and "Load sample data" in html
    viewer = Client()
    viewer.force_login(people["viewer"])
    assert "Load sample data" not in viewer.get("/").content.decode()
    assert viewer.post("/sample/").status_code == 403


def test_sample_data_is_asked_for_once_and_makes_a_run_possible(
    operator: Client, django_capture_on_commit_callbacks: Any
) -> None:
    answer = operator.post("/sample/", follow=True)
    assert "Creating the sample policy" in answer.content.decode()
    assert "creating sample data" in operator.get("/").content.decode()
    assert Outbox.objects.filter(task="ops.sample_data").count() == 1
    demo.sample_data()
    assert Policy.objects.filter(name="base", toy=True).exists()
    assert set(Suite.objects.values_list("name", flat=True)) == {"train", "held-out"}
    html = operator.get("/").content.decode()
    assert "Load sample data" not in html and "Start a run" in html


def test_failures_are_fetched_apart(operator: Client) -> None:
    assert "No rollout of a run has failed" in operator.get("/failures/").content.decode()


def test_a_curve_says_what_it_shows() -> None:
    html = curve([(1, 0.2), (9, 0.6)], "Held-out pass@1", "%")
    assert "Held-out pass@1: from 20\u202f% at step 1 to 60\u202f% at step 9" in html
    assert html.count("h0") == 2, "few measurements are marked one by one"
    assert curve([(step, 0.5) for step in range(100)], "Reward").count("h0") == 1
    assert "No measurement yet" in curve([], "Reward")
    assert "<script" not in curve([(1, 1.0)], "<script>")
