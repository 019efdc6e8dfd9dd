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
from composer_web.env import REPOSITORY, env
from composer_web.evals import services as evals
from composer_web.evals.models import Evaluation
from composer_web.evals.scoring import score
from composer_web.ops import leases
from composer_web.ops.artifacts import artifacts
from composer_web.policies.services import import_base
from composer_web.review import services as review
from composer_web.review.questions import EXAMPLE
from composer_web.rollouts import auditing, lens
from composer_web.rollouts import services as rollouts
from composer_web.rollouts.models import Finding, Group, Rollout
from composer_web.rollouts.tokens import tokenizer
from composer_web.runs import metrics, services
from composer_web.runs.models import Metric, Run
from composer_web.tasks import curation, reviewing
from composer_web.tasks.models import Suite, Task
from composer_web.tasks.services import build_suite, record_controls
from sandbox.grading.audit import Evidence, Severity
from sandbox.grading.audit import Finding as Found
from sandbox.grading.outcomes import Cause
from sandbox.grading.redteam import Outcome, RedTeam, Row, save
from sandbox.grading.report import CaseResult, Report, Verdict
from sandbox.harness.types import StopReason, ToolCall, ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec
from tests.browser.sessions import recorded
from tests.redteam import pairs
from trainer.config import MidtrainConfig, RLConfig, RunConfig
from trainer.learning.streams import TokenStreams, TrainedGroup, digest_of, packed
from trainer.rollouts.types import RewardPart, Segment, Trajectory, Turn

PASSWORD = "correct horse 9"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} </pre>"
LONG = 75
"""Rounds of the one long rollout (sample 0 of prompt 1): more turns than the page loads at once."""
FIXED = 'def scale(values, by):\n    """Each value times `by`."""\n    return [value * by for value in values]\n'
BROKEN = FIXED.replace("value * by", "value + by")


def users() -> dict[str, User]:
    """One person a role, named after it."""
    return {
        role: create_user(username=role, password=PASSWORD, role=role)
        for role in ("viewer", "reviewer", "operator", "admin")
    }


def task(index: int, *, split: str = "train", instruction: str = "") -> TaskSpec:
    name = f"{split}-{index:04d}"
    return TaskSpec(
        id=f"scale-{name}",
        source="procedural",
        family=f"package:src/package_{split}/_module_{index % 5}.py:ClassWithALongName.method_with_a_long_name",
        instruction=instruction or f"scale([2, 3], 4) returns [6, 7] but should be [8, 12]. Fix helpers/m{index}.py.",
        environment=InlineEnvironment(
            files={
                f"helpers/m{index}.py": BROKEN,
                "README.md": f"# Repository {index}\n",
                "tests.py": "import helpers\n",
            }
        ),
        verifier=CallsVerifier(
            module=f"helpers/m{index}.py",
            function="scale",
            cases=tuple(
                (f"([{i}, {i + 1}], {index + 2})", f"[{i * (index + 2)}, {(i + 1) * (index + 2)}]") for i in range(6)
            ),
        ),
        gold={f"helpers/m{index}.py": FIXED},
    )


