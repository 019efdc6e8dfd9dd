"""Writes of findings: results of the auditor and the monitors, human decisions, and their consequences."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit as write_audit
from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import Conflict, UserError
from composer_web.core.history import IllegalTransition, change_state, say_why
from composer_web.core.queue import leases
from composer_web.core.queue.outbox import enqueue
from composer_web.env import env
from composer_web.live.hints import hint
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import quarantine
from composer_web.rollouts.models import FINDING_LEGAL, Finding, Group, Quarantine, Rollout
from composer_web.runs.models import Metric, Run, RunState
from composer_web.runs.services import add_event, pause_run
from sandbox.grading.audit import Finding as AuditFinding
from sandbox.grading.audit import rule_set
from sandbox.grading.audit.drift import WATCHES, alarms
from trainer.config import RLConfig
from trainer.rollouts.audit import MIN_REMAINING, audit_group

AUDITOR = "auditor"
Decision = Literal["open", "confirmed", "dismissed"]


# --- findings of rollouts ---------------------------------------------------------------------------------------


@transaction.atomic
def record(*, group: Group, found: Mapping[int, Sequence[AuditFinding]], source: str = "rules") -> int:
    """Bring the stored findings of a group's rollouts in line with what the rules say now; returns how many changed.

    Idempotent. By sample. An open finding takes new evidence; a dismissed one comes back only when its evidence is
    new; a confirmed one stays as it was confirmed; an open one that no rule raises any more is dismissed.
    """
    leases.fence()
    rollouts = {rollout.sample: rollout for rollout in Rollout.objects.filter(group=group)}
    known: dict[tuple[int | None, str], Finding] = {
        (finding.rollout_id, finding.rule): finding
        for finding in Finding.objects.select_for_update(of=("self",)).filter(
            group=group, subject="rollout", source=source
        )
    }
    fresh: list[Finding] = []
    touched: set[int] = set()
    for sample, findings in found.items():
        rollout = rollouts[sample]
        for item in findings:
            row = known.pop((rollout.pk, item.rule), None)
            if row is None:
                fresh.append(_of_rollout(group, rollout, item, source))
                touched.add(sample)
            elif _refresh(row, item):
                touched.add(sample)
        for (rollout_id, _), row in known.items():
            if rollout_id == rollout.pk and row.state == "open":
                _move(row, "dismissed", actor=AUDITOR, note="the rules in force do not raise it any more")
                touched.add(sample)
    say_why(actor=AUDITOR, reason="raised by a rule" if source == "rules" else "raised by a language model")
    Finding.objects.bulk_create(fresh)
    settled = [rollouts[sample] for sample in touched]
    quarantine.settle(rollouts=settled, actor=AUDITOR, reason="raised" if fresh else "the findings changed")
    if source == "rules":
        Group.objects.filter(pk=group.pk).update(audited_with=rule_set())
    if touched:
        hint("findings", f"group:{group.pk}", *((f"run:{group.run_id}",) if group.run_id else ()))
    return len(touched)


def _of_rollout(group: Group, rollout: Rollout, found: AuditFinding, source: str) -> Finding:
    return Finding(
        subject="rollout",
        run_id=group.run_id,
        task_version_id=group.task_version_id,
        group=group,
        rollout=rollout,
        source=source,
        **_content(found),
    )


def _content(found: AuditFinding) -> dict[str, Any]:
    return {
        "rule": found.rule,
        "rule_version": found.version,
        "severity": str(found.severity),
        "summary": found.summary[:2000],
        "evidence": [item.model_dump(mode="json") for item in found.evidence],
        "hits": found.hits,
        "fingerprint": found.fingerprint,
    }


def _refresh(row: Finding, found: AuditFinding) -> bool:
    """Update the stored finding from the rule's current result. Returns whether it changed."""
    same = row.fingerprint == found.fingerprint
    if row.state == "confirmed" or (row.state == "dismissed" and same):
        return False
    if row.state == "dismissed":
        reason = f"version {found.version} of the rule has other evidence"
        change_state(row, "open", legal=FINDING_LEGAL, actor=AUDITOR, reason=reason, **_content(found), decided_at=None,
                     decided_by=None, note="")  # fmt: skip
        return True
    if same and row.rule_version == found.version:
        return False
    for name, value in _content(found).items():
        setattr(row, name, value)
    row.save(update_fields=list(_content(found)))
    return True


