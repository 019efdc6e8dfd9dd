"""A small, lively product, made through the services only: what page and browser tests look at.

Nothing is computed here: numbers are drawn so that each page has something in every corner (an infra error, a cut
output, hostile text). `python -m tests.browser` fills the database that the settings name, for screenshots.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import F
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import create_user
from composer_web.core.queue import leases
from composer_web.env import REPOSITORY, env
from composer_web.evals import services as evals
from composer_web.evals.models import Evaluation
from composer_web.evals.results.scoring import score
from composer_web.policies.services import import_base
from composer_web.review import services as review
from composer_web.review.questions import EXAMPLE
from composer_web.rollouts.dispatch import findings as rollout_findings
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Finding, Group, Rollout
from composer_web.runs import metrics, services
from composer_web.runs.models import Metric, Run
from composer_web.tasks import reviewing
from composer_web.tasks.curation import services as curation
from composer_web.tasks.models import Task
from sandbox.grading.audit import Evidence, Severity
from sandbox.grading.audit import Finding as AuditFinding
from sandbox.grading.redteam import Outcome, RedTeam, Row, save
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from tests.browser.episodes import HOSTILE, finish_group, streams, suite
from tests.browser.sessions import recorded
from tests.redteam import pairs
from trainer.config import OrchestratorConfig, RunConfig
from trainer.toy.preset import toy_midtrain, toy_rl

PASSWORD = "correct horse 9"
LONG = 75
"""Rounds of the one long rollout (sample 0 of prompt 1): more turns than the page loads at once."""


def users() -> dict[str, User]:
    """One person a role, named after it."""
    return {
        role: create_user(username=role, password=PASSWORD, role=role)
        for role in ("viewer", "reviewer", "operator", "admin")
    }


def curves(run: Run, steps: range, *, draw: random.Random) -> None:
    """Metrics of an RL run that learns, step by step."""
    rows: list[tuple[int, str, float]] = []
    for step in steps:
        skill = 0.2 + 0.55 * (1 - math.exp(-step / 14)) + draw.uniform(-0.05, 0.05)
        values = {
            "reward/mean": skill,
            "reward/best_of_k": min(1.0, skill + 0.3),
            "policy/entropy": 0.14 - 0.0015 * step + draw.uniform(-0.01, 0.01),
            "staleness/mean": draw.uniform(0.2, 0.9),
            "staleness/max": 1.0,
            "idle/trainer": draw.uniform(0.3, 0.5),
            "idle/rollouts": draw.uniform(0.02, 0.1),
            "speed/generate_tokens": draw.uniform(1800, 2200),
            "speed/train_tokens": draw.uniform(7000, 9000),
            "groups/solved_none": max(0.0, 0.5 - skill / 2),
            "groups/solved_some": 0.4,
            "groups/solved_all": skill / 2,
            "mismatch/k3_mean": draw.uniform(1e-5, 5e-5),
            "mismatch/k3_p99": draw.uniform(1e-3, 4e-3),
            "optim/grad_norm": draw.uniform(0.2, 0.9),
            "tokens/policy": draw.uniform(38, 48),
            "tokens/total": draw.uniform(170, 200),
            "turns/mean": draw.uniform(3.5, 4.5),
            "calls/mean": draw.uniform(3.5, 4.5),
            "time/step": draw.uniform(2, 3),
            "time/wait_for_batch": draw.uniform(0.6, 1.2),
            "time/forward_backward": draw.uniform(0.5, 0.8),
            "optim/learning_rate": 7e-4,
            "tokens/trained": draw.uniform(9000, 11000),
            "stop/finished": 0.8,
            "stop/turn_limit": 0.15,
            "stop/token_limit": 0.05,
            "verdict/passed": skill,
        }
        rows += [(step, name, value) for name, value in values.items()]
    metrics.record_many(run=run, rows=rows)
    services.set_progress(run=run, step=steps[-1], phase="training")
    spread(run)


def spread(run: Run, seconds: float = 2.5) -> None:
    """As if a step took `seconds`: the run began that long ago, and each step's metrics are of its time."""
    begun = timezone.now() - timedelta(seconds=seconds * run.step)
    Run.objects.filter(pk=run.pk).update(started_at=begun)
    Metric.objects.filter(run=run).update(at=begun + F("step") * timedelta(seconds=seconds))


