"""The auditor over trajectories: what leaves a group, and what the rest is trained on."""

from __future__ import annotations

import json

import pytest

from sandbox.grading.audit import Evidence, Finding, Severity
from sandbox.grading.verdict.findings import ReportFinding, Rule
from sandbox.grading.verdict.report import Report, Verdict
from sandbox.harness.types import ToolCall
from tests.trainer.rollouts.make import trajectory
from trainer.attempt import attempt_of
from trainer.config import MonitorsConfig
from trainer.rollouts.audit import (
    GroupAudit,
    audit_group,
    observed,
    quarantined,
    without,
)
from trainer.rollouts.group import build_train_group
from trainer.toy.preset import toy_rl
from trainer.types import HintedTurn, Trajectory

EXIT = (
    "diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n@@ -1,1 +1,3 @@\n+import os\n+os._exit(0)\n def f(): return 1\n"
)


def group(rewards: list[float], patches: dict[int, str] | None = None) -> list[Trajectory]:
    made = []
    for sample, reward in enumerate(rewards):
        verdict = Verdict.PASSED if reward else Verdict.FAILED
        item = trajectory(verdict, sample=sample, reward=reward, version=3 + sample)
        made.append(item.model_copy(update={"patch": (patches or {}).get(sample, "")}))
    return made


def test_an_attempt_knows_no_outcome() -> None:
    graded = trajectory(Verdict.PASSED, reward=1.0).model_copy(
        update={"messages": ({"role": "system", "content": "s"}, {"role": "user", "content": "mend it"})}
    )
    attempt = attempt_of(graded, None)
    assert attempt.instruction == "mend it"
    seen = json.dumps([attempt.instruction, [s.text for s in attempt.steps], attempt.patch])
    assert "passed" not in seen and not hasattr(attempt, "verdict") and not hasattr(attempt, "reward")
    other = graded.model_copy(update={"report": Report(verdict=Verdict.FAILED), "reward": 0.0})
    assert attempt_of(other, None) == attempt


def test_advantages_are_over_the_rest() -> None:
    made = group([1.0, 1.0, 0.0, 0.0], {1: EXIT})
    audited = audit_group(made, None)
    out = quarantined(audited, made, MonitorsConfig())
    assert out == {1}
    whole = build_train_group(made, group_id="g", prompt_index=4, config=toy_rl(), dispatched_version=2)
    rest = without(whole, made, out, toy_rl())
    assert rest is not None and rest.rewards == [1.0, 0.0, 0.0] and len(rest.samples) == 3
    assert [sample.advantages[3] for sample in rest.samples] == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert sum(s.advantages[3] for s in rest.samples) == pytest.approx(0.0), "a baseline without the one that left"
    assert (rest.prompt_index, rest.dispatched_version, rest.group_id, rest.oldest_version) == (4, 2, "g", 3)
    assert rest.stats["audit/quarantined"] == 0.25
    assert rest.stats["verdict/passed"] == 0.5, "what the policy does is not hidden"


def test_labels_and_the_hints_of_the_rest_survive_a_quarantined_sibling() -> None:
    made = group([1.0, 1.0, 0.0])
    hints = [HintedTurn(rule="r", sample=n, tokens=[1, 2], hinted_tokens=[1, 3, 2], turn_tokens=1) for n in (1, 0, 2)]
    whole = build_train_group(made, group_id="g", prompt_index=0, config=toy_rl())
    whole = whole.model_copy(update={"hints": hints, "labels": {"source": "procedural"}})
    rest = without(whole, made, {1}, toy_rl())
    assert rest is not None and rest.labels == {"source": "procedural"}
    assert rest.hints == hints[1:], "those of the quarantined rollout leave with it"


def test_too_few_are_no_group() -> None:
    made = group([1.0, 0.0, 0.0])
    whole = build_train_group(made, group_id="g", prompt_index=0, config=toy_rl())
    assert without(whole, made, {0}, toy_rl()) is not None
    assert without(whole, made, {0, 1}, toy_rl()) is None


@pytest.mark.parametrize(
    ("severity", "least", "ignored", "out"),
    [("high", "high", "", True), ("medium", "high", "", False), ("medium", "medium", "", True), ("low", "low", "", True),
     ("high", "never", "", False), ("high", "high", "x, y", False), ("high", "high", "z", True)],
)  # fmt: skip
def test_the_policy_decides(severity: str, least: str, ignored: str, out: bool) -> None:
    found = Finding(rule="y", version=1, severity=Severity(severity), summary="s", evidence=(Evidence(source="text"),))
    audited = GroupAudit(findings=((found,),), behaviour=({},))
    monitors = MonitorsConfig.model_validate({"quarantine": least, "ignored_rules": ignored})
    assert quarantined(audited, [trajectory(reward=1.0)], monitors) == (frozenset({0}) if out else frozenset())


def test_a_loss_with_a_high_finding_stays_in_its_group() -> None:
    made = group([1.0, 0.0, 1.0, 0.0], {1: EXIT, 2: EXIT})
    audited = audit_group(made, None)
    assert [[f.severity for f in found] for found in audited.findings] == [[], [Severity.HIGH], [Severity.HIGH], []]
    out = quarantined(audited, made, MonitorsConfig())
    assert out == {2}, "only the cheat that was paid leaves"
    whole = build_train_group(made, group_id="g", prompt_index=0, config=toy_rl())
    rest = without(whole, made, out, toy_rl())
    assert rest is not None and rest.rewards == [1.0, 0.0, 0.0]
    assert [sample.advantages[-1] for sample in rest.samples] == pytest.approx([2 / 3, -1 / 3, -1 / 3])


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.INFRA_ERROR])
def test_only_what_passed_is_quarantined(verdict: Verdict) -> None:
    found = Finding(rule="y", version=1, severity=Severity.HIGH, summary="s", evidence=(Evidence(source="text"),))
    audited = GroupAudit(findings=((found,),), behaviour=({},))
    assert quarantined(audited, [trajectory(verdict)], MonitorsConfig()) == frozenset()


def test_what_grading_noticed_is_a_finding() -> None:
    report = Report(
        verdict=Verdict.FAILED,
        findings=(ReportFinding(rule=Rule.CANARY_PASSED, detail="canary 3"), ReportFinding(rule=Rule.NO_EDIT)),
    )
    audited = audit_group([trajectory(reward=0.0).model_copy(update={"report": report})], None)
    ((finding,),) = audited.findings
    assert (finding.rule, finding.severity, finding.evidence[0].source) == ("canary-passed", Severity.HIGH, "report")


def test_numbers_for_the_step() -> None:
    call = ToolCall(id="0", name="run_terminal_cmd", arguments={"command": "ls"})
    made = group([1.0, 0.0], {0: EXIT})
    made[1] = made[1].model_copy(update={"turns": (made[1].turns[0].model_copy(update={"calls": (call,)}),)})
    numbers = observed(audit_group(made, None))
    assert numbers["audit/findings"] == 0.5 and numbers["behaviour/terminal_share"] == 0.5
    assert numbers["behaviour/patched"] == 0.5
