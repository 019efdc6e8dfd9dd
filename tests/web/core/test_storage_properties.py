"""Whatever text and JSON a rollout holds: it is stored and read back, or that one rollout fails, and its group never."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from composer_web.core.artifacts import ArtifactError, artifacts
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import batches, services
from composer_web.rollouts.models import Finding, Group, Rollout, RolloutText
from composer_web.rollouts.trajectory import trajectory_store
from composer_web.rollouts.worker import accepting
from composer_web.rollouts.worker.accepting import accept_result
from composer_web.rollouts.worker.recorder import Recorder
from composer_web.runs.models import Run, TrainBatch
from sandbox.grading.verdict.findings import ReportFinding, Rule
from sandbox.grading.verdict.outcomes import OUTCOMES, Cause, Verdict
from sandbox.grading.verdict.report import CaseResult, Report
from sandbox.harness.types import ToolCall, ToolError, ToolErrorKind, ToolResult
from sandbox.storable import storable_json, storable_text
from tests.support.blobs import artifact_folder, blob_file
from tests.web.making import claim, take_run, trajectory
from trainer.config import RLConfig
from trainer.rollouts.ending import stored
from trainer.rollouts.group import run_attempts
from trainer.types import RewardPart, TrainGroup, Trajectory, Turn

pytestmark = pytest.mark.django_db

CONTROLS = "".join(map(chr, [*range(32), 127, 0x85, 0x2028, 0xFEFF, 0xFFFE, 0xFFFF]))
TEXT = st.text(st.characters(exclude_categories=()), max_size=30) | st.sampled_from(
    [
        "a\0b",
        "\ud800",
        "\udfff\ud800",
        "\U0001f4a9\U0010ffff",
        CONTROLS,
        "\\u0000 \\ud800",
        "'; --",
        "%s %(x)s {}",
        "x" * 70_000,
    ]
)
"""Every code point of Python's: NUL, lone surrogates, astral and control characters."""
NUMBERS = st.sampled_from([1 << 63, -(1 << 63) - 1, 10**400, float("nan"), float("inf"), -float("inf"), -0.0, 5e-324])


def nested(depth: int) -> object:
    value: object = {"deep": "\0"}
    for _ in range(depth):
        value = [value]
    return value


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
) | st.sampled_from([31, 32, 33, 2000]).map(nested)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=3)
FIELDS = (
    "text",
    "asked",
    "id",
    "name",
    "output",
    "error",
    "patch",
    "skipped",
    "cause",
    "case",
    "message",
    "dropped",
    "detail",
)
WORDS = st.fixed_dictionaries(dict.fromkeys(FIELDS, TEXT))
HUGE = {"rows": [{"n": n, "name": f"row {n}"} for n in range(120_000)]}
PLAIN = dict.fromkeys(FIELDS, "plain")
SAME_GROUP = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
"""Each example is rolled back, so that the next one finds the group open."""


def as_floats(value: object) -> object:
    """The value with its integers as floats: a column of Postgres gives 1e300 back with all of its digits."""
    return json.loads(json.dumps(value), parse_int=float)


def content(words: dict[str, str], values: dict[str, Any], *, passed: bool) -> dict[str, Any]:
    """Every field of a trajectory that a policy, its tests or a judge fills."""
    outcome = Cause.ALL_PASSED if passed else Cause.TESTS_FAILED
    call = ToolCall(id=words["id"], name=words["name"], arguments=values)
    error = ToolError(kind=ToolErrorKind.NOT_FOUND, message=words["error"])
    result = ToolResult(call_id=words["id"], output=words["output"], error=error)
    return {
        "messages": ({"role": "user", "content": words["text"]}, {"role": "user", "extra": values}),
        "turns": (
            Turn(index=0, text=words["text"], token_start=1, token_end=3, calls=(call,), results=(result,), asked=words["asked"]),
        ),
        "patch": words["patch"],
        "patch_skipped": (words["skipped"],),
        "report": Report(
            verdict=OUTCOMES[outcome].verdict,
            outcome=outcome,
            cases=(CaseResult(id=words["case"], status="failed", message=words["message"]),),
            cause=words["cause"],
            dropped=(words["dropped"],),
            findings=(ReportFinding(rule=Rule.ODD_PATH, detail=words["detail"]),),
        ),
        "reward_parts": (RewardPart(name="tests", value=float(passed), detail=values),),
        "reward": float(passed),
    }  # fmt: skip


