"""`make bench NAME=feedback`: a wrong-tool habit under reward alone, and under reward with textual feedback.

A habit is taught first: the base policy is fine-tuned on expert episodes that begin with a call of `search`, a tool
that does not exist, and go on properly after the error; in as many others the task ends with the reminder that rules
write, and the episode begins properly, so that the policy knows what a reminder is (a large model knows). Then both arms
train from that policy on the same prompts with the same reward, which takes off for poor calls; one arm has the hinted
turns beside it. Shown is the share of rollouts that call a tool that does not exist, by step. On the rollouts of the first
step, which are the same in both arms, the KL from the start to the end is measured at the tokens of all other turns.

Episodes run in memory (`memory.py`). SEEDS=0+1+2, STEPS, PROMPTS (of a step), SFT_STEPS. What each seed and arm came to is
kept (`points.py`), JOBS of them are measured at a time; the curves are drawn (`figures.py`). One JSON line a step goes to
stderr, the result to stdout.
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
from sandbox.harness.types import ToolCall, ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.procedural.expert import Habits
from tests.bench import figures, report
from tests.bench import points as kept
from tests.bench.runs.memory import MemoryBackend, MemoryEnvironments, memory_run
from trainer import policy as policies
from trainer.algorithms.textual_feedback.find import find
from trainer.config import BehaviourConfig, OptimizerConfig, RewardConfig, RLConfig, TextualFeedbackConfig
from trainer.learning.packing import PAD
from trainer.learning.supervised import Example, SupervisedLearner, batches
from trainer.midtrain.synthetic import BASE_DRILLS, BASE_SOURCE, synthetic_examples
from trainer.rl.rl_sync import SyncStep, procedural_prompts, train
from trainer.sft.expert_episodes import EpisodeTurn, ExpertEpisode, with_replay
from trainer.sft.recording import Recording, record
from trainer.toy.preset import toy_rl
from trainer.types import Trajectory

POLICY = Path(os.environ.get("POLICY", "policies/base"))
HABIT = "search"
EPISODES = 800
REPLAY = 0.3
"""Share of what the base policy was mid-trained with: without it the policy unlearns to copy names."""
SFT_STEPS = int(os.environ.get("SFT_STEPS", "400"))
STEPS = int(os.environ.get("STEPS", "10"))
GROUPS = int(os.environ.get("PROMPTS", "8"))
TOOLS = [str(schema["function"]["name"]) for schema in schemas_of(get_profile("toy"))]
REMINDER = f"Reminder: there is no tool {HABIT}. Available tools: {', '.join(TOOLS)}."
ARMS = {"reward": False, "feedback": True}
"""Whether turns are hinted."""
KL_BOUND = 0.05
"""Nats a token that the other turns may move."""
GOALS: dict[str, report.Goal] = {
    "habit_before_min": (">=", 0.6),
    "habit_area_ratio_max": ("<=", 0.7),
    "others_kl_feedback_max": ("<=", KL_BOUND),
}


def say(**values: Any) -> None:
    print(json.dumps(values), file=sys.stderr, flush=True)


def with_habit(episode: ExpertEpisode) -> ExpertEpisode:
    """The same episode after a call of the tool that does not exist."""
    pattern = next(
        (str(call.arguments["pattern"]) for call in episode.turns[0].calls if "pattern" in call.arguments), "def"
    )
    message = f"no tool {HABIT}; tools: {', '.join(TOOLS)}"
    error = ToolError(kind=ToolErrorKind.UNKNOWN_TOOL, message=message)
    wrong = EpisodeTurn(
        calls=(ToolCall(id="call_0", name=HABIT, arguments={"pattern": pattern}),),
        results=(ToolResult(call_id="call_0", output=f"error: {message}", error=error),),
    )
    return episode.model_copy(update={"turns": (wrong, *episode.turns)})


def reminded(episode: ExpertEpisode) -> ExpertEpisode:
    """The same episode with the reminder under the task."""
    *rest, last = episode.messages
    return episode.model_copy(update={"messages": (*rest, {**last, "content": f"{last['content']}\n\n{REMINDER}"})})


def examples(renderer: policies.ChatRenderer, episodes: Sequence[ExpertEpisode], seed: int) -> Iterator[Example]:
    """45 % with the habit, 45 % reminded and without it, 10 % neither; every assistant token counts, also the wrong call."""
    rng = random.Random(f"habit:{seed}")
    while True:
        for episode in rng.sample(list(episodes), len(episodes)):
            draw = rng.random()
            made = with_habit(episode) if draw < 0.45 else reminded(episode) if draw < 0.9 else episode
            ids = renderer.start(list(made.messages), schemas_of(get_profile("toy")))
            weights = [0.02] * len(ids)
            for position, turn in enumerate(made.turns):
                said = renderer.turn(turn.calls)
                shown = renderer.observe(turn.results) if position < len(made.turns) - 1 else []
                ids += said + shown
                weights += [1.0] * len(said) + [0.02] * len(shown)
            yield Example(ids, weights)


async def teach_habit(out: Path, seed: int) -> Path:
    environments = MemoryEnvironments()
    recording = Recording(count=EPISODES, seed=seed + 50, habits=Habits(slip=0.0, tamper=0.0))
    episodes = await record(recording, backend=MemoryBackend(environments), environments=environments)
    policy = policies.load(POLICY)
    optimizer = OptimizerConfig(name="muon", learning_rate=1.5e-3, warmup_steps=5, decay_start=0.4, min_lr_ratio=0.1)
    drills = synthetic_examples(policy.tokenizer, seed=seed, drill_share=BASE_DRILLS, source_share=BASE_SOURCE)
    lessons = with_replay(examples(policy.renderer, episodes, seed), drills, share=REPLAY, seed=seed)
    learner = SupervisedLearner(policy.model, optimizer=optimizer, total_steps=SFT_STEPS)
    stream = batches(lessons, batch_tokens=2048, seed=seed)
    for step, batch in enumerate(islice(stream, SFT_STEPS), 1):
        values = learner.train(batch, step=step)
        if step % 30 == 0:
            say(seed=seed, sft=step, loss=round(values["loss/train"], 4))
    return policies.save(policy, out)


def config(*, feedback: bool) -> RLConfig:
    return toy_rl(
        steps=STEPS,
        groups_per_step=GROUPS,
        max_in_flight_groups=GROUPS,
        max_off_policy_steps=0,
        reward=RewardConfig(behaviour=BehaviourConfig(poor_calls=0.2)),
        optimizer=OptimizerConfig(learning_rate=3e-4, warmup_steps=3),
        textual_feedback=TextualFeedbackConfig(coefficient=1.0 if feedback else 0.0, rules="unknown_tool", max_hints=8),
    )


def has_habit(trajectory: Trajectory) -> bool:
    return bool(find(trajectory, rules=("unknown_tool",), tools=TOOLS))


async def arm(start: Path, seed: int, *, feedback: bool, scratch: Path) -> tuple[list[float], float]:
    """By step, the share of rollouts with the habit; and the KL of the other turns' tokens, start to end."""
    run = memory_run(start, config(feedback=feedback), seed, scratch)
    seen: list[Trajectory] = []
    first: list[Trajectory] = []
    shares: list[float] = []

    async def on_trajectory(trajectory: Trajectory) -> None:
        seen.append(trajectory)

    async def on_step(step: SyncStep) -> None:
        shares.append(sum(map(has_habit, seen)) / len(seen))
        say(seed=seed, feedback=feedback, step=step.step, habit=round(shares[-1], 3),
            passed=round(step.metrics["verdict/passed"], 3), shift=round(step.metrics.get("feedback/shift", 0.0), 4))  # fmt: skip
        first.extend(seen if step.step == 1 else [])
        seen.clear()

    run.on_trajectory = on_trajectory
    await train(run, procedural_prompts(seed), on_step=on_step)
    moved = others_kl(policies.load(start), run.policy, first)
    say(seed=seed, feedback=feedback, others_kl=round(moved, 5))
    return shares, moved


