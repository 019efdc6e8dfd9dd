"""Projects: one that nobody notices, members with roles, libraries, tokens of one project, and what stays where it was made."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.test import Client

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import DEFAULT_PROJECT, AuditEntry, Membership, Project, User
from composer_web.accounts.permissions import may_in
from composer_web.accounts.projects import create_project, set_member
from composer_web.accounts.services import create_token
from composer_web.alerts.models import Notice
from composer_web.alerts.rules import services as alerts
from composer_web.core.errors import UserError
from composer_web.core.models import Outbox
from composer_web.rollouts.dispatch.services import pump
from composer_web.rollouts.exports import jobs as exports
from composer_web.rollouts.models import Group, Rollout
from composer_web.runs import services
from composer_web.runs.models import Run
from composer_web.tasks import generating, generation_jobs, selectors
from composer_web.tasks.models import GeneratorRun, Suite, Task
from composer_web.tasks.tasks import generate as make_tasks
from sandbox.generators.building.yields import Yield
from sandbox.tasks.procedural import generate
from tests.web.making import SMALL
from trainer.config import RunConfig

pytestmark = pytest.mark.django_db


def logged_in(user: User) -> Client:
    made = Client()
    made.force_login(user)
    return made


@pytest.fixture
def other(people: dict[str, User]) -> Project:
    """A closed project whose operator is a viewer by account."""
    project = create_project(slug="other", name="Other", actor=None)
    set_member(project=project, username="viewer", role="operator", actor=None)
    return project


@pytest.fixture
def there(draft: Run, other: Project) -> Run:
    """A running run of the other project, on the default project's suite and policy."""
    with acting(Access(0, "operator", other.pk)):
        run = services.create_run(config=RunConfig(name="theirs", seed=4, stage=SMALL))
    services.start_run(run=run)
    services.mark_running(run=run, owner="trainer@test")
    services.record_version(run=run, version=0)
    pump(run_id=run.pk)
    return run


def test_with_one_project_nobody_notices(people: dict[str, User], draft: Run) -> None:
    assert draft.project_id == DEFAULT_PROJECT
    page = logged_in(people["viewer"]).get("/runs/").content.decode()
    assert draft.name in page
    assert "/projects/choose/" not in page


def test_what_a_run_makes_is_in_its_project(there: Run, other: Project) -> None:
    """Workers and trainers know nothing of projects: triggers give every row that of its parent."""
    there.refresh_from_db()
    assert there.project_id == other.pk
    assert there.policy_out is not None
    assert there.policy_out.project_id == other.pk
    assert set(Group.objects.filter(run=there).values_list("project", flat=True)) == {other.pk}
    assert set(Rollout.objects.filter(group__run=there).values_list("project", flat=True)) == {other.pk}


def test_a_run_never_moves(there: Run) -> None:
    with pytest.raises(IntegrityError, match="never changes"), transaction.atomic():
        Run.objects.filter(pk=there.pk).update(project=DEFAULT_PROJECT)
    Rollout.objects.filter(group__run=there).update(project=DEFAULT_PROJECT)
    assert not Rollout.objects.filter(group__run=there, project=DEFAULT_PROJECT).exists()


def test_the_role_is_that_of_the_project_of_what_one_looks_at(
    people: dict[str, User], there: Run, draft: Run, other: Project
) -> None:
    """Operator in one project, viewer in the other, whichever is chosen in the top bar."""
    viewer, operator = logged_in(people["viewer"]), logged_in(people["operator"])
    assert viewer.post(f"/runs/{there.pk}/pause/").status_code == 302
    there.refresh_from_db()
    assert there.state == "pausing"
    assert viewer.post(f"/runs/{draft.pk}/start/").status_code == 403
    assert operator.get(f"/runs/{there.pk}/").status_code == 404
    assert operator.get(f"/api/v1/runs/{there.pk}").status_code == 404


def test_lists_show_the_chosen_project(people: dict[str, User], there: Run, draft: Run, other: Project) -> None:
    viewer = logged_in(people["viewer"])
    assert [run["name"] for run in viewer.get("/api/v1/runs").json()["items"]] == [draft.name]
    assert [run["name"] for run in viewer.get("/api/v1/runs?project=other").json()["items"]] == ["theirs"]
    assert "/projects/choose/" in viewer.get("/runs/").content.decode()
    answer = viewer.post("/projects/choose/", {"project": "other", "next": "https://elsewhere.example/"})
    assert answer["Location"] == "/"
    assert [run["name"] for run in viewer.get("/api/v1/runs").json()["items"]] == ["theirs"]
    assert logged_in(people["operator"]).post("/projects/choose/", {"project": "other"}).status_code == 404


def test_a_library_is_read_and_not_changed(people: dict[str, User], there: Run, other: Project) -> None:
    Project.objects.filter(pk=DEFAULT_PROJECT).update(open=False)
    member = logged_in(people["viewer"])
    assert member.get("/suites/train/").status_code == 200
    assert member.get("/api/v1/policies/base").status_code == 200
    assert member.post("/suites/train/controls/").status_code in (403, 404)
    assert member.post("/tasks/bulk/", {"action": "tag", "value": "mine"}).status_code < 500
    assert not Suite.objects.get(name="train").versions.filter(task__tags__contains=["mine"]).exists()
    Project.objects.filter(pk=DEFAULT_PROJECT).update(library=False)
    assert member.get("/suites/train/").status_code == 404
    assert member.get("/api/v1/policies/base").status_code == 404