def play(group: Group, odd: dict[str, Any], *, checked: bool = True) -> bool:
    """What a worker does with a group: each attempt stored as it ends, then audited and accepted. Sample 0 holds `odd`.
    Whether it was accepted."""
    claimed = claim(group)
    group, held = claimed.group, claimed.held
    stage = group.run.configuration.stage if group.run else None
    assert isinstance(stage, RLConfig)
    recorder = Recorder(f"groups/{group.pk}/{held.token}")
    task = group.task_version.bundle

    async def episode(sample: int, session: str, seed: int) -> Trajectory:
        made = trajectory(group, sample, passed=sample == 1)
        if sample == 0:
            made = Trajectory(**{**dict(made), **odd}) if checked else made.model_copy(update=odd)
        return await stored(made, recorder, task, stage.reward)

    result = asyncio.run(
        run_attempts(
            episode,
            group_id=f"{group.pk}-1",
            prompt_index=group.prompt_index,
            config=stage,
            seed=1,
            dispatched_version=0,
        )
    )
    assert result.train_group is not None, f"the group is lost: {result.loss}"
    return accept_result(group=group, held=held, task=task, config=stage, result=result, recorder=recorder)


def rows_of(group: Group) -> list[Rollout]:
    """Checks what holds whatever sample 0 is: an accepted group with two verdicts, and the sibling as it was."""
    group.refresh_from_db()
    odd, sibling = Rollout.objects.filter(group=group).order_by("sample")
    assert group.state == "accepted"
    assert len(artifacts().get_model(group.train_key, TrainGroup).rewards) == 2, "the loss counts"
    assert odd.verdict in ("passed", "failed") and odd.reward is not None
    assert (sibling.verdict, sibling.reward, sibling.cause) == ("passed", 1.0, "")
    assert selectors.trajectory(sibling) == trajectory(group, 1, passed=True)
    return [odd, sibling]


@pytest.fixture
def group(running: Run) -> Group:
    services.pump(run_id=running.pk)
    return Group.objects.filter(run=running).earliest("prompt_index")


@pytest.mark.integration
@settings(max_examples=15, suppress_health_check=SAME_GROUP)
@given(words=WORDS, values=OBJECTS, passed=st.booleans())
@example(words=PLAIN, values={"a": nested(3000)}, passed=False)
@example(words=PLAIN, values=HUGE, passed=False)
@example(words=dict.fromkeys(FIELDS, "\0\ud800"), values={"\0": "\udfff"}, passed=True)
@example(words=dict.fromkeys(FIELDS, "\U0001f4a9" * 300_000), values={}, passed=False)
def test_every_field_is_stored_and_read_back(
    group: Group, words: dict[str, str], values: dict[str, Any], passed: bool
) -> None:
    with transaction.atomic():
        assert play(group, content(words, values, passed=passed))
        odd, _ = rows_of(group)
        kept = selectors.trajectory(odd)
        assert (odd.verdict, odd.reward) == (("passed", 1.0) if passed else ("failed", 0.0))
        (turn,) = kept.turns
        (call,), (result,) = turn.calls, turn.results
        told = {"text": turn.text, "asked": turn.asked, "id": call.id, "name": call.name, "output": result.output,
                "error": result.error and result.error.message, "patch": kept.patch, "skipped": kept.patch_skipped[0],
                "cause": kept.report.cause, "case": kept.report.cases[0].id, "message": kept.report.cases[0].message,
                "dropped": kept.report.dropped[0], "detail": kept.report.findings[0].detail}  # fmt: skip
        assert told == {name: storable_text(text) for name, text in words.items()}
        form, problem = storable_json(values)
        assert call.arguments == form and bool(call.refused) == bool(problem)
        assert json.dumps(kept.messages[1]["extra"]) == json.dumps(
            storable_json({"role": "user", "extra": values})[0]["extra"]
        )
        assert kept.reward_parts[0].detail == form
        assert as_floats(odd.reward_parts[0]["detail"]) == as_floats(form)
        assert odd.cause == storable_text(words["cause"])[:2000]
        assert RolloutText.objects.filter(rollout=odd).exists()
        assert len(trajectory_store.of(odd).turns([0])) == 1
        found = Finding.objects.get(rollout=odd, rule="odd-path")
        assert found.summary is not None and json.dumps(found.evidence)
        transaction.set_rollback(True)


