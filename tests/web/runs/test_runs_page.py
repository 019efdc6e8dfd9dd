"""The run page's parts: events on the axes, where the time goes, clusters, lineage; and settings side by side."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.alerts.models import Alert
from composer_web.alerts.rules import services as alerts
from composer_web.alerts.rules import watching
from composer_web.core import inference
from composer_web.core.models import WorkerHeartbeat
from composer_web.evals import services as evals
from composer_web.policies.models import Policy
from composer_web.runs import lineage, metrics, services
from composer_web.runs.charts import annotations as run_annotations
from composer_web.runs.charts import panels, timing
from composer_web.runs.charts.axes import Axis
from composer_web.runs.detectors import insights
from composer_web.runs.models import Run
from composer_web.runs.training import clusters
from tests.web.making import SMALL
from trainer.config import MidtrainConfig, RunConfig, SFTConfig
from trainer.inference.contract import (
    DeploymentStatus,
    EngineStatus,
    InferenceError,
    ServerHealth,
    ServerStatus,
    SyncTimings,
)
from trainer.learning.metrics import describe

pytestmark = pytest.mark.django_db


@pytest.fixture
def pages(people: dict[str, User]) -> Client:
    client = Client()
    client.force_login(people["viewer"])
    return client


@pytest.fixture
def busy(running: Run) -> Run:
    """Two steps trained, with what happened meanwhile."""
    rows = [(step, "tokens/trained", 100.0 * step) for step in (1, 2)]
    rows += [(2, "sync/version", 1.0), (2, "time/step", 10.0), (1, "time/step", 10.0)]
    metrics.record_many(run=running, rows=rows)
    services.add_event(run=running, kind="checkpoint", message="checkpoint of step 1 saved", step=1)
    services.add_event(run=running, kind="note", message="only a note", step=1)
    services.add_event(run=running, kind="infra", level="warning", message="lost one", step=2)
    return running


def test_events_lie_on_every_axis(busy: Run, pages: Client) -> None:
    found = [(mark.kind, mark.step, mark.x) for mark in run_annotations.of_run(busy, Axis.STEP).marks]
    assert found == [("checkpoint", 1, 1.0), ("alert", 2, 2.0), ("sync", 2, 2.0)] or found == [
        ("checkpoint", 1, 1.0),
        ("sync", 2, 2.0),
        ("alert", 2, 2.0),
    ]
    tokens = {mark.kind: mark.x for mark in run_annotations.of_run(busy, Axis.TOKENS).marks}
    assert tokens == {"checkpoint": 100.0, "alert": 300.0, "sync": 300.0}
    assert all(0 <= mark.x < 600 for mark in run_annotations.of_run(busy, Axis.TIME).marks)
    answer = pages.get(f"/runs/{busy.pk}/marks/?axis=tokens").json()
    assert [mark["x"] for mark in answer["marks"]] == [100.0, 300.0, 300.0]
    assert pages.get(f"/runs/{busy.pk}/marks/?axis=place").status_code == 422


def test_what_a_rule_raises_is_a_mark_where_it_began(busy: Run, pages: Client, people: dict[str, User]) -> None:
    metrics.record(run=busy, step=2, values={"reward/mean": 0.1})
    services.set_progress(run=busy, step=2)
    alerts.make_rule(
        actor=people["operator"],
        name="it sinks",
        kind="metric",
        metric="reward/mean",
        comparison="below",
        threshold=0.5,
    )
    alerts.make_rule(actor=people["operator"], name="silent", kind="worker_gone")
    long_ago = timezone.now() - timedelta(hours=1)
    WorkerHeartbeat.objects.create(name="w1", kind="worker", pid=1, started_at=long_ago, beat_at=long_ago)
    assert watching.look() == 2
    metrics.record(run=busy, step=3, values={"reward/mean": 0.05, "tokens/trained": 300.0})
    services.set_progress(run=busy, step=3)
    assert watching.look() == 2, "it goes on, and is still the same alert"
    asked = pages.get(f"/runs/{busy.pk}/marks/?axis=tokens").json()["marks"]
    raised = [mark for mark in asked if mark["kind"] == "alert" and mark["text"] != "lost one"]
    assert [(mark["step"], mark["x"]) for mark in raised] == [(2, 300.0)]
    assert raised[0]["text"].startswith("it sinks: reward/mean of run")
    alert = Alert.objects.get(about=f"run:{busy.pk}")
    alerts.over(alert=alert)
    assert [m.step for m in run_annotations.of_run(busy, Axis.STEP).marks if m.text.startswith("it sinks")] == [2]


def test_evaluations_are_marks_and_crowds_are_bounded(busy: Run, make_suite, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    make_suite("held-out", 2)
    measured = RunConfig(name="measured", stage=SMALL.model_copy(update={"eval_suite": "held-out"}))
    run = services.start_run(run=services.create_run(config=measured))
    services.mark_running(run=run, owner="trainer@test")
    assert evals.for_version(run=run, version=0) is not None
    assert [m.text for m in run_annotations.of_run(run, Axis.STEP).marks if m.kind == "eval"] == [
        "evaluation of version 0"
    ]
    monkeypatch.setattr(run_annotations, "MAX", 2)
    for step in (3, 4, 5):
        services.add_event(run=busy, kind="checkpoint", message="saved", step=step)
    found = run_annotations.of_run(busy, Axis.STEP)
    assert [m.step for m in found.marks if m.kind == "checkpoint"] == [4, 5] and found.left_out == 2


def test_shares_of_time_add_up(busy: Run, pages: Client) -> None:
    assert timing.breakdowns(busy)[1] == []  # a whole without parts explains nothing
    values = {"time/wait_for_batch": 6.0, "time/forward_backward": 3.0, "time/optimizer": 0.5}
    services.set_progress(run=busy, step=2)
    for step in (1, 2):
        metrics.record(run=busy, step=step, values=values)
    metrics.record(run=busy, step=2, values={"time/checkpoint": 0.6, "time/episode": 2.0, "time/generate": 3.0})
    steps, (step_, episode) = timing.breakdowns(busy)
    assert steps == 2 and step_.seconds == 10.0
    shares = {part.label: round(part.share, 3) for part in step_.parts}
    assert shares == {
        "Waits for rollouts": 0.6,
        "Forward and backward": 0.3,
        "Optimizer": 0.05,
        "Writes checkpoints": 0.03,
        "Other": 0.02,
    }
    assert [part.idle for part in step_.parts] == [True, False, False, False, False]
    assert step_.parts[-1].start + step_.parts[-1].share == pytest.approx(1.0)
    assert [part.share for part in episode.parts] == [1.0]  # parts that overlap never draw beyond the bar
    html = pages.get(f"/runs/{busy.pk}/part/timing/").content.decode()
    assert "Waits for rollouts 60" in html and 'class="bar__idle"' in html


def serving(run: Run, version: int) -> ServerHealth:
    sync = SyncTimings(
        version=version, kind="delta", bytes=2048, fetch=0.5, decode=0.1, pause=0.02, apply=0.01, resume=0.01
    )
    mine = DeploymentStatus(
        name=f"run-{run.pk}", version=version, digest="d", state="serving", follow=True, running=3, last_sync=sync,
        cache_share=0.375,
    )  # fmt: skip
    other = mine.model_copy(update={"name": "run-99999"})
    servers = [ServerStatus(url="http://a", ok=True, deployment=mine.name), ServerStatus(url="http://b", ok=True)]
    return ServerHealth(ok=True, engine="embedded", deployments=[mine, other], servers=servers)


def test_the_board_says_which_cluster_serves_what(running: Run, pages: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    services.record_version(run=running, version=3)
    monkeypatch.setattr(inference, "health", lambda **_: serving(running, 1))
    found = clusters.board(running)
    assert [(one.version, one.behind) for one in found.clusters] == [(1, 2)]
    assert [server.url for server in found.servers] == ["http://a"]
    html = pages.get(f"/runs/{running.pk}/part/clusters/").content.decode()
    assert "version 1" in html and "delta, 2.0 KiB" in html and "500 ms" in html
    values = clusters.sync_metrics(found.status)
    assert values["sync/bytes"] == 2048.0 and values["sync/pause"] == 0.02
    assert found.clusters[0].phases == [0.5, 0.1, 0.0, 0.02, 0.01, 0.01] and len(found.heads) == 6
    assert ">Apply<" in html and ">Resume<" in html
    assert clusters.sync_metrics(None) == {}
    meter = clusters.EngineMeter()
    told = meter.metrics(serving(running, 1), found.status)
    assert (told["idle/rollouts"], told["cache/used"]) == (1.0, 0.375) and told.keys() > values.keys()
    assert meter.metrics(serving(running, 1), None).keys() == {"idle/rollouts", "speed/generate_tokens"}
    for name in told:
        describe(name)
    metrics.record(run=running, step=1, values=values)
    running.refresh_from_db()

    def down(**_: object) -> ServerHealth:
        raise InferenceError("nobody answers; start it")

    monkeypatch.setattr(inference, "health", down)
    html = pages.get(f"/runs/{running.pk}/part/clusters/").content.decode()
    assert "nobody answers; start it" in html and "Last weight sync: version 1, 2.0 KiB; fetch 500 ms" in html


def test_the_slowest_engine_is_told_by_seconds_that_count_once() -> None:
    """What is within the pause is no time beside it."""
    paused = SyncTimings(version=1, kind="delta", pause=0.5, apply=0.4, resume=0.1)
    fetched = SyncTimings(version=1, kind="delta", fetch=0.6, pause=0.1, apply=0.1)
    engines = [EngineStatus(url=str(n), version=1, last_sync=sync) for n, sync in enumerate((paused, fetched))]
    status = DeploymentStatus(name="run-1", version=1, digest="d", state="serving", follow=True, engines=engines)
    (cluster,) = clusters.clusters(status, 1)
    assert cluster.last_sync == fetched


def test_each_cluster_behind_a_router_has_timings_of_its_own(
    running: Run, pages: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def engine(url: str, cluster: str, version: int, pause: float) -> EngineStatus:
        sync = SyncTimings(version=version, kind="delta", bytes=2048, pause=pause)
        return EngineStatus(url=url, cluster=cluster, version=version, last_sync=sync)

    engines = [
        engine("http://a", "near", 3, 0.02),
        engine("http://b", "near", 3, 0.04),
        engine("http://c", "far", 1, 0.75),
    ]
    services.record_version(run=running, version=3)
    health = serving(running, 1)
    health.deployments[0] = health.deployments[0].model_copy(update={"engines": engines})
    monkeypatch.setattr(inference, "health", lambda **_: health)
    found = [(one.name, one.version, one.behind, one.engines) for one in clusters.board(running).clusters]
    assert found == [("far", 1, 2, 1), ("near", 3, 0, 2)]
    html = pages.get(f"/runs/{running.pk}/part/clusters/").content.decode()
    assert "750 ms" in html and "40 ms" in html and "2 engines" in html
    values = clusters.sync_metrics(health.deployments[0])
    assert (values["sync/pause/far"], values["sync/pause/near"], values["sync/version/far"]) == (0.75, 0.04, 1.0)
    assert values["sync/pause"] == 0.02, "as the engine that is asked says of all"
    assert describe("sync/pause/far").unit == "s"


def test_what_engines_count_is_told_as_the_change_since_the_last_step(running: Run) -> None:
    def look(*counts: tuple[int, int, int], guessed: int = 0, accepted: int = 0) -> dict[str, float]:
        engines = [
            EngineStatus(
                url=f"http://{number}", version=1, cache_share=(number + 1) / 10,
                prompt_tokens=read, reused_tokens=reused, preemptions=preempted,
                draft_tokens=guessed, accepted_tokens=accepted,
            )
            for number, (read, reused, preempted) in enumerate(counts)
        ]  # fmt: skip
        health = serving(running, 1)
        status = health.deployments[0].model_copy(update={"engines": engines})
        values = meter.metrics(health, status)
        return {name: value for name, value in values.items() if name.startswith(("cache/", "speculation/"))}

    meter = clusters.EngineMeter()
    assert look((100, 90, 5), (0, 0, 0)) == {"cache/used": 0.2, "cache/used_min": 0.1}
    assert look((300, 100, 6), (200, 190, 0)) == {
        "cache/used": 0.2, "cache/used_min": 0.1, "cache/prefix_hits": 0.5, "cache/prefix_hits_min": 0.05,
        "cache/prefix_hits_max": 0.95, "cache/preemptions": 1.0, "cache/preemptions_min": 0.0, "cache/preemptions_max": 1.0,
    }  # fmt: skip
    assert look((40, 10, 2)) == {"cache/used": 0.1, "cache/prefix_hits": 0.25, "cache/preemptions": 2.0}, (
        "it began anew"
    )
    for name in look((50, 20, 2), (1, 1, 1)):
        describe(name)
    told = look((50, 20, 2), (1, 1, 1), guessed=40, accepted=10)
    assert told["speculation/accepted"] == 0.25
    assert look((51, 20, 2), (1, 1, 1), guessed=60, accepted=20)["speculation/accepted"] == 0.5


def test_the_engine_is_idle_for_the_share_of_the_step_in_which_it_computed_nothing(
    running: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of the seconds before the step ended, in which it had often sampled all that the step might use."""
    clock = iter((1000.0, 1200.0, 1250.0, 1350.0))
    monkeypatch.setattr(clusters.time, "monotonic", lambda: next(clock))
    meter = clusters.EngineMeter()

    def told(seconds: float, tokens: int) -> tuple[float, float]:
        counted = {"busy_share": 0.25, "tokens_per_second": 3.0, "busy_seconds": seconds, "sampled_tokens": tokens}
        found = meter.metrics(serving(running, 1).model_copy(update=counted), None)
        return found["idle/rollouts"], found["speed/generate_tokens"]

    assert told(500.0, 90_000) == (0.75, 3.0), "nothing to compare with: its last seconds"
    assert told(650.0, 100_000) == (0.25, 50.0)
    assert told(1.0, 40) == (0.75, 3.0), "it began anew"
    assert told(101.0, 1040) == (0.0, 10.0)


