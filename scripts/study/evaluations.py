"""Evaluations of a study: found again by policy, suite and seed, waited for, and read."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from scripts.study.plan import TEMPERATURE, Evaluated, Plan
from scripts.study.requests import Answer, Job, Requests

ENDED_BADLY = ("failed", "cancelled")


class Results(Answer):
    """Figures of a finished evaluation. Intervals are of 95 %, over tasks."""

    pass1: float | None = None
    pass1_low: float | None = None
    pass1_high: float | None = None
    tasks: int = 0
    tokens: int = 0
    """Tokens that the policy wrote, over all rollouts with a verdict."""
    seconds: float = 0.0
    verdicts: dict[str, int] = Field(default_factory=dict)


class Evaluation(Job):
    id: int
    policy: str
    version: int
    suite: str
    seed: int
    samples: int
    tasks: int
    groups_done: int = 0
    groups_total: int = 0
    results: Results = Field(default_factory=Results)


class Policy(Answer):
    name: str
    newest_version: int | None = None


class Comparison(Answer):
    difference: float
    low: float
    high: float


def start(requests: Requests, *, policy: str, suite: str, how: Evaluated, seed: int, limits: Plan | None) -> int:
    """Id of the evaluation of a policy's newest version. `limits` None: those of an endpoint."""
    version = _version(requests, policy)
    for one in requests.listed(Evaluation, "/evaluations", policy=policy, suite=suite):
        if one.state not in ENDED_BADLY and (one.version, one.seed, one.samples) == (version, seed, how.samples):
            return one.id
    body: dict[str, object] = {
        "policy": policy,
        "suite": suite,
        "tasks": how.tasks,
        "samples": how.samples,
        "seed": seed,
    }
    if limits is not None:
        body |= {"turns": limits.turns, "context_tokens": limits.context_tokens}
    return int(requests.client.post("/evaluations", {**body, "temperature": TEMPERATURE})["id"])


def _version(requests: Requests, policy: str) -> int:
    found = requests.found(Policy, "/policies/{name}", name=policy)
    return (found.newest_version or 0) if found else 0


def wait(requests: Requests, number: int) -> Evaluation:
    return requests.wait(
        Evaluation,
        "/evaluations/{evaluation_id}",
        evaluation_id=number,
        what=f"evaluation {number}",
        good=("finished",),
        bad=ENDED_BADLY,
        tell=lambda one: f"{one.policy} on {one.suite}: {one.groups_done} of {one.groups_total} tasks",
    )


def compare(requests: Requests, before: int, after: int) -> Comparison:
    """Difference of pass@1, task by task."""
    query = {"before": before, "after": after}
    return Comparison.model_validate(requests.client.get("/evaluations/compare", query))


def ended(requests: Requests, number: int) -> dict[str, Any]:
    """What the state keeps of a finished evaluation."""
    return wait(requests, number).model_dump(include={"id", "policy", "version", "suite", "results"})