def _move(row: Finding, to: Decision, *, actor: str, note: str, by: User | None = None) -> None:
    change_state(
        row,
        to,
        legal=FINDING_LEGAL,
        actor=actor,
        reason=note,
        note=note,
        decided_by=by,
        decided_at=None if to == "open" else timezone.now(),
    )


def audit_again(*, group: Group) -> int:
    """Audit a group's stored trajectories with the current rules. Idempotent. Raises ArtifactError."""
    rows = list(selectors.readable(Rollout.objects.filter(group=group)).order_by("sample"))
    if not rows:
        return 0
    trajectories = [selectors.trajectory(row) for row in rows]
    audited = audit_group(trajectories, group.task_version.bundle)
    return record(group=group, found={row.sample: f for row, f in zip(rows, audited.findings, strict=True)})


def audit_run(*, run: Run, everything: bool = False) -> dict[str, int]:
    """Audit every group of a run and of its evaluations that was audited with other rule versions, or all groups.
    Raises LeaseLost if another worker has taken over."""
    counts = {"groups": 0, "changed": 0, "unreadable": 0}
    groups = selectors.with_trajectories(run)
    wanted = groups if everything else groups.exclude(audited_with=rule_set())
    for pk in list(wanted.values_list("pk", flat=True)):
        leases.check()
        try:
            counts["changed"] += audit_again(group=groups.get(pk=pk))
            counts["groups"] += 1
        except ArtifactError:
            counts["unreadable"] += 1
    if run.kind == "rl":
        counts["changed"] += watch(run=run)
    return counts


@transaction.atomic
def request_audit(*, run: Run, actor: User, judge: bool = False) -> None:
    """Have a worker audit the run again with the current rules; with `judge` the language model reads all of its rollouts,
    too. Raises UserError without a configured judge."""
    if judge and not (env().judge_url and env().judge_model):
        raise UserError("judge", "there is no judge: set OPENCOMPOSER_JUDGE_URL and OPENCOMPOSER_JUDGE_MODEL")
    if judge:
        enqueue("rollouts.judge_run", {"run_id": run.pk}, queue="io", key=f"judge-run:{run.pk}")
    enqueue("rollouts.audit_run", {"run_id": run.pk}, queue="maintenance", key=f"audit:{run.pk}")
    write_audit(actor=actor, action="run.audit", target=f"run:{run.pk}", rules=rule_set(), judge=judge)


# --- decisions --------------------------------------------------------------------------------------------------


@transaction.atomic
def decide(*, finding: Finding, to: Decision, actor: User, note: str = "") -> Finding:
    """Confirm, dismiss or reopen a finding, and set or lift quarantines accordingly. Raises Conflict, UserError."""
    if to not in ("open", "confirmed", "dismissed"):
        raise UserError("state", f"a finding can be open, confirmed or dismissed, not {to!r}")
    if len(note) > 2000:
        raise UserError("note", f"a note holds at most 2000 characters, not {len(note)}")
    try:
        _move(finding, to, actor=actor.get_username(), note=note.strip(), by=None if to == "open" else actor)
    except IllegalTransition as error:
        raise Conflict(str(error), "state") from error
    reason = f"finding {finding.pk} ({finding.rule}) is {to}"
    if finding.subject == "rollout" and finding.rollout is not None:
        quarantine.settle(rollouts=[finding.rollout], actor=actor.get_username(), reason=reason)
    elif finding.subject == "task" and finding.task_version is not None:
        quarantine.settle_task(version=finding.task_version, actor=actor.get_username(), reason=reason)
    write_audit(actor=actor, action=f"finding.{to}", target=f"finding:{finding.pk}", rule=finding.rule, note=note[:300])
    hint("findings", *((f"group:{finding.group_id}",) if finding.group_id else ()))
    return finding


# --- what follows for tasks and runs ----------------------------------------------------------------------------