UNCHECKED = ("patch", "patch_skipped", "report", "turns", "messages", "reward_parts")


@settings(max_examples=12, suppress_health_check=SAME_GROUP)
@given(
    field=st.sampled_from(UNCHECKED), text=st.sampled_from(["\0", "\ud800", "\udfff\0 and more"]), passed=st.booleans()
)
def test_what_no_store_takes_costs_that_rollout_alone(group: Group, field: str, text: str, passed: bool) -> None:
    """Text that was never made storable, as code that forgets it would leave it."""
    part = content(PLAIN, {}, passed=passed)
    turn, report = part["turns"][0], part["report"]
    raw: dict[str, Any] = {
        "patch": text,
        "patch_skipped": (text,),
        "report": report.model_copy(update={"cause": text, "dropped": (text,)}),
        "turns": (turn.model_copy(update={"text": text}),),
        "messages": ({"role": "user", "content": text},),
        "reward_parts": (part["reward_parts"][0].model_copy(update={"detail": {text: text}}),),
    }
    with transaction.atomic():
        assert play(group, {**part, field: raw[field]}, checked=False)
        odd, _ = rows_of(group)
        if odd.outcome == Cause.UNSTORABLE:
            assert (odd.verdict, odd.reward) == ("failed", 0.0), "it is the policy's content"
        else:
            assert (odd.verdict, odd.reward) == (("passed", 1.0) if passed else ("failed", 0.0))
        assert selectors.trajectory(odd).verdict == Verdict(odd.verdict)
        transaction.set_rollback(True)


def test_a_group_that_is_too_large_to_store_is_dropped_at_once_with_its_verdicts(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "MAX_GROUP_BYTES", 100)
    assert not play(group, {})
    group.refresh_from_db()
    assert (group.state, group.outcome, group.attempts) == ("dropped", Cause.TOO_LARGE, 1), (
        "played again, it is as large"
    )
    assert "bytes are more than the 100 that can be read back" in group.cause
    verdicts = Rollout.objects.filter(group=group).order_by("sample").values_list("verdict", flat=True)
    assert list(verdicts) == ["failed", "passed"]


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_group_whose_stored_data_cannot_be_read_is_in_no_batch(group: Group, running: Run, damage: str) -> None:
    """A recorded batch is trained on whatever happens, so that a resume would fail the same way for ever."""
    for one in Group.objects.filter(run=running):
        assert play(one, {})
    group.refresh_from_db()
    path = blob_file(group.train_key)
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-8] if damage == "cut" else content[:-6] + bytes(6))
    held = take_run(running)
    assert held is not None
    batches.want(run=running, held=held, step=1)
    assert batches.assign(run_id=running.pk)
    batch = TrainBatch.objects.get(run=running, step=1)
    group.refresh_from_db()
    assert group.pk not in batch.group_ids and len(batch.group_ids) == 2
    assert (group.state, group.outcome) == ("dropped", Cause.DATA_LOST)
    for key in Group.objects.filter(pk__in=batch.group_ids).values_list("train_key", flat=True):
        assert artifacts().get_model(key, TrainGroup)


def test_a_store_that_does_not_answer_costs_no_group(group: Group, running: Run, tmp_path: Path) -> None:
    for one in Group.objects.filter(run=running):
        assert play(one, {})
    held = take_run(running)
    assert held is not None
    batches.want(run=running, held=held, step=1)
    away = artifact_folder().rename(tmp_path / "away")
    try:
        with pytest.raises(ArtifactError):
            batches.assign(run_id=running.pk)
    finally:
        away.rename(artifact_folder())
    assert not Group.objects.filter(run=running, state="dropped").exists()
    assert batches.assign(run_id=running.pk)
