"""Runs of a study: created once by name, started, waited for, and their curves."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from scripts.study.errors import StudyError
from scripts.study.plan import TEMPERATURE, Plan
from scripts.study.requests import Answer, Job, Requests

ENDED_BADLY = ("failed", "cancelled")
CURVES = (
    "loss/train",
    "reward/mean",
    "verdict/passed",
    "groups/zero_signal",
    "policy/entropy",
    "tokens/policy",
    "truncated",
)


class Run(Job):
    id: int
    name: str
    step: int = 0
    steps_total: int = 0
    phase: str = ""
    policy_out: str | None = None
    waits_for: str = ""
    eta_seconds: float | None = None
    latest: dict[str, float] = Field(default_factory=dict)


class Point(Answer):
    last: int
    value: float


class Curves(Answer):
    names: list[str]
    series: dict[str, list[Point]]


def sft(plan: Plan, *, name: str, policy: str, dataset: str, seed: int) -> dict[str, Any]:
    """Configuration of the SFT run."""
    stage = {
        "kind": "sft",
        "dataset": dataset,
        "max_tokens": plan.context_tokens,
        "steps": plan.sft_steps,
        "batch_tokens": plan.sft_batch_tokens,
        "micro_batch_tokens": plan.context_tokens,
        "optimizer": {"learning_rate": plan.sft_learning_rate},
    }
    return {"name": name, "policy": policy, "seed": seed, "stage": stage}


def rl(plan: Plan, *, name: str, policy: str, suite: str, seed: int) -> dict[str, Any]:
    """Configuration of the RL run. The study evaluates before and after it, so that the run does not."""
    sampling = {
        "temperature": TEMPERATURE,
        "max_context_tokens": plan.context_tokens,
        "max_turn_tokens": plan.turn_tokens,
        "max_turns": plan.turns,
    }
    stage = {
        "kind": "rl",
        "suite": suite,
        "steps": plan.rl_steps,
        "groups_per_step": plan.rl_groups,
        "group_size": plan.group_size,
        "micro_batch_tokens": max(4096, plan.context_tokens),
        "sampling": sampling,
        "optimizer": {"learning_rate": plan.rl_learning_rate, "warmup_steps": min(3, plan.rl_steps)},
        "eval_suite": None,
    }
    return {"name": name, "policy": policy, "seed": seed, "stage": stage}


def ensure(requests: Requests, config: dict[str, Any]) -> int:
    """Id of the newest run of that name that has not failed, created and started unless there is one."""
    found = next(
        (
            run
            for run in requests.listed(Run, "/runs", q=config["name"], archived="all")
            if run.name == config["name"] and run.state not in ENDED_BADLY
        ),
        None,
    )
    if found is None:
        return int(requests.client.post("/runs", config, params={"start": True})["id"])
    if found.state == "draft":
        requests.client.post("/runs/{run_id}/{action}", run_id=found.id, action="start")
    if found.state == "paused":
        requests.client.post("/runs/{run_id}/{action}", run_id=found.id, action="resume")
    return found.id


def wait(requests: Requests, number: int) -> Run:
    """The finished run. Raises StudyError: it failed, or published no policy."""
    run = requests.wait(
        Run,
        "/runs/{run_id}",
        run_id=number,
        what=f"run {number}",
        good=("finished",),
        bad=ENDED_BADLY,
        tell=_told,
    )
    if not run.policy_out:
        raise StudyError(f"run {number}", "it finished without a policy", "Look at the log on its page.")
    return run


def _told(run: Run) -> str:
    watched = [f"{name} {run.latest[name]:.3g}" for name in ("loss/train", "reward/mean") if name in run.latest]
    facts = [f"{run.name} is {run.state}", f"step {run.step} of {run.steps_total}", *watched, run.phase, run.waits_for]
    return ", ".join(fact for fact in facts if fact)


def curves(requests: Requests, number: int) -> dict[str, list[tuple[int, float]]]:
    """Metric → (step, value), of those in CURVES that the run has."""
    query = {"name": list(CURVES), "buckets": 500}
    found = Curves.model_validate(requests.client.get("/runs/{run_id}/metrics", query, run_id=number))
    return {name: [(point.last, point.value) for point in points] for name, points in found.series.items() if points}