def test_lineage_goes_back_to_the_beginning(draft: Run, people: dict[str, User], pages: Client) -> None:
    middle = services.create_run(config=RunConfig(name="middle", stage=SMALL), parent=draft)
    last = services.create_run(config=RunConfig(name="last", stage=SMALL), parent=middle)
    found = lineage.lineage(last)
    assert [run.name for run in found.ancestors] == ["middle", "small"]
    assert [(use, suite.name) for use, suite in found.suites] == [("Trains on", "train")]
    assert (found.environments, found.bare_tasks) == ([], 12)
    assert found.start is not None and found.start.kind == "base"
    assert [run.name for run in lineage.lineage(middle).children] == ["last"]
    html = pages.get(f"/runs/{last.pk}/part/lineage/").content.decode()
    assert f'href="/runs/{draft.pk}/"' in html and "12 tasks with files of their own" in html


def test_twelve_plots_first_and_the_rest_behind_the_search() -> None:
    first = panels.headline("rl")
    assert len(first) == 12
    shown = {key for panel in first for key in panel.shown}
    # Reward beside best of K; groups without signal; ends and losses by reason; mismatch, effective samples, masked tokens;
    # entropy and gradient; lag and dropped groups; idle shares, speed, MFU; the KV cache; weight sync; score; lengths.
    assert shown >= {
        "reward/mean", "reward/best_of_k", "groups/zero_signal", "stop/turn_limit", "stop/token_limit", "infra/retries",
        "mismatch/k3_mean", "mismatch/k3_p99", "correction/ess", "correction/masked_share", "policy/entropy",
        "optim/grad_norm", "staleness/mean", "staleness/max", "groups/dropped", "idle/trainer", "idle/rollouts",
        "speed/generate_tokens", "speed/train_tokens", "speed/mfu", "cache/used", "cache/used_min", "cache/prefix_hits",
        "cache/prefix_hits_min", "cache/preemptions", "sync/bytes", "weights/changed", "sync/fetch", "sync/pause",
        "sync/apply", "eval/pass1", "tokens/total/passed", "tokens/total/failed", "turns/passed", "turns/failed",
    }  # fmt: skip
    for panel in [*first, *panels.headline("sft")]:
        assert len({describe(key).unit for key in panel.keys}) == 1, panel.title
        assert len({describe(key).unit for key in panel.right}) <= 1, panel.title
        assert all(line["label"] for line in json.loads(panel.series))
    rest = panels.further(first, ["rl"], ["turns/mean", "calls/mean", "reward/mean", "kl/k1", "speed/mfu"])
    assert [panel.title for panel in rest] == ["Turns and calls", "KL to the reference"]
    assert [panel.keys for panel in panels.further([], ["sft"], ["turns/mean"])] == [("turns/mean",)]


