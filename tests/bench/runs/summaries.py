"""`make bench NAME=summaries`: work of five windows, with trained summaries, untrained ones, and truncation.

The family is `relay.py`. The policy first learns the form of the work by SFT on episodes of an expert that summarizes
carelessly (each of the two facts that matter gets into a summary with probability KEEP). Then, per seed, the same
held-out tasks are played by

* `untrained`: that policy, with summaries;
* `truncated`: that policy after STEPS steps of RL in which full windows forget their first turns;
* `trained`: that policy after STEPS steps of RL with summaries, one reward for every token of the chain.

WINDOW (tokens at which a window is left) is 260. Files are longer with a longer one, so that the work takes five windows
of any length; the policy's rotary embedding is scaled before SFT, which goes from short windows to long ones (`ladder`).
WINDOW=4096 took 85 minutes on two cores with one seed and 8 steps.

Episodes run in memory (`memory.py`). SEEDS, STEPS, SFT_STEPS, EVAL_TASKS, SAMPLES, GROUPS_PER_STEP. What each seed and arm
came to is kept (`points.py`), JOBS of them are measured at a time; the arms are drawn (`figures.py`). JSON lines go to stderr,
the result to stdout; intervals are 95 % over tasks.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import plotly.graph_objects as plot
import torch

from sandbox.tasks.procedural.vocabulary import Split
from sandbox.tasks.spec import TaskSpec
from tests.bench import figures, report
from tests.bench import points as kept
from tests.bench.runs.memory import MemoryBackend, MemoryEnvironments, memory_run
from tests.bench.runs.relay import FILLER, Expert, relay
from trainer import policy as policies
from trainer.config import OptimizerConfig, RewardConfig, RLConfig, SummaryConfig
from trainer.learning.supervised import Example, SupervisedLearner, batches
from trainer.policy.context import extend_context
from trainer.rl.evaluate import EvalReport
from trainer.rl.rl_sync import DEPLOYMENT, SyncStep, held_out, publish, train
from trainer.rollouts.episode import RolloutServices, run_episode
from trainer.rollouts.turns import EpisodeSettings
from trainer.toy.preset import toy_harness, toy_rl, toy_sampling
from trainer.types import Segment

POLICY = Path(os.environ.get("POLICY", "policies/base"))
SEEDS = [int(text) for text in os.environ.get("SEEDS", "0+1+2").split("+")]
STEPS = int(os.environ.get("STEPS", "16"))
SFT_STEPS = int(os.environ.get("SFT_STEPS", "300"))
EPISODES = int(os.environ.get("EPISODES", "400"))
EVAL_TASKS = int(os.environ.get("EVAL_TASKS", "32"))
SAMPLES = int(os.environ.get("SAMPLES", "4"))
KEEP = 0.8
GROUPS = int(os.environ.get("GROUPS_PER_STEP", "6"))
SHORT = 260
TRIGGER = int(os.environ.get("WINDOW", str(SHORT)))
"""Tokens at which a window is left: the work without summaries takes five times as many."""
Mode = Literal["summary", "truncate"]
ARMS: dict[str, tuple[Mode, bool]] = {
    "untrained": ("summary", False), "truncated": ("truncate", True), "trained": ("summary", True),
}  # fmt: skip
"""What happens to full windows, and whether RL is run."""
LABELS = {"truncated": "truncation, trained", "untrained": "summaries, untrained", "trained": "summaries, trained"}
GOALS: dict[str, report.Goal] = {
    "work_in_windows": (">=", 5.0),
    "trained_over_untrained_min": (">=", 0.05),
    "trained_over_truncated_min": (">=", 0.05),
}


def say(**values: Any) -> None:
    print(json.dumps(values), file=sys.stderr, flush=True)


def task(seed: int, split: Split, window: int = TRIGGER) -> TaskSpec:
    """Work of at least five windows of so many tokens."""
    return relay(seed, split, filler=max(FILLER, window // 32))


def config(mode: Mode, window: int = TRIGGER) -> RLConfig:
    summary = SummaryConfig(trigger_tokens=window, mode=mode, max_tokens=40, max_windows=24)
    return toy_rl(
        steps=STEPS,
        groups_per_step=GROUPS,
        max_in_flight_groups=GROUPS,
        max_off_policy_steps=0,
        sampling=toy_sampling(max_context_tokens=window * 460 // 260, max_turns=40, max_turn_tokens=60),
        harness=toy_harness(summary=summary, profile="toy" if window == SHORT else "full"),
        optimizer=OptimizerConfig(learning_rate=5e-4, warmup_steps=3),
        eval_tasks=EVAL_TASKS,
        eval_samples=SAMPLES,
    )


def ladder(window: int = TRIGGER) -> list[int]:
    """Windows of SFT, each at most four times as long as the one before: copies over 4,096 tokens come after those over 260."""
    return [window] if window <= SHORT else [*ladder(max(SHORT, window // 4)), window]


async def expert_segments(renderer: policies.ChatRenderer, seed: int, window: int) -> tuple[list[Segment], float]:
    """Windows of the careless expert's episodes, and how many windows the work takes without summaries (mean)."""
    environments = MemoryEnvironments()
    settings = config("summary", window)
    services = RolloutServices(
        client=Expert(renderer, keep=KEEP), renderer=renderer, backend=MemoryBackend(environments),
        environments=environments, deployment=DEPLOYMENT, slots=asyncio.Semaphore(8),
    )  # fmt: skip
    recorded: list[Segment] = []
    sizes: list[float] = []
    for index in range(EPISODES):
        done = await run_episode(
            task=task(100_000 * (seed + 1) + index, "train", window), sample=0, session_id=str(index),
            seed=seed * 7919 + index, settings=EpisodeSettings(settings.sampling, settings.harness, RewardConfig()),
            services=services,
        )  # fmt: skip
        recorded += done.segments
        if done.reward:
            said = [turn for turn in done.turns if not turn.summary]
            read = sum(len(renderer.observe(turn.results)) for turn in said[:-1])
            opening = len(renderer.start(list(done.messages)))
            sizes.append((opening + read + sum(t.token_end - t.token_start for t in said)) / window)
    if not sizes:
        raise ValueError(f"none of EPISODES={EPISODES} expert episodes was solved; raise EPISODES")
    return recorded, fmean(sizes)


