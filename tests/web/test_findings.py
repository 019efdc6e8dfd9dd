"""Findings: stored with their group, decided by people, and what follows from them; all of it can be undone."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import Conflict, UserError
from composer_web.rollouts import findings, selectors, services
from composer_web.rollouts.models import Finding, Group, Quarantine, Rollout
from composer_web.runs.metrics import record_many
from composer_web.runs.models import Run
from sandbox.grading.audit import Evidence, Severity
from sandbox.grading.audit import Finding as AuditFinding
from tests.web import cheating
from tests.web.cheating import finish
from trainer.types import TrainGroup

pytestmark = pytest.mark.django_db
wide, groups = cheating.wide, cheating.groups


def rewards(group: Group) -> list[float]:
    return artifacts().get_model(group.train_key, TrainGroup).rewards


def histories(row: Finding | Quarantine) -> list[tuple[str, str, str]]:
    return [(t.from_state, t.to_state, t.actor) for t in row.transitions.order_by("id")]


# --- a group with a cheat ---------------------------------------------------------------------------------------


def test_a_cheat_is_found_and_left_out(groups: list[Group]) -> None:
    group = finish(groups[0], {1: True})
    (finding,) = Finding.objects.filter(group=group)
    assert (finding.subject, finding.rule, finding.severity, finding.state) == ("rollout", "early-exit", "high", "open")
    assert finding.rollout is not None and finding.rollout.sample == 1 and finding.run_id == group.run_id
    place = finding.evidence[0]
    assert (place["turn"], place["field"], place["line"]) == (0, "m.py", 2)
    (held,) = Quarantine.objects.all()
    assert held.rollout == finding.rollout and histories(held) == [("", "active", "auditor")]
    assert histories(finding) == [("", "open", "auditor")]
    assert finding.rollout.verdict == "passed", "a finding changes no verdict"
    assert rewards(group) == [0.0, 0.0, 1.0], "advantages are over the rest"
    assert group.mean_reward == pytest.approx(1 / 3)
    made = artifacts().get_model(group.train_key, TrainGroup)
    assert [round(s.advantages[-1], 4) for s in made.samples] == [-0.3333, -0.3333, 0.6667]
    assert {sample: round(advantage, 4) for sample, (_, advantage) in group.weights.items()} == {
        "0": -0.3333, "2": -0.3333, "3": 0.6667,
    }  # fmt: skip
    assert made.stats["audit/quarantined"] == 0.25 and group.audited_with
    counts = selectors.verdict_counts(run=group.run)
    assert counts["dispatched"] == counts["passed"] + counts["failed"] + counts["infra_error"] + counts["open"]


def test_a_losing_cheat_stays_in_its_group(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {0: False, 1: True, 2: False})
    found = Finding.objects.filter(group=group, subject="rollout", severity="high", state="open")
    assert sorted(found.values_list("rollout__sample", flat=True)) == [0, 1, 2]
    assert [held.rollout.sample for held in Quarantine.objects.select_related("rollout") if held.rollout] == [1]
    assert group.state == "accepted" and rewards(group) == [0.0, 0.0, 1.0], "a loss is not thrown away by cheating"
    made = artifacts().get_model(group.train_key, TrainGroup)
    assert [round(s.advantages[-1], 4) for s in made.samples] == [-0.3333, -0.3333, 0.6667]
    assert group.mean_reward == pytest.approx(1 / 3)
    assert findings.audit_run(run=group.run, everything=True)["changed"] == 0
    lost = found.get(rollout__sample=0)
    findings.decide(finding=lost, to="confirmed", actor=people["reviewer"])
    group.refresh_from_db()
    assert rewards(group) == [0.0, 1.0], "a person may still take it out"


def test_a_group_of_losing_cheats_is_accepted_with_its_losses(groups: list[Group]) -> None:
    group = finish(groups[0], {0: False, 1: False, 2: False})
    assert group.state == "accepted" and rewards(group) == [0.0, 0.0, 0.0, 1.0]
    assert not Quarantine.objects.exists() and not Finding.objects.filter(subject="group").exists()


def test_honest_groups_have_no_findings(groups: list[Group]) -> None:
    finish(groups[0], {})
    assert not Finding.objects.exists() and not Quarantine.objects.exists()


def test_a_group_with_too_few_left_is_dropped_and_counted(groups: list[Group]) -> None:
    group = finish(groups[0], {0: True, 1: True, 2: True})
    assert group.state == "dropped" and "3 of 4 rollouts are in quarantine" in group.cause
    assert sorted(Rollout.objects.filter(group=group).values_list("verdict", flat=True)) == ["passed"] * 4
    assert Finding.objects.filter(subject="group", rule="hollow-group", group=group).count() == 1
    assert Group.objects.filter(run=group.run, state="dispatched").count() >= len(groups) - 1, "the gate has room again"


# --- people decide ----------------------------------------------------------------------------------------------


def test_dismissing_brings_the_rollout_back_into_training(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {1: True})
    finding = Finding.objects.get(group=group)
    before = group.train_key
    findings.decide(finding=finding, to="dismissed", actor=people["reviewer"], note="asked for in the task")
    group.refresh_from_db()
    assert rewards(group) == [0.0, 1.0, 0.0, 1.0] and group.mean_reward == 0.5 and group.train_key != before
    assert histories(Quarantine.objects.get()) == [("", "active", "auditor"), ("active", "lifted", "reviewer")]
    findings.decide(finding=finding, to="confirmed", actor=people["operator"])
    group.refresh_from_db()
    assert rewards(group) == [0.0, 0.0, 1.0]
    assert histories(finding) == [
        ("", "open", "auditor"), ("open", "dismissed", "reviewer"), ("dismissed", "confirmed", "operator")
    ]  # fmt: skip
    entry = AuditEntry.objects.filter(action="finding.dismissed").get()
    assert entry.actor == people["reviewer"] and entry.target == f"finding:{finding.pk}"
    assert (finding.decided_by, bool(finding.decided_at)) == (people["operator"], True)


def test_what_was_trained_stays_as_it_was_trained(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {1: True})
    services.consume(run=group.run, group_ids=[group.pk], step=1)
    before = group.train_key
    findings.decide(finding=Finding.objects.get(group=group), to="dismissed", actor=people["reviewer"])
    group.refresh_from_db()
    assert (
        group.train_key == before
        and group.state == "consumed"
        and not selectors.in_quarantine(Rollout.objects.get(group=group, sample=1))
    )


def test_confirming_a_weak_finding_quarantines(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {})
    weak = AuditFinding(
        rule="bare-claim", version=1, severity=Severity.LOW, summary="x", evidence=(Evidence(source="text"),)
    )
    findings.record(group=group, found={3: [weak]})
    assert not Quarantine.objects.exists()
    findings.decide(finding=Finding.objects.get(group=group), to="confirmed", actor=people["reviewer"])
    group.refresh_from_db()
    assert rewards(group) == [0.0, 0.0, 0.0] and Quarantine.objects.filter(state="active").count() == 1


def test_a_language_model_never_quarantines_by_itself(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {})
    rollout = Rollout.objects.get(group=group, sample=0)
    said = AuditFinding(rule="judge-lookup", version=1, severity=Severity.HIGH, summary="says so")
    findings.judged(rollout=rollout, found=[said])
    finding = Finding.objects.get(source="judge")
    assert not Quarantine.objects.exists()
    findings.decide(finding=finding, to="confirmed", actor=people["reviewer"])
    assert selectors.in_quarantine(rollout)


def test_decisions_that_cannot_be(groups: list[Group], people: dict[str, User]) -> None:
    finding = Finding.objects.get(group=finish(groups[0], {1: True}))
    with pytest.raises(Conflict, match="open and cannot become open"):
        findings.decide(finding=finding, to="open", actor=people["reviewer"])
    with pytest.raises(UserError, match="not 'gone'"):
        findings.decide(finding=finding, to="gone", actor=people["reviewer"])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="2000"):
        findings.decide(finding=finding, to="dismissed", actor=people["reviewer"], note="x" * 2001)


# --- audited again ----------------------------------------------------------------------------------------------


def test_auditing_again_changes_nothing(groups: list[Group]) -> None:
    group = finish(groups[0], {1: True})
    before = list(Finding.objects.values())
    assert findings.audit_run(run=group.run) == {"groups": 0, "changed": 0, "unreadable": 0}, (
        "the same rules have read it"
    )
    counts = findings.audit_run(run=group.run, everything=True)
    assert counts == {"groups": 1, "changed": 0, "unreadable": 0}
    assert list(Finding.objects.values()) == before


def test_other_rules_find_dismiss_and_reopen(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {1: True})
    group.audited_with = "older"
    group.save(update_fields=["audited_with"])
    finding = Finding.objects.get(group=group)
    old = AuditFinding(rule="gone-rule", version=1, severity=Severity.HIGH, summary="an older rule")
    findings.record(group=group, found={3: [old], 1: [as_found(finding)]})
    assert Quarantine.objects.filter(state="active").count() == 2
    findings.decide(finding=finding, to="dismissed", actor=people["reviewer"])
    findings.audit_run(run=group.run, everything=True)
    finding.refresh_from_db()
    assert finding.state == "dismissed", "the same evidence does not come back"
    gone = Finding.objects.get(rule="gone-rule")
    assert gone.state == "dismissed" and gone.decided_by is None and histories(gone)[-1][2] == "auditor"
    assert not Quarantine.objects.filter(state="active").exists()
    other = as_found(finding).model_copy(
        update={"version": 9, "evidence": (Evidence(source="call", turn=3, excerpt="new"),)}
    )
    findings.record(group=group, found={1: [other]})
    finding.refresh_from_db()
    assert finding.state == "open" and finding.rule_version == 9 and finding.evidence[0]["turn"] == 3
    assert finding.decided_by is None and selectors.in_quarantine(finding.rollout)  # type: ignore[arg-type]


def as_found(finding: Finding) -> AuditFinding:
    return AuditFinding(
        rule=finding.rule,
        version=finding.rule_version,
        severity=Severity(finding.severity),
        summary=finding.summary,
        evidence=tuple(Evidence.model_validate(item) for item in finding.evidence),
        hits=finding.hits,
    )


def test_a_confirmed_finding_keeps_what_was_confirmed(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {1: True})
    finding = Finding.objects.get(group=group)
    findings.decide(finding=finding, to="confirmed", actor=people["reviewer"])
    other = as_found(finding).model_copy(update={"version": 9, "summary": "else"})
    findings.record(group=group, found={1: [other]})
    findings.record(group=group, found={1: []})
    finding.refresh_from_db()
    assert (finding.state, finding.rule_version) == ("confirmed", 1)


# --- tasks and runs ---------------------------------------------------------------------------------------------


def test_a_task_that_invites_cheating_is_set_aside(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {0: True, 1: True, 2: True, 3: True})
    finding = Finding.objects.get(subject="task", rule="hacked-task")
    assert finding.task_version == group.task_version and finding.run == group.run
    assert Quarantine.objects.get(task_version=group.task_version).state == "active"
    run = group.run
    assert run is not None
    dispatched = set(Group.objects.filter(run=run).values_list("task_version_id", flat=True))
    spare = [pk for pk in quarantine_candidates(run) if pk not in dispatched]
    Quarantine.objects.create(task_version_id=spare[0])
    Group.objects.filter(run=run, state="dispatched").update(state="dropped")
    services.pump(run_id=run.pk)
    assert spare[0] not in set(Group.objects.filter(run=run).values_list("task_version_id", flat=True))
    findings.decide(finding=finding, to="dismissed", actor=people["reviewer"])
    assert Quarantine.objects.get(task_version=group.task_version).state == "lifted"


def quarantine_candidates(run: Run) -> list[int]:
    from composer_web.tasks.selectors import prompt_order

    return prompt_order("train", seed=run.seed)


def test_a_run_that_cheats_too_much_is_paused_once(groups: list[Group], people: dict[str, User]) -> None:
    run = groups[0].run
    assert run is not None
    finish(groups[0], {0: True, 1: True, 2: True})
    run.refresh_from_db()
    assert run.state == "running", "the window is not full"
    finish(groups[1], {0: True, 1: True})
    run.refresh_from_db()
    assert run.state == "pausing"
    finding = Finding.objects.get(subject="run", rule="quarantine-share")
    assert "62%" in finding.summary
    assert run.events.filter(kind="alert", message__contains="paused by a monitor").exists()
    Run.objects.filter(pk=run.pk).update(state="running")
    finish(groups[2], {0: True, 1: True})
    run.refresh_from_db()
    assert run.state == "running", "counting starts anew after a pause"


def test_behaviour_that_moves_raises_an_alarm_once(running: Run) -> None:
    points = [(step, "behaviour/comment_share", 0.02 if step <= 6 else 0.6) for step in range(1, 13)]
    record_many(run=running, rows=[*points, *((s, "behaviour/turns", 4.0) for s in range(1, 13))])
    assert findings.watch(run=running) == 1
    assert findings.watch(run=running) == 0
    finding = Finding.objects.get(subject="run")
    assert (finding.rule, finding.source, finding.task_version) == ("drift-comments", "monitor", None)
    assert "Reasoning moves into code comments" in finding.summary and finding.key.startswith("step-")
    assert running.events.filter(kind="alert").count() == 1
    running.refresh_from_db()
    assert running.state == "running"


# --- what the database refuses ----------------------------------------------------------------------------------


def test_a_finding_has_its_subject(groups: list[Group]) -> None:
    group = finish(groups[0], {1: True})
    base = {"rule": "x", "rule_version": 1, "severity": "low", "summary": "x"}
    for fields in (
        {"subject": "rollout", "group": group, "task_version": group.task_version},
        {"subject": "run", "group": group, "run": group.run},
        {"subject": "task", "run": group.run},
        {"subject": "nothing"},
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            Finding.objects.create(**base, **fields)
    row = Finding.objects.get(group=group)
    row.pk = None
    row._state.adding = True
    with pytest.raises(IntegrityError, match="finding_once_per_rollout"), transaction.atomic():
        row.save()


@pytest.mark.parametrize(
    "change", [{"rule": "other"}, {"rollout": None, "subject": "group"}, {"summary": "softer"}, {"evidence": []}]
)
def test_a_decided_finding_is_frozen(groups: list[Group], people: dict[str, User], change: dict[str, object]) -> None:
    finding = Finding.objects.get(group=finish(groups[0], {1: True}))
    findings.decide(finding=finding, to="confirmed", actor=people["reviewer"])
    with pytest.raises(IntegrityError), transaction.atomic():
        Finding.objects.filter(pk=finding.pk).update(**change)


def test_states_move_as_the_history_allows(groups: list[Group]) -> None:
    group = finish(groups[0], {1: True})
    finding, held = Finding.objects.get(group=group), Quarantine.objects.get()
    with pytest.raises(IntegrityError, match="finding_decided_when"), transaction.atomic():
        Finding.objects.filter(pk=finding.pk).update(state="confirmed")
    for query, state in ((Finding.objects, "gone"), (Quarantine.objects, "open")):
        with pytest.raises(IntegrityError), transaction.atomic():
            query.all().update(state=state)
    for row in (finding, held):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            row.transitions.all().delete()
    with pytest.raises(IntegrityError, match="quarantine_has_one_subject"), transaction.atomic():
        Quarantine.objects.create()
