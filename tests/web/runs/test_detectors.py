"""Detectors of runs: each condition at its threshold, what they read, and where an insight leads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.core import detectors
from composer_web.runs import metrics, services
from composer_web.runs.detectors import efficiency, remedies, signal
from composer_web.runs.detectors.series import RunSeries, live_series
from composer_web.runs.models import Run


def series(**values: list[float]) -> RunSeries:
    return RunSeries(Run(pk=1, name="r", state="running"), {name.replace("__", "/"): v for name, v in values.items()})


@pytest.mark.parametrize(
    ("condition", "metric", "quiet", "loud"),
    [
        (signal.zero_advantage, "groups__zero_signal", [0.6] * 8, [0.1] * 20 + [0.8] * 8),
        (signal.entropy_collapse, "policy__entropy", [0.5] * 8 + [0.2] * 4, [0.5] * 8 + [0.1] * 4),
        (signal.rising_mismatch, "mismatch__k3_mean", [1e-4] * 8 + [9e-4] * 4, [5e-4] * 8 + [2e-3] * 4),
        (signal.truncated, "truncated", [0.2] * 8, [0.4] * 8),
        (signal.saturated, "groups__solved_all", [0.7] * 8, [0.9] * 8),
        (signal.no_calls, "calls__mean", [0.1] * 8, [4.0] * 4 + [0.0] * 8),
        (efficiency.idle_trainer, "idle__trainer", [0.5] * 8, [0.7] * 8),
    ],
)
def test_a_condition_holds_beyond_its_threshold_only(
    condition: Any, metric: str, quiet: list[float], loud: list[float]
) -> None:
    assert condition(series()) is None, "nothing is known"
    assert condition(series(**{metric: quiet})) is None
    assert condition(series(**{metric: loud[-2:]})) is None, "two points say nothing"
    assert condition(series(**{metric: loud}))


def test_a_short_run_is_judged_by_all_its_steps() -> None:
    found = series(groups__zero_signal=[1.0, 1.0])
    found.run.steps_total = 2
    assert "the last 2 steps" in (signal.zero_advantage(found) or "")


def test_an_entropy_that_was_low_from_the_start_has_not_collapsed() -> None:
    assert signal.entropy_collapse(series(policy__entropy=[0.01] * 8 + [0.001] * 4)) is None


def test_groups_that_are_all_solved_are_saturated_and_not_without_signal() -> None:
    found = series(groups__zero_signal=[0.9] * 8, groups__solved_all=[0.9] * 8)
    assert signal.saturated(found) and signal.zero_advantage(found) is None


@pytest.mark.parametrize(
    ("more", "remedy"),
    [
        ({"groups__solved_none": [1.0] * 8}, "run SFT first"),
        ({"groups__solved_none": [0.3] * 8}, "harder tasks"),
        ({"calls__mean": [0.0] * 8}, "chat template"),
        ({"truncated": [0.8] * 8, "stop__token_limit": [0.7] * 8, "stop__turn_limit": [0.1] * 8}, "max_context_tokens"),
        ({"truncated": [0.8] * 8, "stop__turn_limit": [0.8] * 8}, "max_turns"),
    ],
)
def test_what_to_do_without_a_signal_depends_on_its_cause(more: dict[str, list[float]], remedy: str) -> None:
    assert remedy in remedies.signal(series(groups__zero_signal=[0.9] * 8, **more))


def test_a_run_without_progress_is_one_that_waits_far_longer_than_a_step_takes() -> None:
    run = Run(pk=1, name="r", state="running", wanted_step=4, wanted_at=timezone.now() - timedelta(minutes=20))
    assert "step 4" in (efficiency.stalled(RunSeries(run, {"time/step": [30.0]})) or "")
    assert efficiency.stalled(RunSeries(run, {"time/step": [300.0]})) is None, "its steps are that long"
    run.wanted_at = None
    assert efficiency.stalled(RunSeries(run, {"time/step": [30.0]})) is None, "it computes"


@pytest.mark.django_db
def test_an_engine_is_stale_beyond_the_lag_that_the_run_allows(running: Run) -> None:
    running.policy_version, running.latest = 9, {"sync/version": 0.0}
    assert "version 0" in (efficiency.stale_engine(RunSeries(running)) or "")
    running.latest = {"sync/version": 8.0}
    assert efficiency.stale_engine(RunSeries(running)) is None


@pytest.mark.django_db
def test_detectors_read_the_last_steps_of_live_runs_at_once(running: Run) -> None:
    rows = [(step, "groups/zero_signal", 1.0 if step > 70 else 0.0) for step in range(1, 81)]
    metrics.record_many(run=running, rows=rows)
    services.set_progress(run=running, step=80)
    (found,) = live_series(["groups/zero_signal", "policy/entropy"])
    assert found.run == running and len(found.values["groups/zero_signal"]) == 60 + 8, "the last, and the first"
    with CaptureQueriesContext(connection) as seen:
        here = {one.detector.name: one.insight for one in detectors.found()}
    assert here["zero-advantage"].url == f"/rollouts/waffle/{running.pk}/"
    assert here["zero-advantage"].about == f"run:{running.pk}" and here["zero-advantage"].run == running.name
    assert len(seen) <= 9, "not two for each detector"
    with CaptureQueriesContext(connection) as seen:
        about = detectors.about_run(running)
    assert [one.insight for one in about] == [here["zero-advantage"]], "a run's page shows what home shows of it"
    assert len(seen) <= 3
    services.mark_failed(run=running, cause="out of memory")
    here = {one.detector.name: one.insight for one in detectors.found()}
    assert "zero-advantage" not in here, "it no longer runs"
    assert "out of memory" in here["run-failed"].message
    assert {one.detector.name for one in detectors.about_run(Run.objects.get(pk=running.pk))} == {
        "run-failed",
        "zero-advantage",
    }


@pytest.mark.django_db
def test_a_runs_page_shows_hardware_conditions_with_their_cause_and_tones_their_figure(
    running: Run, people: dict[str, User]
) -> None:
    metrics.record_many(run=running, rows=[(step, "idle/trainer", 0.9) for step in range(1, 9)])
    services.set_progress(run=running, step=8)
    client = Client()
    client.force_login(people["viewer"])
    html = client.get(f"/runs/{running.pk}/").content.decode()
    assert "Idle trainer" in html and "waited for rollouts for 90%" in html
    assert f'class="attention__row" href="/runs/{running.pk}/system/"' in html
    assert html.count("figure--warn") == 1
    part = client.get(f"/runs/{running.pk}/part/status/").content.decode()
    assert "Idle trainer" in part, "and it is live"


def test_every_detector_says_what_it_looks_for() -> None:
    known = detectors.detectors()
    assert len(known) >= 12 and len({one.name for one in known}) == len(known)
    for one in known:
        assert len(one.meaning) > 40 and one.meaning.endswith("."), one.name
        assert len(one.name) <= 40