def examples(segments: Sequence[Segment], seed: int) -> Iterator[Example]:
    rng = random.Random(f"relay:{seed}")
    while True:
        for segment in rng.sample(list(segments), len(segments)):
            yield Example(list(segment.tokens), [1.0 if mask else 0.02 for mask in segment.loss_mask])


def learn_form(policy: policies.Policy, segments: Sequence[Segment], seed: int, window: int) -> None:
    """SFT_STEPS at the usual window, half as many at each longer one."""
    steps = SFT_STEPS if window <= SHORT else SFT_STEPS // 2
    optimizer = OptimizerConfig(name="muon", learning_rate=1e-3, warmup_steps=5, decay_start=0.4, min_lr_ratio=0.1)
    learner = SupervisedLearner(policy.model, optimizer=optimizer, total_steps=steps, precision="float32")
    stream = batches(examples(segments, seed), batch_tokens=max(3072, 3 * window), seed=seed)
    for step, batch in enumerate(islice(stream, steps), 1):
        values = learner.train(batch, step=step)
        if step % 20 == 0:
            say(
                seed=seed,
                window=window,
                sft=step,
                loss=round(values["loss/train"], 4),
                accuracy=round(values["loss/accuracy"], 4),
            )


async def play(start: Path, seed: int, mode: Mode, *, learn: bool, scratch: Path) -> EvalReport:
    """Held-out tasks, after RL if asked for."""
    run = memory_run(start, config(mode), seed, scratch)

    async def on_step(step: SyncStep) -> None:
        m = step.metrics
        say(
            seed=seed,
            mode=mode,
            step=step.step,
            reward=round(m["reward/mean"], 3),
            windows=round(m["segments/mean"], 2),
        )

    if learn:
        await train(run, lambda index: task(1_000_000 * (seed + 1) + index, "train"), on_step=on_step)
    else:
        await publish(run)
    tasks = [task(index, "held-out") for index in range(EVAL_TASKS)]
    result = await held_out(run, tasks, samples=SAMPLES)
    say(seed=seed, mode=mode, learned=learn, pass1=round(result.pass1, 3), interval=result.pass1_interval)
    return result