def findings(run: Run, *, reviewer: User) -> None:
    """A finding of each severity, one decided, one on a task and one on the run."""
    group = Group.objects.filter(run=run, prompt_index=0).get()
    place = Evidence(source="call", turn=2, call=0, field="new_string", start=0, end=9, excerpt="os._exit(0)" + HOSTILE)
    patch = Evidence(
        source="patch", turn=2, call=0, field="helpers/m0.py", line=3, start=40, end=52, excerpt="os._exit(0)"
    )
    made = {
        0: [
            AuditFinding(
                rule="early-exit",
                version=1,
                severity=Severity.HIGH,
                summary="ends the process",
                evidence=(patch, place),
            )
        ],
        1: [
            AuditFinding(
                rule="history-read", version=1, severity=Severity.MEDIUM, summary="git reflog", evidence=(place,)
            )
        ],
        2: [AuditFinding(rule="bare-claim", version=1, severity=Severity.LOW, summary="claims to have run tests")],
    }
    rollout_findings.record(group=group, found=made)
    weak = Finding.objects.get(rule="bare-claim", group=group)
    rollout_findings.decide(finding=weak, to="dismissed", actor=reviewer, note="The message says what it did.")
    alarm = {
        "rule_version": 1,
        "severity": "medium",
        "source": "monitor",
        "rule": "drift-turns",
        "key": "step-20",
        "run": run,
    }
    Finding.objects.create(subject="run", summary="The number of turns changes: 4.1 to 9.3 by step 20", **alarm)


def reviews(run: Run, people: dict[str, User]) -> None:
    """Curated tasks, one disputed, and a review queue that is half done."""
    tasks = list(Task.objects.filter(versions__suites__name="train").order_by("pk")[:6])
    curation.apply(tasks=tasks[:4], action="tag", value="arithmetic, easy", actor=people["operator"])
    curation.apply(tasks=tasks[2:6], action="split", value="train", actor=people["operator"])
    for task, words in zip(tasks[4:6], ("accept", "reject"), strict=True):
        version = task.versions.get()
        reviewing.review(version=version, decision="accept", actor=people["admin"])
        reviewing.review(version=version, decision=reviewing.as_decision(words), actor=people["reviewer"])
    queue = review.create_queue(
        name="quality", title="Quality of failed rollouts", questionnaire=EXAMPLE, reviewers=2, actor=people["operator"]
    )
    failed = Rollout.objects.filter(group__run=run, verdict="failed")
    review.fill(queue=queue, rollouts=failed, limit=6, actor=people["operator"])
    for index, item in enumerate(queue.items.order_by("pk")[:4]):
        hack = ["reward_hack"] if index == 1 else []
        given = {"verdict": "wrong", "quality": str(1 + index % 3), "flags": hack, "note": "gives up" + HOSTILE}
        review.label(item=item, answers=given, actor=people["reviewer"])
        if index < 3:
            other = {"verdict": "wrong" if index else "partly", "quality": str(1 + index), "flags": hack}
            review.label(item=item, answers=other, actor=people["admin"])


def red_team() -> None:
    """A table of two backends with a fault, for the page of the red team."""
    rows = [
        Row(
            id=pair.exploit.id,
            title=pair.exploit.title,
            defence=pair.defence,
            backend=backend,
            task=pair.task,
            exploit=Outcome(
                verdict=Verdict.FAILED,
                outcome=Cause.TESTS_FAILED,
                cause="4 of 9 cases failed",
                rules=tuple(map(str, pair.exploit.findings)) if (pair.exploit.id, backend) != ("B20", "docker") else (),
            ),
            honest=Outcome(verdict=Verdict.PASSED, outcome=Cause.ALL_PASSED),
            wanted=tuple(map(str, pair.exploit.findings)),
            unguarded=True if pair.leak or pair.fools_own_sandbox else None,
        )
        for pair in pairs()
        for backend in ("namespaces", "docker")
    ]
    table = RedTeam(
        at=timezone.now(), commit="abc1234", machine={"cpus": 2, "arch": "x86_64"}, seconds=90.0,
        backends=("namespaces", "docker"), rows=tuple(rows),
    )  # fmt: skip
    save(env().data, table)


