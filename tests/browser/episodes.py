"""Tasks and episodes that nobody computed: specifications and suites, trajectories with something in every corner,
groups finished as a worker finishes them, and what a trainer would have known of their tokens."""

from __future__ import annotations

import random

from composer_web.core.artifacts import artifacts
from composer_web.env import REPOSITORY
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.rollouts.tokens import tokenizer
from composer_web.rollouts.trajectory import lens
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite
from composer_web.tasks.services import build_suite, record_controls
from sandbox.grading.verdict.report import CaseResult, Report, Verdict
from sandbox.harness.types import StopReason, ToolCall, ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec
from trainer.learning.token_export import TokenStreams, TrainedGroup, digest_of, packed
from trainer.types import RewardPart, Segment, Trajectory, Turn

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} </pre>"
FIXED = 'def scale(values, by):\n    """Each value times `by`."""\n    return [value * by for value in values]\n'
BROKEN = FIXED.replace("value * by", "value + by")


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