@torch.no_grad()
def others_kl(
    start: policies.Policy, end: policies.Policy, trajectories: Sequence[Trajectory], temperature: float = 0.8
) -> float:
    """Mean KL(start ‖ end) in nats at the policy tokens of turns without the habit."""
    total, count = 0.0, 0
    rows = sorted(trajectories, key=lambda t: (t.task_id, t.sample))[:32]
    for trajectory in rows:
        bad = {hint.turn for hint in find(trajectory, rules=("unknown_tool",), tools=TOOLS)}
        tokens = trajectory.segments[0].tokens
        at = [p - 1 for t in trajectory.turns if t.index not in bad for p in range(t.token_start, t.token_end)]
        before, after = (
            torch.log_softmax(p.model(torch.tensor([tokens or [PAD]])).logits[0, at].float() / temperature, -1)
            for p in (start, end)
        )
        total += float((before.exp() * (before - after)).sum())
        count += len(at)
    return total / max(1, count)


def start(key: str, where: Path) -> kept.Point:
    """Of `start-SEED`: the policy with the habit, beside its point."""
    asyncio.run(teach_habit(where / key, int(key.removeprefix("start-"))))
    return {}


def measured(key: str, where: Path) -> kept.Point:
    """Of `ARM-SEED`: the habit by step, and how far the other turns' tokens moved."""
    name, number = key.split("-")
    with tempfile.TemporaryDirectory(prefix="feedback-") as scratch:
        shares, moved = asyncio.run(
            arm(where / f"start-{number}", int(number), feedback=ARMS[name], scratch=Path(scratch))
        )
    return {"habit": shares, "others_kl": moved}