def test_a_panel_shows_the_members_of_its_family_that_a_run_has() -> None:
    recorded = {f"reward/source/{name}": value for name, value in (("mining", 0.2), ("mutation", 0.5))}
    recorded |= {f"sync/{phase}/{name}": 1.0 for phase in ("fetch", "pause", "apply", "wait") for name in ("a", "b")}
    first = {panel.title: panel for panel in panels.headline("rl", recorded)}
    labels = [line["label"] for line in json.loads(first["Reward"].series)]
    assert labels == ["mean", "best of K", "mining", "mutation"]
    assert first["Weight sync"].keys == tuple(f"sync/{p}/{n}" for p in ("fetch", "pause", "apply") for n in "ab")
    assert json.loads(first["Weight sync"].series)[3] == {"key": "sync/pause/b", "label": "pause, b"}
    alone = panels.headline("rl", {"reward/source/mining": 0.2})  # one source says what the whole says
    assert alone[0].keys == ("reward/mean", "reward/best_of_k")
    many = panels.headline("rl", {f"reward/source/{n}": n / 10 for n in range(9)})[0].keys
    assert many[2:] == tuple(f"reward/source/{n}" for n in range(3, 9)), "those with most"


def test_runs_over_each_other_have_a_panel_for_each_axis() -> None:
    titles = [panel.title for panel in panels.overlaid(["rl", "rl"])]
    assert titles.count("Throughput and idle time") == titles.count("Idle shares and MFU") == 1
    assert not any(panel.right for panel in panels.overlaid(["rl", "sft"]))
    assert all(len(panel.keys) <= 5 for panel in panels.overlaid(["rl"]))


