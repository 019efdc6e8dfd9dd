"""`make bench NAME=midtrain-study`: does the loss after SFT predict what reinforcement learning then reaches?

Three levels of mid-training (S, M, L: steps in a ratio of 1 : 3 : 9) from the same random weights of a seed, then the same
small SFT, then the same RL. Per seed and level: held-out loss after mid-training, on a chosen codebase (CODEBASE: a
folder of Python; this repository's `trainer` by default) and after SFT, and the mean reward of the last RL steps. Reported
are Spearman's rank correlation between minus the SFT loss and the reward, over all points and as the mean within seeds,
and the plot (`figures.py`).

Episodes run in memory (`memory.py`). SEEDS, SMALLEST (steps of S), SFT_STEPS, STEPS. Points are kept (`points.py`), JOBS of
them are measured at a time. JSON lines go to stderr.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import plotly.graph_objects as plot
import torch

from composer_web.studies.correlation import spearman
from composer_web.studies.levels import LAST, LEVELS
from tests.bench import figures, report
from tests.bench import points as kept
from tests.bench.runs.memory import MemoryBackend, MemoryEnvironments, memory_run
from trainer import policy as policies
from trainer.checkpoint.layout import POLICY_DIR
from trainer.checkpoint.store import CheckpointStore
from trainer.config import MidtrainConfig, SFTConfig
from trainer.midtrain.corpus.readers import read_source
from trainer.midtrain.stage import run_midtrain
from trainer.model_selection.selection import codebase_text, rolling_nll
from trainer.recipes.base_policy import MIDTRAIN, SFT, Recorder
from trainer.rl.rl_sync import SyncStep, procedural_prompts, train
from trainer.sft.expert_episodes import ExpertEpisode
from trainer.sft.recording import Recording, record
from trainer.sft.stage import run_sft
from trainer.toy.preset import toy_rl

BASE = Path("policies/base")
SMALLEST = int(os.environ.get("SMALLEST", "90"))
SFT_STEPS = int(os.environ.get("SFT_STEPS", "150"))
STEPS = int(os.environ.get("STEPS", "12"))
EPISODES = int(os.environ.get("EPISODES", "600"))
CODEBASE = Path(os.environ.get("CODEBASE", "trainer"))
GOALS: dict[str, report.Goal] = {"rank_correlation": (">=", 0.6), "seeds": (">=", 3)}


def say(**values: Any) -> None:
    print(json.dumps(values), file=sys.stderr, flush=True)


def midtrain(steps: int, seed: int, work: Path) -> tuple[Path, float]:
    settings = MIDTRAIN.model_dump() | {"steps": steps}
    sink = Recorder("midtrain", every=steps)
    done = run_midtrain(
        policy_dir=BASE, config=MidtrainConfig.model_validate(settings), seed=seed, sink=sink,
        checkpoints=CheckpointStore(work, keep=1),
    )  # fmt: skip
    assert done.checkpoint is not None
    return done.checkpoint / POLICY_DIR, sink.curve[-1]["heldout"]


def sft(start: Path, seed: int, work: Path, episodes: Sequence[ExpertEpisode]) -> tuple[Path, float]:
    settings = SFT.model_dump() | {"steps": SFT_STEPS, "episodes": len(episodes)}
    sink = Recorder("sft", every=SFT_STEPS)
    done = run_sft(
        policy_dir=start, config=SFTConfig.model_validate(settings), seed=seed, episodes=episodes, sink=sink,
        checkpoints=CheckpointStore(work, keep=1),
    )  # fmt: skip
    assert done.checkpoint is not None
    return done.checkpoint / POLICY_DIR, sink.curve[-1]["heldout"]


async def reinforce(start: Path, seed: int, work: Path) -> list[float]:
    """Mean reward by step."""
    rewards: list[float] = []

    async def on_step(step: SyncStep) -> None:
        rewards.append(step.metrics["reward/mean"])

    run = memory_run(start, toy_rl(steps=STEPS, max_off_policy_steps=0, max_in_flight_groups=12), seed, work)
    await train(run, procedural_prompts(seed), on_step=on_step)
    return rewards


async def expert(seed: int) -> list[ExpertEpisode]:
    environments = MemoryEnvironments()
    recording = Recording(count=EPISODES, seed=seed + 20)
    return await record(recording, backend=MemoryBackend(environments), environments=environments)


def point(key: str, where: Path) -> dict[str, Any]:
    """Of `LEVEL-SEED`: losses and rewards of the three stages."""
    level, number = key.split("-")
    with tempfile.TemporaryDirectory(prefix="midtrain-study-") as folder:
        return stages(level, int(number), Path(folder), asyncio.run(expert(int(number))))


def stages(level: str, seed: int, work: Path, episodes: Sequence[ExpertEpisode]) -> dict[str, Any]:
    middle, after_midtrain = midtrain(SMALLEST * LEVELS[level], seed, work / "midtrain")
    nll, tokens = rolling_nll(policies.load(middle), codebase_text(list(read_source(CODEBASE)))[:40_000])
    tuned, after_sft = sft(middle, seed, work / "sft", episodes)
    rewards = asyncio.run(reinforce(tuned, seed, work / "rl"))
    made = {
        "level": level, "seed": seed, "midtrain_loss": after_midtrain, "codebase_loss": round(nll / tokens, 4),
        "sft_loss": after_sft, "reward_first": round(rewards[0], 4), "reward": round(fmean(rewards[-LAST:]), 4),
    }  # fmt: skip
    say(**made)
    return made


def draw(points: Sequence[dict[str, Any]]) -> plot.Figure:
    """Loss after SFT against reward, a colour a level."""
    figure = plot.Figure()
    for level, colour in zip(LEVELS, figures.COLOURS, strict=True):
        of = [p for p in points if p["level"] == level]
        figure.add_scatter(
            x=[p["sft_loss"] for p in of], y=[p["reward"] for p in of], mode="markers",
            name=f"{level}: {SMALLEST * LEVELS[level]} steps of mid-training",
            text=[f"seed {p['seed']}" for p in of], marker={"size": 11, "color": colour},
        )  # fmt: skip
    figure.update_layout(
        xaxis_title="held-out loss after SFT (nats/token)",
        yaxis_title=f"mean reward of the last {LAST} of {STEPS} steps of RL",
    )
    return figure


def main() -> None:
    torch.set_num_threads(1)
    seeds = [int(text) for text in os.environ.get("SEEDS", "0+1+2").split("+")]
    settings = {
        "smallest": SMALLEST, "sft": SFT_STEPS, "steps": STEPS, "episodes": EPISODES, "codebase": str(CODEBASE),
    }  # fmt: skip
    keys = [f"{level}-{seed}" for seed in seeds for level in LEVELS]
    points = [*kept.points(kept.folder("midtrain-study", settings), keys, point).values()]
    figures.write("midtrain-study", draw(points))

    def correlation(of: Sequence[dict[str, Any]], loss: str) -> float:
        return spearman([-p[loss] for p in of], [p["reward"] for p in of]) or 0.0

    within = [correlation([p for p in points if p["seed"] == seed], "sft_loss") for seed in seeds]
    metrics = {
        "seeds": float(len(seeds)),
        "rank_correlation": round(correlation(points, "sft_loss"), 3),
        "rank_correlation_within_seeds": round(fmean(within), 3),
        "rank_correlation_midtrain": round(correlation(points, "midtrain_loss"), 3),
        "rank_correlation_codebase": round(correlation(points, "codebase_loss"), 3),
    }
    conditions = {
        "midtrain_steps": {k: v * SMALLEST for k, v in LEVELS.items()},
        "sft_steps": SFT_STEPS,
        "points": points,
    }
    report.emit("midtrain-study", metrics, goals=GOALS, conditions=conditions)


if __name__ == "__main__":
    main()