def evaluation(run: Run, *, version: int, skill: float, draw: random.Random) -> Evaluation | None:
    """A finished evaluation of the run at this version, with its rollouts."""
    made = evals.for_version(run=run, version=version)
    if made is None:
        return None
    ids = list(made.suite.memberships.order_by("position").values_list("task_version_id", flat=True))[: made.tasks]
    evals.mark_running(evaluation=made)
    rollouts.dispatch_evaluation(evaluation=made, version_ids=ids)
    for group in made.groups.select_related("task_version"):
        finish_group(group, draw=draw, skill=skill)
    passes: dict[int, list[bool]] = {}
    for row in Rollout.objects.filter(group__evaluation=made).values("group", "verdict"):
        passes.setdefault(row["group"], []).append(row["verdict"] == "passed")
    return evals.mark_finished(
        evaluation=made, results=score(list(passes.values()), samples=made.samples, lost=0, seconds=12.0)
    )


@dataclass(frozen=True)
class World:
    people: dict[str, User]
    run: Run
    finished: Run
    other: Run


def world(*, steps: int = 26, groups: int = 12) -> World:
    """People, suites, a running RL run with rollouts and evaluations, and a finished mid-training run."""
    draw = random.Random(7)
    people = users()
    import_base(path=REPOSITORY / "policies" / "base", description="The demo's starting point.", toy=True)
    suite("train", 64, purpose="train")
    suite("held-out", 16, purpose="held-out")
    small = RunConfig(name="Mid-training first pass", stage=toy_midtrain(steps=40))
    finished = services.start_run(
        run=services.create_run(config=small, actor=people["operator"]), actor=people["operator"]
    )
    services.mark_running(run=finished, owner="trainer@seed/0")
    metrics.record_many(
        run=finished,
        rows=[(s, "loss/train", 3.2 * math.exp(-s / 12) + 1.1 + draw.uniform(-0.05, 0.05)) for s in range(1, 41)],
    )
    services.set_progress(run=finished, step=40)
    services.mark_finished(run=finished)
    earlier = RunConfig(
        name="RL on-policy", stage=toy_rl(steps=20, groups_per_step=1, max_off_policy_steps=0, max_in_flight_groups=1)
    )
    other = services.start_run(
        run=services.create_run(config=earlier, actor=people["operator"]), actor=people["operator"]
    )
    services.mark_running(run=other, owner="trainer@seed/0")
    curves(other, range(1, 21), draw=draw)
    services.mark_finished(run=other)
    config = RunConfig(
        name="RL on small repositories",
        stage=toy_rl(
            steps=40,
            groups_per_step=1,
            group_size=8,
            max_in_flight_groups=2,
            eval_tasks=8,
            eval_samples=4,
            eval_every=13,
            orchestrator=OrchestratorConfig(
                max_buffered_steps=0
            ),  # nobody trains here: what is finished waits for good
        ),
    )
    run = services.start_run(
        run=services.create_run(config=config, actor=people["operator"], parent=finished), actor=people["operator"]
    )
    services.mark_running(run=run, owner="trainer@seed/0")
    services.record_version(run=run, version=0)
    evaluation(run, version=0, skill=0.2, draw=draw)
    for index in range(groups):
        rollouts.pump(run_id=run.pk)
        group = (
            Group.objects.filter(run=run, state="dispatched")
            .select_related("task_version")
            .order_by("prompt_index")
            .first()
        )
        assert group is not None
        finish_group(group, draw=draw, skill=0.25 + 0.05 * index, hostile=index == 0, long=LONG if index == 1 else 1)
        services.record_version(run=run, version=index + 1)
    streams(run, 1, draw=random.Random(5))
    findings(run, reviewer=people["reviewer"])
    reviews(run, people)
    recorded(people, hostile=HOSTILE)
    red_team()
    curves(run, range(1, steps + 1), draw=draw)
    evaluation(run, version=13, skill=0.55, draw=draw)
    services.add_event(run=run, kind="checkpoint", message="checkpoint of step 20 saved", step=20)
    services.add_event(
        run=run, kind="infra", level="warning", message="group 7: 1 attempt was lost and run again", step=21
    )
    leases.take(f"run:{run.pk}", owner="trainer@seed/0", seconds=3600)
    return World(people, run, finished, other)