@transaction.atomic
def follow_up(*, group: Group, out: Collection[int]) -> None:
    """After the audit of a run's group, quarantine its task or pause the run, as the policy requires."""
    if group.run is None:
        return
    monitors = quarantine.monitors_of(group.run)
    if monitors.judge_share > 0 and env().judge_url:
        enqueue("rollouts.judge", {"group_id": group.pk}, queue="io", key=f"judge:{group.pk}")
    if not out:
        return
    version = group.task_version
    if group.size - len(out) < MIN_REMAINING:
        _raise(
            "group",
            rule="hollow-group",
            severity="medium",
            summary=f"{len(out)} of {group.size} rollouts are in quarantine: nothing is left to learn from",
            group=group,
            task_version=version,
            run=group.run,
        )
    many = Quarantine.objects.filter(rollout__group__task_version=version, state="active").count()
    if monitors.task_after and many >= monitors.task_after:
        _raise(
            "task",
            rule="hacked-task",
            severity="high",
            summary=f"{many} rollouts of this task are in quarantine: its tests or its environment invite it",
            task_version=version,
            run=group.run,
        )
        quarantine.settle_task(version=version, actor=AUDITOR, reason=f"{many} rollouts in quarantine")
    _pause_if_many(group.run)


def _pause_if_many(run: Run) -> None:
    """Pause a run if too large a share of its recent rollouts is in quarantine. The count restarts after each pause."""
    monitors = quarantine.monitors_of(run)
    if monitors.pause_share >= 1:
        return
    last = Finding.objects.filter(run=run, subject="run", rule="quarantine-share").order_by("-pk").first()
    recent = Rollout.objects.filter(group__run=run, state="graded")
    if last is not None:
        recent = recent.filter(finished_at__gt=last.created_at)
    ids = list(recent.order_by("-finished_at", "-pk").values_list("pk", flat=True)[: monitors.pause_window])
    if len(ids) < monitors.pause_window:
        return
    share = Quarantine.objects.filter(rollout__in=ids, state="active").count() / len(ids)
    if share > monitors.pause_share:
        text = f"{share:.0%} of the last {len(ids)} rollouts are in quarantine (limit {monitors.pause_share:.0%})"
        _raise("run", rule="quarantine-share", severity="high", summary=text, key=f"after-{ids[0]}", run=run)
        _pause(run, text)


@transaction.atomic
def watch(*, run: Run) -> int:
    """Raise a finding on the run for every behaviour measure that has drifted. Idempotent; returns the number of new
    findings."""
    stage = run.configuration.stage
    if not isinstance(stage, RLConfig) or not stage.monitors.drift:
        return 0
    rows = Metric.objects.filter(run=run, key__name__in=[w.metric for w in WATCHES]).order_by("step")
    series: dict[str, list[tuple[int, float]]] = {}
    for name, step, value in rows.values_list("key__name", "step", "value"):
        series.setdefault(name, []).append((step, value))
    known = set(Finding.objects.filter(run=run, subject="run").values_list("rule", "key"))
    new = [alarm for alarm in alarms(series) if (alarm.watch.rule, f"step-{alarm.step}") not in known]
    for alarm in new:
        found = alarm.finding
        text = f"{alarm.watch.title}: {found.summary}"
        _raise("run", key=f"step-{alarm.step}", run=run, **{**_content(found), "summary": text})
        if stage.monitors.drift_pauses:
            _pause(run, text)
    return len(new)


def _raise(subject: str, *, run: Run, rule: str, summary: str, key: str = "", **fields: Any) -> Finding | None:
    """Create a finding on a group, a task or a run, with an event in the run's log. None if it already exists."""
    fields = {"rule_version": 1, **fields}
    column = {"group": "group", "task": "task_version", "run": "run"}[subject]
    if Finding.objects.filter(subject=subject, rule=rule, key=key, **{column: fields.get(column, run)}).exists():
        return None
    say_why(actor=AUDITOR, reason=summary)
    made = Finding.objects.create(
        subject=subject, source="monitor", run=run, rule=rule, key=key, summary=summary, **fields
    )
    add_event(run=run, kind="alert", level="warning", message=summary, data={"finding": made.pk, "rule": rule})
    hint("findings")
    return made


def _pause(run: Run, why: str) -> None:
    """Stop after the current step; a user resumes the run. Does nothing if the run is not running."""
    if Run.objects.filter(pk=run.pk, state=RunState.RUNNING).exists():
        pause_run(run=run)
        add_event(run=run, kind="alert", level="error", message=f"paused by a monitor: {why}")


def judged(*, rollout: Rollout, found: Iterable[AuditFinding]) -> int:
    """Store the LLM judge's findings on one rollout. They cause no quarantine until a user confirms them."""
    group = Group.objects.get(pk=rollout.group_id)
    return record(group=group, found={rollout.sample: list(found)}, source="judge")
