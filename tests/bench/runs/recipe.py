"""`make bench NAME=recipe`: what the length penalty does to easy tasks, to hard ones, and to calls that could be parallel.

A policy is taught a thorough way of working on three kinds of task (`effort.py`) by SFT: it tests each edit, also where the
instruction names the edit, and reads one file a turn. Then two arms train from it, on the same prompts with the same seeds:
`plain` with the reward of hidden tests alone, `penalty` with the length penalty λ·C(x) beside it (LAMBDA; k, q and the
weights are the product's defaults). Both play the same held-out tasks at the end, at the temperature of training.

* `easy_tokens_ratio`: tokens that the policy writes on easy tasks, penalty to plain, the worst seed.
* `hard_pass_drop`: pass@1 on hard tasks, plain minus penalty, the mean over seeds; `…_max` is the worst seed.
* `parallel_start`, `parallel_plain`, `parallel_penalty`: share of `pair` episodes that read both files in one turn.

Episodes run in memory (`memory.py`), the policy is the toy. SEEDS=0+1+2, STEPS, SFT_STEPS, EPISODES, EVAL_TASKS (of each
kind), SAMPLES, LAMBDA. Each seed and arm is kept (`points.py`), JOBS of them are measured at a time; the arms are drawn
(`figures.py`). JSON lines go to stderr, the result to stdout.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import plotly.graph_objects as plot
import torch

from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from sandbox.tasks.spec import TaskSpec
from tests.bench import figures, report
from tests.bench import points as kept
from tests.bench.runs.effort import KINDS, Kind, demonstrate, task_of
from tests.bench.runs.memory import MemoryBackend, MemoryEnvironments, memory_run
from trainer import policy as policies
from trainer.config import OptimizerConfig, RewardConfig, RLConfig
from trainer.learning.supervised import Example, SupervisedLearner, batches
from trainer.midtrain.synthetic import BASE_DRILLS, BASE_SOURCE, synthetic_examples
from trainer.rl.evaluate import EvalReport, evaluate
from trainer.rl.rl_sync import SyncRun, SyncStep, publish, train
from trainer.rollouts.turns import EpisodeSettings
from trainer.sft.expert_episodes import ExpertEpisode, with_replay
from trainer.toy.preset import toy_rl, toy_sampling
from trainer.types import Trajectory

POLICY = Path(os.environ.get("POLICY", "policies/base"))
EPISODES = int(os.environ.get("EPISODES", "900"))
SFT_STEPS = int(os.environ.get("SFT_STEPS", "250"))
STEPS = int(os.environ.get("STEPS", "40"))
GROUPS = int(os.environ.get("PROMPTS", "9"))
EVAL_TASKS = int(os.environ.get("EVAL_TASKS", "64"))
SAMPLES = int(os.environ.get("SAMPLES", "4"))
LAMBDA = float(os.environ.get("LAMBDA", "0.008"))
REPLAY = 0.3
"""Share of what the base policy was mid-trained with: without it the policy unlearns to copy names."""
ARMS = {"plain": 0.0, "penalty": LAMBDA}
GOALS: dict[str, report.Goal] = {"easy_tokens_ratio": ("<=", 0.8), "hard_pass_drop": ("<=", 0.02)}


def say(**values: Any) -> None:
    print(json.dumps(values), file=sys.stderr, flush=True)


async def demonstrations(seed: int) -> list[ExpertEpisode]:
    environments = MemoryEnvironments()
    backend = MemoryBackend(environments)
    first = 50_000_000 + seed * 1_000_000
    return [await demonstrate(KINDS[n % 3], first + n, backend, environments) for n in range(EPISODES)]


def examples(renderer: policies.ChatRenderer, episodes: Sequence[ExpertEpisode], seed: int) -> Iterator[Example]:
    rng = random.Random(f"recipe:{seed}")
    schemas = schemas_of(get_profile("toy"))
    while True:
        for episode in rng.sample(list(episodes), len(episodes)):
            ids = renderer.start(list(episode.messages), schemas)
            weights = [0.02] * len(ids)
            for position, turn in enumerate(episode.turns):
                said = renderer.turn(turn.calls)
                shown = renderer.observe(turn.results) if position < len(episode.turns) - 1 else []
                ids += said + shown
                weights += [1.0] * len(said) + [0.02] * len(shown)
            yield Example(ids, weights)


def learn_form(out: Path, episodes: Sequence[ExpertEpisode], seed: int) -> Path:
    policy = policies.load(POLICY)
    optimizer = OptimizerConfig(name="muon", learning_rate=1.5e-3, warmup_steps=5, decay_start=0.4, min_lr_ratio=0.1)
    drills = synthetic_examples(policy.tokenizer, seed=seed, drill_share=BASE_DRILLS, source_share=BASE_SOURCE)
    lessons = with_replay(examples(policy.renderer, episodes, seed), drills, share=REPLAY, seed=seed)
    learner = SupervisedLearner(policy.model, optimizer=optimizer, total_steps=SFT_STEPS, precision="float32")
    for step, batch in enumerate(islice(batches(lessons, batch_tokens=3072, seed=seed), SFT_STEPS), 1):
        values = learner.train(batch, step=step)
        if step % 25 == 0:
            say(seed=seed, sft=step, loss=round(values["loss/train"], 4))
    return policies.save(policy, out)


def config(penalty: float) -> RLConfig:
    return toy_rl(
        steps=STEPS,
        groups_per_step=GROUPS,
        max_in_flight_groups=GROUPS,
        max_off_policy_steps=0,
        sampling=toy_sampling(max_turns=16),
        reward=RewardConfig(length_coefficient=penalty),
        optimizer=OptimizerConfig(learning_rate=3e-4, warmup_steps=3),
    )


def prompts(seed: int) -> Any:
    """The i-th training prompt: the kinds in turn."""
    return lambda index: task_of(KINDS[index % 3], 1_000_000 * (seed + 1) + index, "train")


def parallel(trajectories: Sequence[Trajectory]) -> float:
    """Share of the `pair` episodes in which one turn read both files."""
    pairs = [t for t in trajectories if t.task_id.startswith("pair-")]
    together = [any(sum(call.name == "read_file" for call in turn.calls) > 1 for turn in t.turns) for t in pairs]
    return sum(together) / len(together) if together else 0.0


async def play(run: SyncRun) -> tuple[dict[str, EvalReport], float]:
    """Held-out tasks by kind, and how often both files of a pair were read in one turn."""
    found, seen = {}, list[Trajectory]()

    async def on_trajectory(trajectory: Trajectory) -> None:
        seen.append(trajectory)

    settings = EpisodeSettings(run.config.sampling, run.config.harness, run.config.reward)
    for kind in KINDS:
        tasks: list[TaskSpec] = [task_of(kind, index, "held-out") for index in range(EVAL_TASKS)]
        found[kind] = await evaluate(
            tasks=tasks, samples=SAMPLES, settings=settings, services=run.services, seed=run.seed, name=f"eval-{kind}",
            on_trajectory=on_trajectory,
        )  # fmt: skip
    return found, parallel(seen)


async def arm(start: Path, seed: int, penalty: float | None, scratch: Path) -> kept.Point:
    """Held-out tasks after RL with this λ; None: without RL."""
    run = memory_run(start, config(penalty or 0.0), seed, scratch)
    seen: list[Trajectory] = []

    async def on_trajectory(trajectory: Trajectory) -> None:
        seen.append(trajectory)

    async def on_step(step: SyncStep) -> None:
        say(
            seed=seed,
            penalty=penalty,
            step=step.step,
            passed=round(step.metrics["verdict/passed"], 3),
            tokens=round(fmean(sum(turn.token_end - turn.token_start for turn in t.turns) for t in seen), 1),
            parallel=round(parallel(seen), 3),
        )
        seen.clear()

    run.on_trajectory = on_trajectory
    if penalty is None:
        await publish(run)
    else:
        await train(run, prompts(seed), on_step=on_step)
    found, together = await play(run)
    point: kept.Point = {"parallel": together}
    for kind, one in found.items():
        point[kind] = {
            "pass1": one.pass1, "interval": list(one.pass1_interval), "tokens": one.output_tokens, "turns": one.turns,
        }  # fmt: skip
    say(seed=seed, penalty=penalty, **point)
    return point


def start(key: str, where: Path) -> kept.Point:
    """Of `start-SEED`: the thorough policy, beside its point."""
    seed = int(key.removeprefix("start-"))
    folder = learn_form(where / key, asyncio.run(demonstrations(seed)), seed)
    with tempfile.TemporaryDirectory(prefix="recipe-") as scratch:
        return asyncio.run(arm(folder, seed, None, Path(scratch)))


def measured(key: str, where: Path) -> kept.Point:
    """Of `ARM-SEED`: held-out tasks after RL."""
    name, number = key.split("-")
    with tempfile.TemporaryDirectory(prefix="recipe-") as scratch:
        return asyncio.run(arm(where / f"start-{number}", int(number), ARMS[name], Path(scratch)))


def draw(found: Mapping[str, Mapping[Kind, float]]) -> plot.Figure:
    """Tokens of an episode by kind and arm."""
    figure = plot.Figure()
    for (name, tokens), colour in zip(found.items(), figures.COLOURS, strict=False):
        figure.add_bar(x=[*tokens], y=[*tokens.values()], name=name, marker={"color": colour})
    figure.update_layout(yaxis_title="policy tokens of an episode", barmode="group")
    return figure


def main() -> None:
    torch.set_num_threads(1)
    seeds = [int(text) for text in os.environ.get("SEEDS", "0+1+2").split("+")]
    settings = {
        "steps": STEPS, "sft": SFT_STEPS, "episodes": EPISODES, "groups": GROUPS, "lambda": LAMBDA,
        "tasks": EVAL_TASKS, "samples": SAMPLES, "policy": str(POLICY),
    }  # fmt: skip
    where = kept.folder("recipe", settings)
    begun = kept.points(where, [f"start-{seed}" for seed in seeds], start)
    found = begun | kept.points(where, [f"{name}-{seed}" for seed in seeds for name in ARMS], measured)

    def of(name: str, kind: Kind, value: str) -> list[float]:
        return [found[f"{name}-{seed}"][kind][value] for seed in seeds]

    names = {"start": "after SFT", "plain": "RL, tests alone", "penalty": "RL with the length penalty"}
    figures.write("recipe", draw({label: {k: fmean(of(n, k, "tokens")) for k in KINDS} for n, label in names.items()}))
    ratios = {
        kind: [a / b for a, b in zip(of("penalty", kind, "tokens"), of("plain", kind, "tokens"), strict=True)]
        for kind in KINDS
    }
    drops = [a - b for a, b in zip(of("plain", "hard", "pass1"), of("penalty", "hard", "pass1"), strict=True)]
    metrics: dict[str, float] = {
        "easy_tokens_ratio": round(max(ratios["easy"]), 3),
        "hard_tokens_ratio": round(fmean(ratios["hard"]), 3),
        "hard_pass_drop": round(fmean(drops), 4),
        "hard_pass_drop_max": round(max(drops), 4),
    }
    for name in names:
        metrics[f"parallel_{name}"] = round(fmean(found[f"{name}-{seed}"]["parallel"] for seed in seeds), 3)
        for kind in KINDS:
            metrics[f"pass1_{kind}_{name}"] = round(fmean(of(name, kind, "pass1")), 4)
            metrics[f"tokens_{kind}_{name}"] = round(fmean(of(name, kind, "tokens")), 1)
    report.emit("recipe", metrics, goals=GOALS, conditions={**settings, "seeds": seeds, "points": found})


if __name__ == "__main__":
    main()