def draw(found: Mapping[str, kept.Point], seeds: Sequence[int]) -> plot.Figure:
    """The habit by step, a line a seed and a colour an arm."""
    figure = plot.Figure()
    for name, (label, colour) in {
        "reward": ("reward alone", figures.COLOURS[0]), "feedback": ("with textual feedback", figures.COLOURS[1]),
    }.items():  # fmt: skip
        for seed in seeds:
            shares = found[f"{name}-{seed}"]["habit"]
            figure.add_scatter(
                x=[*range(1, len(shares) + 1)], y=shares, mode="lines", name=label, line={"color": colour},
                legendgroup=name, showlegend=seed == seeds[0],
            )  # fmt: skip
    figure.update_layout(xaxis_title="step", yaxis_title="share of rollouts with the wrong-tool habit")
    return figure


def main() -> None:
    torch.set_num_threads(1)
    seeds = [int(text) for text in os.environ.get("SEEDS", "0+1+2").split("+")]
    where = kept.folder(
        "feedback", {"steps": STEPS, "prompts": GROUPS, "sft": SFT_STEPS, "episodes": EPISODES, "policy": str(POLICY)}
    )
    kept.points(where, [f"start-{seed}" for seed in seeds], start)
    found = kept.points(where, [f"{name}-{seed}" for seed in seeds for name in ARMS], measured)
    figures.write("feedback", draw(found, seeds))
    alone, both = ([found[f"{name}-{seed}"] for seed in seeds] for name in ARMS)
    areas = [fmean(b["habit"][1:]) / fmean(a["habit"][1:]) for a, b in zip(alone, both, strict=True)]
    metrics: dict[str, float] = {
        "habit_before_min": round(min(one["habit"][0] for one in alone), 3),
        "habit_area_ratio_max": round(max(areas), 3),
        "habit_last_reward": round(fmean(one["habit"][-1] for one in alone), 3),
        "habit_last_feedback": round(fmean(one["habit"][-1] for one in both), 3),
        "others_kl_reward_max": round(max(one["others_kl"] for one in alone), 4),
        "others_kl_feedback_max": round(max(one["others_kl"] for one in both), 4),
    }
    curves = {key: [round(v, 3) for v in one["habit"]] for key, one in found.items()}
    report.emit("feedback", metrics, goals=GOALS, conditions={"seeds": seeds, "steps": STEPS, "habit_by_step": curves})


if __name__ == "__main__":
    main()