def test_a_page_of_hundreds_of_metrics_brings_the_headlines_alone(busy: Run, pages: Client) -> None:
    metrics.record(run=busy, step=3, values={f"other/{n}": float(n) for n in range(200)})
    html = pages.get(f"/runs/{busy.pk}/charts/").content.decode()
    assert (html.count("data-chart "), html.count("data-further")) == (12, 0)
    assert "203 more metrics" in html
    rest = pages.get(f"/runs/further/?run={busy.pk}").content.decode()
    assert rest.count("data-further") == 203
    assert "Find a metric" in rest
    assert pages.get("/runs/further/?run=x&run=999999").content.decode().count("data-chart ") == 0
    assert Client().get(f"/runs/further/?run={busy.pk}").status_code == 302


def test_settings_side_by_side_only_those_that_differ(draft: Run, pages: Client) -> None:
    stage = SMALL.model_copy(
        update={"group_size": 4, "optimizer": SMALL.optimizer.model_copy(update={"max_grad_norm": 2.0})}
    )
    other = services.create_run(config=RunConfig(name="other", stage=stage))
    path = f"/runs/compare/?run={draft.pk}&run={other.pk}"
    assert "runframe" not in pages.get(path).content.decode()
    framed = pages.get(f"{path}&from={other.pk}").content.decode()
    assert f'data-frame-run="{other.pk}"' in framed, "opened from a run, it keeps the run's tabs"
    assert f"from={other.pk}" in framed.partition('aria-label="Leave out')[0], "and so do its links"
    html = pages.get(path).content.decode()
    assert ">max_grad_norm</button>" in html and ">stage.optimizer</th>" in html
    assert "weight_decay" not in html
    every = pages.get(f"{path}&settings=all").content.decode()
    assert "weight_decay" in every and "Only those that differ" in every
    assert every.count('<td class="text-warn">') == 2 * 4  # name, seed, group size and clip norm of both