def start(key: str, where: Path) -> dict[str, Any]:
    """The policy of `start-SEED` after SFT, beside its point, and the windows that the work takes."""
    seed = int(key.removeprefix("start-"))
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // len(SEEDS)))
    policy = policies.load(POLICY)
    most = config("summary").sampling.max_context_tokens
    assert most is not None
    extend_context(policy.model, tokens=most, kind="theta")
    windows = 0.0
    for window in ladder():
        segments, windows = asyncio.run(expert_segments(policy.renderer, seed, window))
        learn_form(policy, segments, seed, window)
    policies.save(policy, where / key)
    return {"windows": windows}


def arm(key: str, where: Path) -> dict[str, Any]:
    """`ARM-SEED`: pass@1 on held-out tasks and its interval."""
    name, number = key.split("-")
    mode, learn = ARMS[name]
    with tempfile.TemporaryDirectory(prefix="summaries-") as scratch:
        found = asyncio.run(play(where / f"start-{number}", int(number), mode, learn=learn, scratch=Path(scratch)))
    return {"pass1": found.pass1, "interval": list(found.pass1_interval)}


def draw(found: Mapping[str, kept.Point], seeds: Sequence[int]) -> plot.Figure:
    """pass@1 of each seed by arm, with its interval."""
    figure = plot.Figure()
    for seed, colour in zip(seeds, cycle(figures.COLOURS), strict=False):
        of = [found[f"{name}-{seed}"] for name in LABELS]
        figure.add_bar(
            x=[*LABELS.values()], y=[one["pass1"] for one in of], name=f"seed {seed}", marker={"color": colour},
            error_y={
                "array": [one["interval"][1] - one["pass1"] for one in of],
                "arrayminus": [one["pass1"] - one["interval"][0] for one in of],
            },
        )  # fmt: skip
    figure.update_layout(yaxis_title=f"pass@1 on {EVAL_TASKS} held-out tasks", barmode="group")
    return figure


def main() -> None:
    torch.set_num_threads(1)
    settings = {
        "steps": STEPS, "sft": SFT_STEPS, "episodes": EPISODES, "tasks": EVAL_TASKS, "samples": SAMPLES,
        "policy": str(POLICY), "keep": KEEP, "trigger": TRIGGER, "groups": GROUPS,
    }  # fmt: skip
    where = kept.folder("summaries", settings)
    starts = kept.points(where, [f"start-{seed}" for seed in SEEDS], start)
    found = kept.points(where, [f"{name}-{seed}" for seed in SEEDS for name in ARMS], arm)
    pass1 = {name: [found[f"{name}-{seed}"]["pass1"] for seed in SEEDS] for name in ARMS}
    figures.write("summaries", draw(found, SEEDS))
    metrics = {"work_in_windows": round(min(one["windows"] for one in starts.values()), 2)}
    for name in ARMS:
        metrics[f"pass1_{name}_mean"] = round(fmean(pass1[name]), 4)
    for other in ("untrained", "truncated"):
        gains = [a - b for a, b in zip(pass1["trained"], pass1[other], strict=True)]
        metrics[f"trained_over_{other}_min"] = round(min(gains), 4)
    conditions = {"seeds": SEEDS, "steps": STEPS, "held_out_tasks": EVAL_TASKS, "samples": SAMPLES, "pass1": found}
    report.emit("summaries", metrics, goals=GOALS, conditions=conditions)


if __name__ == "__main__":
    main()
