"""A benchmark for the small world of `seed.py`: a release with a leaderboard, a refresh, an endpoint, a promotion."""

from __future__ import annotations

import random

from composer_web.accounts.models import User
from composer_web.evals import services as evals
from composer_web.evals.models import Evaluation, Release
from composer_web.evals.results import releases, tasks
from composer_web.policies.models import Endpoint, Policy
from composer_web.policies.promotion import gate
from composer_web.policies.promotion import services as promotion
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.tasks.models import Suite
from tests.browser import episodes

LEVELS = (("low", 0.35), ("high", 0.7))


def evaluate(
    release: Release, policy: Policy, *, effort: str, skill: float, price: float, draw: random.Random
) -> Evaluation:
    """A finished evaluation of the release, with its rollouts and what rules say of them."""
    made = evals.create_evaluation(
        policy=policy,
        version=0,
        suite=release.suite,
        release=release,
        effort=effort,
        price={"input": price, "output": 5 * price},
        tasks=release.members.count(),
        samples=4,
    )
    evals.mark_running(evaluation=made)
    members = release.members.order_by("position").values_list("task_version_id", flat=True)
    rollouts.dispatch_evaluation(evaluation=made, version_ids=list(members))
    for index, group in enumerate(made.groups.select_related("task_version").order_by("prompt_index")):
        episodes.finish_group(group, draw=draw, skill=1.0 if index == 0 else 0.0 if index == 1 else skill)
    tasks.advance(evaluation_id=made.pk)
    for group in made.groups.all():
        tasks.grade_group(group_id=group.pk)
    return made


def remote(by: User) -> Policy:
    """A policy behind an endpoint that nobody asks here."""
    policy = Policy.objects.create(name="some-model", kind="endpoint", description="A model of another team.")
    Endpoint.objects.create(
        policy=policy,
        url="https://models.lan/v1",
        model="some-model-32b",
        price_input=0.4,
        price_output=2.0,
        created_by=by,
    )
    return policy


def benchmark(people: dict[str, User]) -> Release:
    """Two releases; the first has a leaderboard of two policies."""
    draw, operator = random.Random(11), people["operator"]
    first = releases.publish(
        benchmark="our-bench", suite=Suite.objects.get(name="held-out"), notes="One-bug repositories", unreviewed=True,
        actor=operator
    )  # fmt: skip
    base = Policy.objects.get(name="base")
    for effort, skill in LEVELS:
        evaluate(first, base, effort=effort, skill=skill, price=0.1, draw=draw)
    evaluate(first, remote(operator), effort="", skill=0.55, price=0.4, draw=draw)
    train = Suite.objects.get(name="train")
    releases.publish(benchmark="our-bench", suite=train, keep=True, unreviewed=True, actor=operator)
    rule = {"suite": "held-out", "measure": "pass1", "max_drop": 0.05}
    promotion.promote(reference="base", note="The demo's starting point", actor=operator)
    gate.set_rules(channel=promotion.CHANNEL, wanted=[rule], actor=operator)
    return first