def test_runs_are_grouped_by_a_setting_and_many_always(draft: Run, pages: Client) -> None:
    runs = [draft]
    for seed in (1, 2):
        for steps in (2, 3):
            stage = SMALL.model_copy(update={"steps": steps})
            runs.append(services.create_run(config=RunConfig(name=f"{steps} steps {seed}", seed=seed, stage=stage)))
    path = f"/runs/compare/?{'&'.join(f'run={run.pk}' for run in runs)}"
    html = pages.get(path).content.decode()
    assert '<option value="stage.steps"' in html and '<option value="seed"' not in html and "swatch--1" in html
    assert "steps = 3" not in html
    html = pages.get(f"{path}&group=stage.steps").content.decode()
    assert "&quot;group&quot;: &quot;steps = 3&quot;" in html
    assert "swatch--1" not in html
    assert "steps = 3" not in pages.get(f"{path}&group=nonsense").content.decode()
    more = [services.create_run(config=RunConfig(name=f"more {n}", stage=SMALL)) for n in range(3)]
    many = pages.get(path + "".join(f"&run={run.pk}" for run in more)).content.decode()
    assert "all runs" in many and "more 2" in many and "no group" not in many


def test_any_run_is_found_to_compare_with_by_typing(draft: Run, pages: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    old = services.create_run(config=RunConfig(name="the old one", stage=SMALL))
    made = [services.create_run(config=RunConfig(name=f"newer {n}", stage=SMALL)) for n in range(3)]
    monkeypatch.setattr("composer_web.runs.http.views.MAX_OTHERS", 2)
    html = pages.get(f"/runs/compare/?run={made[2].pk}&settings=all").content.decode().partition("<main")[2]
    assert "newer 1</a>" in html and "newer 0</a>" in html and "the old one" not in html
    found = pages.get(f"/runs/compare/others/?run={made[2].pk}&settings=all&q=OLD").content.decode()
    assert f'href="/runs/compare/?run={made[2].pk}&amp;run={old.pk}&amp;settings=all"' in found or (
        f'href="/runs/compare/?settings=all&amp;run={made[2].pk}&amp;run={old.pk}"' in found
    )
    assert "newer" not in found
    assert "the old one" in pages.get(f"/runs/compare/?q={old.pk}").content.decode(), "by number, and without scripts"
    assert "No run like this" in pages.get("/runs/compare/others/?q=nobody").content.decode()
    assert "newer 2" not in pages.get(f"/runs/compare/others/?run={made[2].pk}&q=newer+2").content.decode()


def test_a_run_page_asks_a_constant_number_of_times(busy: Run, pages: Client) -> None:
    def count() -> int:
        pages.get(f"/runs/{busy.pk}/")
        with CaptureQueriesContext(connection) as seen:
            pages.get(f"/runs/{busy.pk}/")
        return len(seen)

    before = count()
    metrics.record_many(run=busy, rows=[(step, f"x/{step}", 1.0) for step in range(3, 40)])
    for step in range(3, 20):
        services.add_event(run=busy, kind="checkpoint", message="saved", step=step)
    assert count() == before <= 23


@pytest.mark.parametrize("stage", [SFTConfig(), MidtrainConfig()], ids=["sft", "midtrain"])
def test_a_supervised_run_asks_for_no_suite(stage: SFTConfig | MidtrainConfig, policy: Policy, pages: Client) -> None:
    made = services.create_run(config=RunConfig(name="supervised", policy=policy.name, stage=stage))
    text = pages.get(f"/runs/{made.pk}/").content.decode()
    assert "measures the held-out loss" in text and "Choose an evaluation suite" not in text


def test_the_figure_of_groups_without_signal_has_the_tone_of_saturated_tasks(running: Run) -> None:
    """Groups that are all solved have no signal either, and the insight about them must not leave the figure calm."""
    rows = [(step, name, 1.0) for step in range(1, 9) for name in ("groups/zero_signal", "groups/solved_all")]
    metrics.record_many(run=running, rows=rows)
    running.refresh_from_db()
    assert insights.tones(insights.of_run(running))["groups/zero_signal"] == "warn"