def test_a_token_of_one_project_knows_no_other(people: dict[str, User], there: Run, draft: Run, other: Project) -> None:
    _, secret = create_token(user=people["viewer"], name="t", scopes=["operate"], project="other")
    token = Client(headers={"Authorization": f"Bearer {secret}"})
    assert [run["name"] for run in token.get("/api/v1/runs").json()["items"]] == ["theirs"]
    assert token.get(f"/api/v1/runs/{draft.pk}").status_code == 404
    assert token.get("/api/v1/runs?project=default").status_code == 404
    made = token.post("/api/v1/runs", data=_config("by token"), content_type="application/json")
    assert made.status_code == 201, made.content
    assert Run.objects.get(name="by token").project_id == other.pk
    with pytest.raises(UserError, match="no project"):
        create_token(user=people["operator"], name="t", scopes=["read"], project="other")
    Membership.objects.filter(project=other).delete()
    assert token.get("/api/v1/runs").status_code == 403


def _config(name: str) -> str:
    return RunConfig(name=name, seed=5, stage=SMALL).model_dump_json()


def test_an_export_holds_what_its_project_has(
    people: dict[str, User],
    there: Run,
    draft: Run,
    other: Project,
    django_capture_on_commit_callbacks: Callable[..., object],
) -> None:
    """The worker that writes it is in no request: the export remembers where it was asked for."""
    services.start_run(run=draft)
    services.mark_running(run=draft, owner="trainer@test")
    services.record_version(run=draft, version=0)
    pump(run_id=draft.pk)
    with acting(Access(people["viewer"].pk, "operator", other.pk, other.pk)):
        asked = exports.ask(owner=people["viewer"], format="jsonl", query="")
    exports.write(asked.pk)
    asked.refresh_from_db()
    assert asked.state == "done", asked.cause
    assert asked.rows == Rollout.objects.filter(project=other).count() < Rollout.objects.count()


def test_alerts_are_told_to_members_only(people: dict[str, User], there: Run, other: Project) -> None:
    Run.objects.filter(pk=there.pk).update(state="running")
    rule = alerts.make_rule(actor=None, name="lost", kind="run_failed", role="operator")
    alert = alerts.saw(rule=rule, about=f"run:{there.pk}", message="failed")
    alert.refresh_from_db()
    assert alert.project_id == other.pk
    assert set(Notice.objects.filter(alert=alert).values_list("user__username", flat=True)) == {"viewer", "admin"}
    assert not may_in(people["operator"], other.pk, "viewer")


def test_members_are_kept_by_the_projects_admin(people: dict[str, User], other: Project) -> None:
    set_member(project=other, username="reviewer", role="admin", actor=None)
    keeper, member = logged_in(people["reviewer"]), logged_in(people["viewer"])
    page = "/projects/other/"
    assert "Add a member" in keeper.get(page).content.decode()
    assert "Add a member" not in member.get(page).content.decode()
    assert member.post(f"{page}member/", {"username": "operator", "role": "admin"}).status_code == 403
    assert keeper.post(f"{page}member/", {"username": "operator", "role": "viewer"}).status_code == 302
    assert Membership.objects.get(project=other, user=people["operator"]).role == "viewer"
    assert keeper.post(f"{page}remove/", {"username": "operator"}).status_code == 302
    assert not Membership.objects.filter(project=other, user=people["operator"]).exists()
    assert keeper.post("/projects/new/", {"slug": "mine", "name": "Mine"}).status_code == 403
    assert keeper.get("/audit/").status_code == 403
    entry = AuditEntry.objects.filter(action="project.member").latest("pk")
    assert entry.changes[0]["after"]["role"] == "viewer"


def test_the_database_keeps_memberships_whole(people: dict[str, User], other: Project) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Membership.objects.create(project=other, user=people["viewer"], role="viewer")
    with pytest.raises(IntegrityError), transaction.atomic():
        Membership.objects.create(project=other, user=people["admin"], role="king")


def test_what_generators_make_stays_where_it_was_ordered(
    people: dict[str, User], other: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build worker is in no request: the order says whose it is. Only the making of the tasks is left out here."""
    tried = Yield(generator="mutation", package="toolz", split="train", seed=0, tried=3, kept=1, seconds=2.0)
    monkeypatch.setattr(generating, "built_package", lambda name, environment: name)
    monkeypatch.setattr(generating, "generated", lambda *_, **__: ([generate(5, "train")], [tried]))
    inside = Access(people["viewer"].pk, "operator", other.pk, other.pk)
    with acting(inside):
        generating.request_suite(generating.Wanted(name="theirs", packages=("toolz",)), actor=people["viewer"])
    order = Outbox.objects.get(task="tasks.generate")
    make_tasks.run(**order.kwargs)
    assert Suite.objects.get(name="theirs").project_id == other.pk
    assert {task.project_id for task in Task.objects.filter(versions__memberships__suite__name="theirs")} == {other.pk}
    assert GeneratorRun.objects.get().project_id == other.pk
    with acting(inside):
        assert [(o.name, o.state) for o in generation_jobs.recent()] == [("theirs", "finished")]
    with acting(Access(people["operator"].pk, "operator", DEFAULT_PROJECT, DEFAULT_PROJECT)):
        assert generation_jobs.recent() == [] and not selectors.generator_runs() and not selectors.generator_totals()


@pytest.mark.django_db(transaction=True)
def test_a_project_can_be_created_after_the_database_was_flushed() -> None:
    """`manage.py flush` restarts the sequence of ids, and the default project comes back under its own id."""
    call_command("flush", interactive=False, verbosity=0)
    assert Project.objects.create(slug="ours", name="Ours").pk != DEFAULT_PROJECT
