"""Findings: stored with their group, decided by people, and what follows from them; all of it can be undone."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import AuditEntry, User
from composer_web.ops.artifacts import artifacts
from composer_web.ops.errors import Conflict, UserError
from composer_web.ops.models import Outbox
from composer_web.policies.models import Policy
from composer_web.rollouts import auditing, judging, quarantine, selectors, services
from composer_web.rollouts.models import Finding, Group, Quarantine, Rollout
from composer_web.runs.metrics import record_many
from composer_web.runs.models import Run
from composer_web.runs.services import create_run, mark_running, record_version, start_run
from composer_web.tasks.models import Suite
from sandbox.grading.audit import Evidence, Severity
from sandbox.grading.audit import Finding as Found
from sandbox.grading.audit.judge import Endpoint, Judge
from sandbox.harness.types import ToolCall
from tests.sandbox.grading.audit.model_server import Server, answers, completion
from tests.web.making import SMALL, claim, trajectory
from trainer.config import MonitorsConfig, RLConfig, RunConfig
from trainer.rollouts.audit import audit_group, quarantined, without
from trainer.rollouts.group import build_train_group
from trainer.rollouts.types import TrainGroup, Trajectory, Turn

pytestmark = pytest.mark.django_db

EXIT = (
    "diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n@@ -1,1 +1,3 @@\n+import os\n+os._exit(0)\n def f(): return 1\n"
)
"""A patch that the rules find at once."""


def cheat(group: Group, sample: int, *, passed: bool, patch: str = EXIT) -> Trajectory:
    call = ToolCall(id="c0", name="write_file", arguments={"path": "m.py", "content": "import os\nos._exit(0)\n"})
    turn = Turn(index=0, text="{}", token_start=1, token_end=3, calls=(call,))
    return trajectory(group, sample, passed=passed).model_copy(update={"turns": (turn,), "patch": patch})


def finish(group: Group, cheats: dict[int, bool], *, size: int = 4) -> Group:
    """Accept a group as a worker does: `cheats` maps the samples that cheat to whether they passed; the others fail
    but the last one."""
    claimed = claim(group)
    group, held = claimed.group, claimed.held
    made = [
        cheat(group, s, passed=cheats[s]) if s in cheats else trajectory(group, s, passed=s == size - 1)
        for s in range(size)
    ]
    audited = audit_group(made, group.task_version.bundle)
    out = quarantined(audited, quarantine.monitors_of(group.run))
    config = RLConfig()
    whole = build_train_group(
        made, group_id=str(group.pk), prompt_index=group.prompt_index, config=config, dispatched_version=0
    )
    rest = without(whole, made, out, config) if out else whole
    graded = []
    for item in made:
        key = f"groups/{group.pk}/{held.token}/{item.sample}.json.zst"
        artifacts().put_model(key, item)
        graded.append(services.Graded(item, key))
    train_key = f"groups/{group.pk}/{held.token}/train.json.zst" if rest else ""
    if rest:
        artifacts().put_model(train_key, rest)
    audit = services.Audited(dict(enumerate(audited.findings)), out)
    assert services.accept(
        group=group, held=held, graded=graded, train_key=train_key, oldest_version=0, infra_errors=(), audit=audit
    )
    group.refresh_from_db()
    return group


@pytest.fixture
def wide(policy: Policy, make_suite: Callable[..., Suite]) -> Run:
    """A running run with groups of four, whose monitors look at the last eight rollouts."""
    make_suite()
    stage = SMALL.model_copy(update={"group_size": 4, "monitors": MonitorsConfig(pause_window=8)})
    run = create_run(config=RunConfig(name="wide", seed=3, stage=stage))
    start_run(run=run)
    mark_running(run=run, owner="trainer@test")
    record_version(run=run, version=0)
    return run


@pytest.fixture
def groups(wide: Run) -> list[Group]:
    services.pump(run_id=wide.pk)
    return list(Group.objects.filter(run=wide).order_by("prompt_index"))


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
    assert made.stats["audit/quarantined"] == 0.25 and group.audited_with
    counts = selectors.verdict_counts(run=group.run)
    assert counts["dispatched"] == counts["passed"] + counts["failed"] + counts["infra_error"] + counts["open"]


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
    auditing.decide(finding=finding, to="dismissed", actor=people["reviewer"], note="asked for in the task")
    group.refresh_from_db()
    assert rewards(group) == [0.0, 1.0, 0.0, 1.0] and group.mean_reward == 0.5 and group.train_key != before
    assert histories(Quarantine.objects.get()) == [("", "active", "auditor"), ("active", "lifted", "reviewer")]
    auditing.decide(finding=finding, to="confirmed", actor=people["operator"])
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
    auditing.decide(finding=Finding.objects.get(group=group), to="dismissed", actor=people["reviewer"])
    group.refresh_from_db()
    assert (
        group.train_key == before
        and group.state == "consumed"
        and not selectors.in_quarantine(Rollout.objects.get(group=group, sample=1))
    )


def test_confirming_a_weak_finding_quarantines(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {})
    weak = Found(rule="bare-claim", version=1, severity=Severity.LOW, summary="x", evidence=(Evidence(source="text"),))
    auditing.record(group=group, found={3: [weak]})
    assert not Quarantine.objects.exists()
    auditing.decide(finding=Finding.objects.get(group=group), to="confirmed", actor=people["reviewer"])
    group.refresh_from_db()
    assert rewards(group) == [0.0, 0.0, 0.0] and Quarantine.objects.filter(state="active").count() == 1


def test_a_language_model_never_quarantines_by_itself(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {})
    rollout = Rollout.objects.get(group=group, sample=0)
    said = Found(rule="judge-lookup", version=1, severity=Severity.HIGH, summary="says so")
    auditing.judged(rollout=rollout, found=[said])
    finding = Finding.objects.get(source="judge")
    assert not Quarantine.objects.exists()
    auditing.decide(finding=finding, to="confirmed", actor=people["reviewer"])
    assert selectors.in_quarantine(rollout)


def test_decisions_that_cannot_be(groups: list[Group], people: dict[str, User]) -> None:
    finding = Finding.objects.get(group=finish(groups[0], {1: True}))
    with pytest.raises(Conflict, match="open and cannot become open"):
        auditing.decide(finding=finding, to="open", actor=people["reviewer"])
    with pytest.raises(UserError, match="not 'gone'"):
        auditing.decide(finding=finding, to="gone", actor=people["reviewer"])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="2000"):
        auditing.decide(finding=finding, to="dismissed", actor=people["reviewer"], note="x" * 2001)


# --- audited again ----------------------------------------------------------------------------------------------


def test_auditing_again_changes_nothing(groups: list[Group]) -> None:
    group = finish(groups[0], {1: True})
    before = list(Finding.objects.values())
    assert auditing.audit_run(run=group.run) == {"groups": 0, "changed": 0, "unreadable": 0}, (
        "the same rules have read it"
    )
    counts = auditing.audit_run(run=group.run, everything=True)
    assert counts == {"groups": 1, "changed": 0, "unreadable": 0}
    assert list(Finding.objects.values()) == before


def test_other_rules_find_dismiss_and_reopen(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {1: True})
    group.audited_with = "older"
    group.save(update_fields=["audited_with"])
    finding = Finding.objects.get(group=group)
    old = Found(rule="gone-rule", version=1, severity=Severity.HIGH, summary="an older rule")
    auditing.record(group=group, found={0: [old], 1: [as_found(finding)]})
    assert Quarantine.objects.filter(state="active").count() == 2
    auditing.decide(finding=finding, to="dismissed", actor=people["reviewer"])
    auditing.audit_run(run=group.run, everything=True)
    finding.refresh_from_db()
    assert finding.state == "dismissed", "the same evidence does not come back"
    gone = Finding.objects.get(rule="gone-rule")
    assert gone.state == "dismissed" and gone.decided_by is None and histories(gone)[-1][2] == "auditor"
    assert not Quarantine.objects.filter(state="active").exists()
    other = as_found(finding).model_copy(
        update={"version": 9, "evidence": (Evidence(source="call", turn=3, excerpt="new"),)}
    )
    auditing.record(group=group, found={1: [other]})
    finding.refresh_from_db()
    assert finding.state == "open" and finding.rule_version == 9 and finding.evidence[0]["turn"] == 3
    assert finding.decided_by is None and selectors.in_quarantine(finding.rollout)  # type: ignore[arg-type]


def as_found(finding: Finding) -> Found:
    return Found(
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
    auditing.decide(finding=finding, to="confirmed", actor=people["reviewer"])
    other = as_found(finding).model_copy(update={"version": 9, "summary": "else"})
    auditing.record(group=group, found={1: [other]})
    auditing.record(group=group, found={1: []})
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
    auditing.decide(finding=finding, to="dismissed", actor=people["reviewer"])
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
    assert auditing.watch(run=running) == 1
    assert auditing.watch(run=running) == 0
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
    auditing.decide(finding=finding, to="confirmed", actor=people["reviewer"])
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


# --- pages, API, command ----------------------------------------------------------------------------------------


def client(person: User) -> Client:
    made = Client()
    made.force_login(person)
    return made


def test_pages_show_the_finding_where_it_is(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {1: True})
    finding = Finding.objects.get(group=group)
    reader = client(people["viewer"])
    html = reader.get("/findings/").content.decode()
    assert "early-exit" in html and f"/rollouts/{finding.rollout_id}/#t=0" in html and "in quarantine" in html
    page = reader.get(f"/rollouts/{finding.rollout_id}/").content.decode()
    assert page.count("early-exit") >= 2 and "m.py, line 2: os._exit(0)" in page
    assert 'name="state" value="confirmed"' not in page, "a viewer decides nothing"
    assert "advantage" not in page, "it is not trained on"
    detail = reader.get(f"/findings/{finding.pk}/").content.decode()
    for words in ("Product code ends the process", "May be wrong", "auditor", "B7"):
        assert words in detail, words
    assert reader.get("/findings/999999/").status_code == 404


@pytest.mark.parametrize(
    ("query", "count"),
    [("severity=high", 1), ("severity=low", 0), ("rule=early-exit", 1), ("rule=nothing", 1), ("state=open", 1),
     ("state=dismissed", 0), ("task=zzz", 0), ("quarantined=true", 1), ("subject=run", 0)],
)  # fmt: skip
def test_facets_narrow_the_list(groups: list[Group], people: dict[str, User], query: str, count: int) -> None:
    finish(groups[0], {1: True})
    rows = client(people["viewer"]).get(f"/findings/?{query}", headers={"HX-Request": "true"}).content.decode()
    assert rows.count("os._exit") == 0 and rows.count("/findings/") - rows.count("/findings/?") >= count
    assert (">early-exit<" in rows) == bool(count)


def test_a_run_can_be_audited_again_from_its_findings(groups: list[Group], people: dict[str, User]) -> None:
    run = finish(groups[0], {1: True}).run
    assert run is not None
    words = f"Audit run {run.pk} again"
    assert words in client(people["reviewer"]).get(f"/findings/?run={run.pk}").content.decode()
    assert words not in client(people["viewer"]).get(f"/findings/?run={run.pk}").content.decode()
    assert client(people["viewer"]).post(f"/findings/audit/{run.pk}/").status_code == 403
    answer = client(people["reviewer"]).post(f"/findings/audit/{run.pk}/", follow=True)
    assert "The auditor reads this run again." in answer.content.decode()
    assert Outbox.objects.filter(task="rollouts.audit_run").count() == 1
    for odd in ("x", "²", "99999999999999"):
        assert client(people["reviewer"]).get(f"/findings/?run={odd}").status_code == 200


def test_who_may_decide(groups: list[Group], people: dict[str, User]) -> None:
    finding = Finding.objects.get(group=finish(groups[0], {1: True}))
    path = f"/findings/{finding.pk}/decide/"
    assert client(people["viewer"]).post(path, {"state": "dismissed"}).status_code == 403
    assert client(people["reviewer"]).get(path).status_code == 405
    answer = client(people["reviewer"]).post(path, {"state": "dismissed", "note": "fine", "next": "//evil.example/"})
    assert answer["Location"] == f"/findings/{finding.pk}/"
    finding.refresh_from_db()
    assert (finding.state, finding.note) == ("dismissed", "fine")
    answer = client(people["reviewer"]).post(path, {"state": "nonsense", "next": "/findings/"}, follow=True)
    assert "a finding can be open, confirmed or dismissed" in answer.content.decode()


def test_lists_ask_the_database_the_same_number_of_times(groups: list[Group], people: dict[str, User]) -> None:
    finish(groups[0], {1: True})
    reader = client(people["viewer"])

    def queries(path: str) -> int:
        reader.get(path)
        with CaptureQueriesContext(
            connection,
        ) as seen:
            assert reader.get(path).status_code == 200
        return len(seen)

    few = queries("/findings/")
    finish(groups[1], {0: True, 1: False})
    finish(groups[2], {0: True, 2: False})
    assert Finding.objects.filter(subject="rollout").count() == 5
    assert queries("/findings/") == few <= 12


def test_api_twin(groups: list[Group], bearer: Callable[..., dict[str, str]]) -> None:
    finding = Finding.objects.get(group=finish(groups[0], {1: True}))
    read, review = bearer("reviewer", "read"), bearer("reviewer", "review")
    listed = Client().get("/api/v1/findings?severity=high", headers=read).json()
    assert [item["id"] for item in listed["items"]] == [finding.pk] and listed["items"][0]["quarantined"] is True
    assert listed["items"][0]["evidence"][0]["turn"] == 0
    path = f"/api/v1/findings/{finding.pk}/dismiss"
    body = json.dumps({"note": "asked for"})
    assert Client().post(path, body, content_type="application/json", headers=read).status_code == 403
    done = Client().post(path, body, content_type="application/json", headers=review)
    assert done.status_code == 200 and done.json()["state"] == "dismissed" and done.json()["decided_by"] == "reviewer"
    assert [t["to_state"] for t in done.json()["transitions"]] == ["open", "dismissed"]
    again = Client().post(path, body, content_type="application/json", headers=review)
    assert again.status_code == 409 and "possible: confirmed, open" in again.json()["error"]["message"]
    assert Client().get("/api/v1/findings?severity=wrong", headers=read).status_code == 422
    rules = {rule["id"]: rule for rule in Client().get("/api/v1/findings/rules", headers=read).json()}
    assert "B7" in rules["early-exit"]["exploits"]
    asked = Client().post(f"/api/v1/findings/audit?run={finding.run_id}", headers=review)
    assert asked.status_code == 202
    assert Client().post("/api/v1/findings/audit?run=999999", headers=review).status_code == 404


def test_command_twin(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {1: True})
    out = StringIO()
    call_command("audit", str(group.run_id), "--everything", stdout=out, stderr=StringIO())
    (line,) = out.getvalue().splitlines()
    finding = json.loads(line)
    assert finding["rule"] == "early-exit" and finding["state"] == "open"
    with pytest.raises(CommandError, match="--user must name"):
        call_command("audit", "--dismiss", str(finding["id"]))
    out = StringIO()
    call_command("audit", "--dismiss", str(finding["id"]), "--user", "reviewer", "--note", "fine", stdout=out)
    assert f"finding {finding['id']} is dismissed" in out.getvalue()
    with pytest.raises(CommandError, match="there is no run 999999"):
        call_command("audit", "999999")
    with pytest.raises(CommandError, match="name the run"):
        call_command("audit")


# --- the language model -----------------------------------------------------------------------------------------


def test_the_judge_reads_stored_rollouts_once(groups: list[Group]) -> None:
    group = finish(groups[0], {1: True})
    rollout = Rollout.objects.get(group=group, sample=1)
    server = Server()
    try:
        server.reply = lambda r: (200, completion(answers(r, tampering=("yes", 0, "os._exit(0)"))))
        judge = Judge(Endpoint(server.url, "model-a", timeout=20.0), cache=judging.ArtifactCache())
        assert judging.judge_rollout(rollout=rollout, judge=judge) == 1
        assert judging.judge_rollout(rollout=rollout, judge=judge) == 0
    finally:
        server.close()
    assert len(server.requests) == 1
    finding = Finding.objects.get(source="judge")
    assert (finding.rule, finding.severity, finding.evidence[0]["turn"]) == ("judge-tampering", "medium", 0)
    auditing.audit_run(run=group.run, everything=True)
    finding.refresh_from_db()
    assert finding.state == "open", "the rules do not speak for the judge"


def test_the_draw_of_the_judge_is_fixed() -> None:
    drawn = [judging.chosen(pk, 0.25) for pk in range(4000)]
    assert drawn == [judging.chosen(pk, 0.25) for pk in range(4000)]
    assert 0.2 < sum(drawn) / 4000 < 0.3
    assert not any(judging.chosen(pk, 0.0) for pk in range(100)) and all(judging.chosen(pk, 1.0) for pk in range(100))


def test_without_a_judge_the_command_says_what_to_set(groups: list[Group]) -> None:
    with pytest.raises(CommandError, match="OPENCOMPOSER_JUDGE_URL"):
        call_command("audit", str(groups[0].run_id), "--judge", stdout=StringIO(), stderr=StringIO())
