"""`make bench NAME=async`: the asynchronous loop beside the synchronous one, on episodes with a heavy tail.

Both loops run for real on the same small world (`waiting.py`): `trainer.rl.rl_sync.train` and
`trainer.rl.stage.run_rl` over `tests.support.local_loop`, the same policy, prompts, waits, engine and learner. The
median wait is scaled to a share of a measured training step. Compared are accepted groups per hour of wall time over
the same number of steps, and what was learned by then: policies of the same number of steps (a quarter, half, three quarters
and all of them) play the same unseen prompts with their own weights alone (`waiting.measured`). The reward of a step's
own rollouts would compare policies of different age, since those of the asynchronous loop were begun some versions ago;
it is reported too. How far a group may lag is set by the slowest attempts, how many are in flight by the usual ones: a far
bound (--ahead) with few groups out (--out) neither waits for the tail nor lets the others grow old. The synchronous loop
runs under two seeds, and the largest difference of these two is the noise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sandbox.backends.choice import default_backend
from sandbox.tasks.environments import EnvironmentStore
from tests.bench import report
from tests.bench.runs.waiting import BASE, DEPLOYMENT, World, make_policy, measured
from tests.support.journal import Journal
from tests.support.local_loop import LocalSource, Ticket
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import (
    CheckpointConfig,
    ObjectiveConfig,
    OptimizerConfig,
    OrchestratorConfig,
    RLConfig,
)
from trainer.rl.rl_sync import SyncStep, build_run, train
from trainer.rl.stage import run_rl
from trainer.rollouts.episode import RolloutServices
from trainer.rollouts.group import GroupResult
from trainer.router_replay.validate import shape_of
from trainer.toy.preset import toy_rl, toy_sampling
from trainer.weights import WeightStore

GOALS: dict[str, report.Goal] = {
    "ratio_to_sync": (">=", 2.5),
    "trainer_idle": ("<=", 0.10),
    "p99_over_p50": (">=", 10.0),
}
"""Beside these: `curve_gap` at most `curve_noise`."""
CALIBRATION = 4


def configuration(steps: int, *, ahead: int, width: int, rate: float, out: float) -> RLConfig:
    """`ahead` 0 is on-policy; otherwise `out` steps' groups are in flight. The rate is constant, so that steps that are
    not reached change nothing."""
    return toy_rl(
        steps=steps,
        groups_per_step=width,
        group_size=8,
        max_off_policy_steps=ahead,
        max_in_flight_groups=round(width * out) if ahead else width,
        sampling=toy_sampling(temperature=1.0),
        objective=ObjectiveConfig(loss_divisor=256.0),
        optimizer=OptimizerConfig(learning_rate=rate, warmup_steps=0, decay_start=1.0),
        checkpoint=CheckpointConfig(every_steps=10, keep=1, keep_versions=max(4, 2 * steps)),
        orchestrator=OrchestratorConfig(over_sampling=0.25 if ahead else 0.0),
    )


def say(**values: Any) -> None:
    print(json.dumps(values), file=sys.stderr, flush=True)


def synchronous(
    scratch: Path, policy_dir: Path, config: RLConfig, median: float, seed: int = 0
) -> tuple[list[SyncStep], float, World]:
    """Steps of the synchronous loop and its wall seconds."""
    store = WeightStore(scratch / "weights", dtype="float32")
    world = World(
        policy_dir=policy_dir, store=store.root, memory=scratch / "engine", config=config, median=median, seed=seed
    )
    steps: list[SyncStep] = []

    async def main() -> float:
        services = RolloutServices(
            client=world.engine,
            renderer=policies.load(BASE).renderer,
            backend=default_backend(),
            environments=EnvironmentStore(scratch / "environments"),
            deployment=DEPLOYMENT,
            slots=asyncio.Semaphore(1),
        )
        run = build_run(
            policy_dir=policy_dir, config=config, seed=seed, store=store, services=services, update_engine=world.update
        )

        async def play(prompt: int) -> GroupResult:
            return await world.play(prompt, version=run.version)

        async def on_step(step: SyncStep) -> None:
            steps.append(step)
            say(loop="sync", step=step.step, **shown(step.metrics))

        began = time.perf_counter()
        await train(run, on_step=on_step, play=play)
        seconds = time.perf_counter() - began
        await world.close()
        return seconds

    return steps, asyncio.run(main()), world


class Sink:
    """Collects what the stage reports and stops it after so many steps: what is still in flight is not waited for."""

    def __init__(self, stop_after: int) -> None:
        self.values: list[dict[str, float]] = []
        self.stop_after = stop_after
        self.heard: Callable[[int], None] = lambda version: None
        self.seconds = 0.0
        self.began = time.perf_counter()

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.values.append(dict(values))
        self.seconds = time.perf_counter() - self.began
        say(loop="async", step=step, **shown(values))

    def should_stop(self) -> bool:
        return len(self.values) >= self.stop_after

    def progress(self, done: int, total: int) -> None: ...

    def version_published(self, version: int, digest: str, values: Mapping[str, float]) -> None:
        self.heard(version)

    def checkpoint_saved(self, step: int, path: Path, *, final: bool) -> None: ...

    def event(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        say(event=level, message=message)


def asynchronous(scratch: Path, policy_dir: Path, config: RLConfig, median: float, steps: int) -> tuple[Sink, World]:
    """What the asynchronous stage reports of its first `steps` steps."""
    store = WeightStore(scratch / "weights", dtype="float32")
    world = World(
        policy_dir=policy_dir, store=store.root, memory=scratch / "engine", config=config, median=median, seed=0
    )

    async def play(ticket: Ticket) -> GroupResult:
        return await world.play(ticket.prompt, version=ticket.version)

    sink = Sink(steps)
    with LocalSource(
        config=config,
        journal=Journal(scratch / "groups"),
        play=play,
        published=lambda: max(store.versions.all(), default=-1),
        shape=shape_of(policy_dir),
        update_engine=world.update,
        load=world.load,
        close=world.close,
    ) as source:
        sink.heard = source.version_published
        run_rl(
            policy_dir=policy_dir,
            config=config,
            seed=0,
            source=source,
            sink=sink,
            store=store,
            checkpoints=CheckpointStore(scratch / "checkpoints", keep=1),
        )
    return sink, world


SHOWN = ("reward/mean", "time/step", "time/train", "idle/trainer", "staleness/mean", "staleness/max", "groups/surplus")


def shown(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(values[name], 3) for name in SHOWN if name in values}


def last_third(values: Sequence[Mapping[str, float]]) -> float:
    return statistics.fmean(v["reward/mean"] for v in values[-max(1, len(values) // 3) :])


def curve(scratch: Path, policy_dir: Path, config: RLConfig, steps: int) -> list[float]:
    """Scores of the policies after a quarter, half, three quarters and all of the steps."""
    store = WeightStore(scratch / "weights", dtype="float32")
    marks = [max(1, steps * quarter // 4) for quarter in (1, 2, 3, 4)]
    found = [measured(policy_dir, store.load(version).state, config) for version in marks]
    say(curve=[round(value, 3) for value in found], versions=marks)
    return found


def idle(values: Sequence[Mapping[str, float]]) -> float:
    """Share of these steps in which the trainer waited for a batch."""
    return sum(v["time/wait_for_batch"] for v in values) / sum(v["time/step"] for v in values)


def first(values: Sequence[Mapping[str, float]]) -> float:
    return values[0]["reward/mean"]


def main() -> None:
    parser = argparse.ArgumentParser(description="asynchronous beside synchronous training, on episodes that wait")
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--groups", type=int, default=6, help="groups of a step")
    parser.add_argument("--share", type=float, default=0.25, help="median wait as a share of a training step")
    parser.add_argument("--out", type=float, default=2.0, help="groups in flight, as a share of a step's")
    parser.add_argument("--ahead", type=int, default=7, help="max_off_policy_steps of the asynchronous loop")
    parser.add_argument("--rate", type=float, default=3e-3, help="learning rate of both loops")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sys.setswitchinterval(0.001)  # trainer, engine and episodes share one interpreter
    scratch = Path(tempfile.mkdtemp(prefix="async-"))
    steps, groups = arguments.steps, arguments.groups
    configured = partial(configuration, width=groups, rate=arguments.rate, out=arguments.out)
    try:
        policy_dir = make_policy(scratch / "policy", seed=1)
        warm, _, _ = synchronous(scratch / "warm", policy_dir, configured(CALIBRATION, ahead=0), median=0.0)
        busy = statistics.median(s.metrics["time/step"] - s.metrics["time/wait_for_batch"] for s in warm[1:])
        median = arguments.share * busy
        say(busy_seconds=round(busy, 3), median_wait=round(median, 3))
        on_policy = configured(steps, ahead=0)
        sync_steps, sync_seconds, sync_world = synchronous(scratch / "sync", policy_dir, on_policy, median)
        # Only for what it learns: it need not wait.
        synchronous(scratch / "again", policy_dir, on_policy, 0.0, seed=1)
        # More steps are configured than are run: the loop is measured while it runs, not while it runs dry.
        ahead = configured(steps + arguments.ahead + 4, ahead=arguments.ahead)
        sink, async_world = asynchronous(scratch / "async", policy_dir, ahead, median, steps)
        curves = {name: curve(scratch / name, policy_dir, on_policy, steps) for name in ("sync", "again", "async")}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sync_values = [step.metrics for step in sync_steps]
    hourly = {
        "sync": 3600.0 * len(sync_values) * groups / sync_seconds,
        "async": 3600.0 * len(sink.values) * groups / sink.seconds,
    }
    waited = sorted(sync_world.waited + async_world.waited)
    pairs = list(zip(curves["sync"], curves["again"], strict=True))
    noise = max(abs(one - other) for one, other in pairs)
    lost = [(one + other) / 2 - mine for (one, other), mine in zip(pairs, curves["async"], strict=True)]
    metrics = {
        "curve_gap": statistics.fmean(lost),
        "curve_noise": noise,
        "learned_sync": statistics.fmean(pairs[-1]),
        "learned_async": curves["async"][-1],
        "ratio_to_sync": hourly["async"] / hourly["sync"],
        # From the second step on: nothing can be trained while the first batch is made.
        "trainer_idle": idle(sink.values[1:]),
        "trainer_idle_whole": idle(sink.values),
        "trainer_idle_sync": idle(sync_values),
        "p99_over_p50": waited[int(0.99 * len(waited))] / waited[len(waited) // 2],
        "reward_gap": last_third(sync_values) - last_third(sink.values),
        "reward_first": first(sync_values),
        "reward_sync": last_third(sync_values),
        "reward_async": last_third(sink.values),
        "staleness_mean": statistics.fmean(v["staleness/mean"] for v in sink.values),
        "staleness_max": max(v["staleness/max"] for v in sink.values),
        "versions_in_a_rollout": statistics.fmean(v["staleness/versions"] for v in sink.values),
        "groups_per_hour_async": hourly["async"],
        "groups_per_hour_sync": hourly["sync"],
    }
    conditions = {
        "steps": steps,
        "groups_per_step": groups,
        "group_size": 8,
        "max_off_policy_steps": arguments.ahead,
        "in_flight": arguments.out,
        "median_wait_s": round(median, 4),
        "train_step_s": round(busy, 4),
        "learning_rate": arguments.rate,
        "curves": {name: [round(value, 4) for value in values] for name, values in curves.items()},
    }
    goals: dict[str, report.Goal] = GOALS | {"curve_gap": ("<=", round(noise, 4))}
    report.emit("async", {name: round(value, 4) for name, value in metrics.items()}, goals=goals, conditions=conditions)


if __name__ == "__main__":
    main()