def suite(name: str, count: int, *, purpose: str) -> Suite:
    made = build_suite(
        name=name,
        purpose=purpose,
        specs=[task(i, split=purpose) for i in range(count)],
        description=f"{count} generated one-bug repositories",
        recipe={"generator": "tests", "count": count},
    )
    for version in made.versions.all()[: count // 2]:
        controls = {
            "bundle_hash": version.bundle_hash,
            "oracle": ["passed"] * 3,
            "noop": ["failed"] * 3,
            "ok": True,
            "reason": "",
            "seconds": 0.3,
        }
        record_controls(version=version, controls=controls, ok=True)
    return made


def trajectory(
    spec: TaskSpec,
    *,
    sample: int,
    verdict: Verdict,
    version: int,
    hostile: bool = False,
    rounds: int = 1,
    draw: random.Random,
) -> Trajectory:
    """An episode of the toy harness: search and read `rounds` times, edit, finish."""
    path = spec.verifier.module if isinstance(spec.verifier, CallsVerifier) else "a.py"
    extra = HOSTILE if hostile else ""
    numbered = "\n".join(f"{i + 1}|{line}" for i, line in enumerate(BROKEN.splitlines()))
    missing = ToolError(kind=ToolErrorKind.NOT_FOUND, message=f"old_string not found in {path}")
    right = verdict == Verdict.PASSED
    new = "value * by" if right else "value - by"
    steps = [
        ("grep", {"pattern": "def scale"}, f"{path}:1:def scale(values, by):{extra}", None, 0),
        ("read_file", {"path": path}, numbered + extra, None, 4096 if hostile else 0),
        ("edit_file", {"path": path, "old_string": "value + by", "new_string": new}, f"edited {path}:3", None, 0),
        ("finish", {"summary": "done" + extra}, "", None, 0),
    ]
    if not right:
        steps[2] = (
            "edit_file",
            {"path": path, "old_string": "value ++ by", "new_string": new},
            f"error: {missing.message}",
            missing,
            0,
        )
    steps = steps[:2] * rounds + steps[2:]
    codec = tokenizer(REPOSITORY / "policies" / "base")
    tokens: list[int] = codec.encode(spec.instruction).ids if codec else list(range(30))
    mask, logprobs, versions = [0] * len(tokens), [0.0] * len(tokens), [-1] * len(tokens)
    turns = []
    for index, (tool, arguments, output, error, cut) in enumerate(steps):
        text = f'{{"name": "{tool}", "arguments": {arguments}}}'
        ids = codec.encode(text).ids if codec else list(range(12))
        start = len(tokens)
        tokens += ids
        mask += [1] * len(ids)
        logprobs += [-draw.expovariate(4.0) for _ in ids]
        versions += [version] * len(ids)
        call = ToolCall(id=f"c{index}", name=tool, arguments=arguments)
        result = ToolResult(
            call_id=call.id, output=output, error=error, seconds=draw.uniform(0.001, 0.01), cut_bytes=cut
        )
        turns.append(
            Turn(
                index=index,
                text=text + extra,
                token_start=start,
                token_end=len(tokens),
                calls=(call,),
                results=(result,),
                generate_seconds=draw.uniform(0.1, 0.6),
                tool_seconds=result.seconds,
            )
        )
        seen = codec.encode(output).ids if codec else [1, 2]
        tokens, mask = tokens + seen, mask + [0] * len(seen)
        logprobs, versions = logprobs + [0.0] * len(seen), versions + [-1] * len(seen)
    passed = 6 if right else draw.randint(0, 4)
    cases = tuple(
        CaseResult(
            id=f"case-{i:03d}",
            status="passed" if i < passed else "failed",
            message="" if i < passed else f"got [6, 7], expected [8, 12]{extra}",
        )
        for i in range(6)
    )
    lost = verdict == Verdict.INFRA_ERROR
    patch = (
        f"--- a/{path}\n+++ b/{path}\n@@ -1,3 +1,3 @@\n def scale(values, by):\n"
        f"-    return [value + by for value in values]\n+    return [{new} for value in values]{extra}\n"
    )
    return Trajectory(
        task_id=spec.id,
        bundle_hash=spec.bundle_hash,
        sample=sample,
        messages=({"role": "user", "content": spec.instruction + extra},),
        tool_schema_hash="9f" * 32,
        turns=tuple(turns),
        segments=(Segment(tokens=tokens, logprobs=logprobs, loss_mask=mask, versions=versions),),
        stop_reason=StopReason.FINISHED,
        patch="" if lost else patch,
        report=Report(
            verdict=verdict,
            cases=() if lost else cases,
            cause="" if right else "the sandbox was lost" if lost else f"{6 - passed} of 6 cases failed",
        ),
        reward_parts=()
        if lost
        else (
            RewardPart(name="tests", value=float(right)),
            RewardPart(name="length", value=-0.03, weight=1.0, detail={"x": 42}),
        ),
        reward=None if lost else float(right) - 0.03,
        seconds={"start": 0.02, "generate": 1.4, "tools": 0.03, "grade": 0.05, "total": 1.5},
        limits_in_force=("memory", "processes", "disk"),
    )


def finish_group(group: Group, *, draw: random.Random, skill: float, hostile: bool = False, long: int = 1) -> None:
    """Claim a dispatched group, record its trajectories and accept it, as a rollout worker does."""
    claim = rollouts.claim(group_id=group.pk, owner="tests@seed/1", seconds=60)
    assert claim is not None
    finish_claimed(claim, draw=draw, skill=skill, hostile=hostile, long=long)


def finish_claimed(
    claim: rollouts.Claim, *, draw: random.Random, skill: float = 0.5, hostile: bool = False, long: int = 1
) -> None:
    """The second half of it."""
    group = claim.group
    spec = group.task_version.bundle
    graded = []
    for sample in range(group.size):
        verdict = Verdict.PASSED if draw.random() < skill else Verdict.FAILED
        item = trajectory(
            spec,
            sample=sample,
            verdict=verdict,
            version=max(0, group.dispatched_version),
            hostile=hostile,
            rounds=long if sample == 0 else 1,
            draw=draw,
        )
        key = f"groups/{group.pk}/{sample}.json.zst"
        artifacts().put_model(key, item)
        graded.append(rollouts.Graded(item, key))
    rollouts.accept(
        group=claim.group,
        held=claim.held,
        graded=graded,
        train_key="",
        oldest_version=max(0, group.dispatched_version),
        infra_errors=(),
    )


def streams(run: Run, prompt: int, *, draw: random.Random) -> None:
    """What a trainer would have known of the tokens of one group."""
    group = Group.objects.get(run=run, prompt_index=prompt)
    samples = []
    for rollout in group.rollouts.exclude(reward=None):
        for segment in artifacts().get_model(rollout.artifact_key, Trajectory).segments:
            sampled = [p for p, mask in zip(segment.logprobs, segment.loss_mask, strict=True) if mask]
            assert rollout.reward is not None
            samples.append(
                TokenStreams(
                    digest=digest_of(segment.tokens, segment.logprobs),
                    tokens=len(sampled),
                    advantages=packed([rollout.reward - 0.5] * len(sampled)),
                    trainer_logprobs=packed([p + draw.gauss(0, 0.08) for p in sampled]),
                    entropy=packed([draw.expovariate(1.0) for _ in sampled]),
                    weights=packed([0.0 if draw.random() < 0.05 else 1.0 for _ in sampled]),
                )
            )
    lens.keep(run=run, trained=[TrainedGroup(prompt_index=prompt, step=2, samples=samples)])


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
            Found(
                rule="early-exit",
                version=1,
                severity=Severity.HIGH,
                summary="ends the process",
                evidence=(patch, place),
            )
        ],
        1: [Found(rule="history-read", version=1, severity=Severity.MEDIUM, summary="git reflog", evidence=(place,))],
        2: [Found(rule="bare-claim", version=1, severity=Severity.LOW, summary="claims to have run tests")],
    }
    auditing.record(group=group, found=made)
    weak = Finding.objects.get(rule="bare-claim", group=group)
    auditing.decide(finding=weak, to="dismissed", actor=reviewer, note="The message says what it did.")
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
    small = RunConfig(name="Mid-training first pass", stage=MidtrainConfig(steps=40))
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
        name="RL on-policy", stage=RLConfig(steps=20, groups_per_step=1, max_staleness=0, max_in_flight_groups=1)
    )
    other = services.start_run(
        run=services.create_run(config=earlier, actor=people["operator"]), actor=people["operator"]
    )
    services.mark_running(run=other, owner="trainer@seed/0")
    curves(other, range(1, 21), draw=draw)
    services.mark_finished(run=other)
    config = RunConfig(
        name="RL on small repositories",
        stage=RLConfig(
            steps=40,
            groups_per_step=1,
            group_size=8,
            max_in_flight_groups=2,
            eval_tasks=8,
            eval_samples=4,
            eval_every=13,
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
