"""Controls of task versions: run, recorded, shown, and worth nothing for another bundle."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from composer_web.core.errors import UserError
from composer_web.core.models import Outbox
from composer_web.tasks import controls, selectors, services
from composer_web.tasks.models import Suite, TaskVersion
from composer_web.tasks.services import build_suite
from sandbox.grading.controls import Attempt, Controls
from sandbox.grading.verdict.report import Verdict
from sandbox.grading.version import GRADER
from sandbox.tasks.procedural import generate
from sandbox.tasks.spec import FrameworkVerifier, InlineEnvironment, PytestVerifier, TaskSpec
from tests.web.helpers import as_read

pytestmark = pytest.mark.django_db


@pytest.fixture
def suite() -> Suite:
    return build_suite(name="small", purpose="benchmark", specs=[generate(index, "train") for index in range(2)])


@pytest.fixture
def version(suite: Suite) -> TaskVersion:
    return suite.memberships.get(position=0).task_version


def outcome(version: TaskVersion, **changes) -> Controls:
    def tried(*verdicts: str) -> tuple[Attempt, ...]:
        return tuple(Attempt(what=f"attempt {n}", id=f"B{n}", verdict=Verdict(v)) for n, v in enumerate(verdicts))

    found = Controls(
        bundle_hash=version.bundle_hash, full=True, oracle=(Verdict.PASSED,) * 3, noop=(Verdict.FAILED,) * 3,
        wrong=tried("failed"), cheats=tried("failed", "failed"), mutants=tried("failed", "passed", "failed", "failed"),
        strength=0.75, canaries=5, ok=True,
    )  # fmt: skip
    return found.model_copy(update=changes)


def record(version: TaskVersion, found: Controls) -> None:
    services.record_controls(version=version, controls=found.model_dump(mode="json"), ok=found.ok)


def test_what_a_version_needs_is_run_once(version: TaskVersion) -> None:
    assert controls.run_pending([version.pk]) == []
    version.refresh_from_db()
    assert version.controls_ok and not version.controls["full"]
    assert version.controls["oracle"] == ["passed"] * 3 and len(version.controls["wrong"]) == 1
    seen = version.controls_at
    assert controls.run_pending([version.pk]) == []
    version.refresh_from_db()
    assert version.controls_at == seen


OLDER = {"grader": GRADER - 1}, {}
"""What versions before may have written; the oldest wrote no `grader`."""


@pytest.mark.parametrize("older", OLDER)
def test_what_an_older_grading_accepted_is_proved_again(suite: Suite, version: TaskVersion, older, people) -> None:
    found = {**outcome(version).model_dump(mode="json"), **older}
    if not older:
        del found["grader"]
    services.record_controls(version=version, controls=found, ok=True)
    other = suite.memberships.get(position=1).task_version
    record(other, outcome(other))
    version.refresh_from_db()
    assert version.controls_ok and version.proof is None and other.proof
    assert list(suite.versions.filter(TaskVersion.unproved())) == [version]
    client = Client()
    client.force_login(people["viewer"])
    page = client.get(f"/tasks/{version.task.slug}/").content.decode()
    assert "not validated" in page and "accepted by an older version of grading" in page
    assert services.request_suite_controls(suite=suite) == 1
    (message,) = Outbox.objects.filter(task="tasks.run_controls")
    assert message.kwargs["version_ids"] == [version.pk]
    assert controls.run_pending([version.pk, other.pk]) == []
    version.refresh_from_db()
    assert version.proof and version.controls["grader"] == GRADER and len(version.controls["oracle"]) == 3
    assert "accepted by an older" not in client.get(f"/tasks/{version.task.slug}/").content.decode()


def test_what_an_older_grading_refused_stays_refused(suite: Suite, version: TaskVersion) -> None:
    record(version, outcome(version, ok=False, grader=GRADER - 1, reason="exploit B16 scores"))
    assert version.proof is False and services.request_suite_controls(suite=suite) == 1
    assert selectors.prompt_order("small", seed=0) == [suite.memberships.get(position=1).task_version_id]


def test_everything_is_run_again_on_demand(version: TaskVersion) -> None:
    assert controls.run_again([version.pk]) == []
    version.refresh_from_db()
    assert version.controls["full"] and version.controls["cheats"] and version.test_strength is not None
    assert len(version.controls["oracle"]) == len(version.controls["noop"]) == 3 and len(version.controls["wrong"]) == 1


def test_a_changed_bundle_is_untrusted(version: TaskVersion) -> None:
    record(version, outcome(version))
    (changed,) = services.save_specs([version.bundle.model_copy(update={"instruction": "Something else."})])
    assert changed.number == 2 and changed.controls_ok is None and changed.test_strength is None
    with pytest.raises(UserError, match="these controls are of bundle"):
        record(changed, outcome(version))
    assert selectors.newest_version(version.task) == changed


def test_strength_is_shown_and_filtered(version: TaskVersion, people, bearer) -> None:
    record(version, outcome(version))
    client = Client()
    client.force_login(people["reviewer"])
    page = client.get(f"/tasks/{version.task.slug}/").content.decode()
    assert re.search(r"75\s*% of 4 mutants rejected", page)
    assert "</strong> attempt 1</span>" in page and "5 in the pool" in page and "none found" in page
    listed = client.get("/tasks/?strength_max=0.8").content.decode()
    assert version.task.slug in listed and re.search(r"75\s*%", listed)
    headers = bearer("viewer")
    rows = client.get("/api/v1/tasks?strength_max=0.8", headers=headers).json()["items"]
    assert [(row["slug"], row["test_strength"]) for row in rows] == [(version.task.slug, 0.75)]
    assert client.get("/api/v1/tasks?strength_max=0.5", headers=headers).json()["items"] == []
    detail = client.get(f"/api/v1/tasks/{version.task.slug}", headers=headers).json()
    assert detail["versions"][0]["controls"]["canaries"] == 5


def test_rejections_say_why(version: TaskVersion, people) -> None:
    record(version, outcome(version, ok=False, reason="exploit B16 scores", leaks=("repo/CHANGES: holds 'x'",)))
    client = Client()
    client.force_login(people["viewer"])
    page = client.get(f"/tasks/{version.task.slug}/").content.decode()
    assert "exploit B16 scores" in page and "repo/CHANGES: holds &#x27;x&#x27;" in page


def test_controls_are_asked_for_over_the_api(version: TaskVersion, bearer) -> None:
    path = f"/api/v1/tasks/{version.task.slug}/controls"
    client = Client()
    assert client.post(path, headers=bearer("viewer")).status_code == 403
    assert client.post(path, headers=bearer("reviewer", "review")).json() == {"requested": 1}
    (message,) = Outbox.objects.filter(task="tasks.run_controls")
    assert message.kwargs == {"version_ids": [version.pk], "again": True}


def suite_task(**changes) -> TaskSpec:
    spec = TaskSpec(
        id="flaky-task",
        source="mutation",
        instruction="Fix it.",
        environment=InlineEnvironment(files={"a.py": "x = 1\n"}),
        verifier=PytestVerifier(
            test_files={"t.py": ""}, fail_to_pass=("t.py::a", "t.py::b"), pass_to_pass=("t.py::c",)
        ),
        gold={"a.py": "x = 2\n"},
    )
    return spec.model_copy(update=changes)


def test_flaky_tests_are_taken_out_in_a_new_version() -> None:
    made = build_suite(name="flaky", purpose="benchmark", specs=[suite_task()])
    old = made.memberships.get().task_version
    new = services.quarantine_tests(version=old, ids=["t.py::b", "t.py::c"])
    assert new is not None and new.number == 2 and new.controls_ok is None
    assert new.bundle.verifier.fail_to_pass == ("t.py::a",) and new.bundle.verifier.pass_to_pass == ()
    assert made.memberships.get().task_version == new
    assert Outbox.objects.filter(task="tasks.run_controls", kwargs__version_ids=[new.pk]).exists()
    assert services.quarantine_tests(version=new, ids=["t.py::a"]) is None


@settings(max_examples=20, deadline=None)
@given(st.floats(allow_nan=False).filter(lambda share: not 0 <= share <= 1))
def test_a_strength_is_a_share(share: float) -> None:
    """The constraint is in the database; here its expression."""
    from django.core.exceptions import ValidationError

    with pytest.raises(ValidationError):
        TaskVersion._meta.constraints[1].validate(TaskVersion, TaskVersion(test_strength=share))


def test_a_report_that_the_work_can_write_is_refused_when_it_is_saved() -> None:
    verifier = FrameworkVerifier(
        framework="junit", arguments=("sh", "run.sh"), report="out.xml", test_files={"run.sh": "true\n"},
        fail_to_pass=("a::b",),
    )  # fmt: skip
    with pytest.raises(UserError, match="own adapter") as refused:
        services.save_specs([suite_task().model_copy(update={"verifier": verifier})])
    assert refused.value.field == "verifier.framework"


def test_an_attempt_that_has_to_fail_is_good_where_it_fails(version: TaskVersion, people) -> None:
    """A no-op, a wrong patch or an exploit that the tests reject is what a task needs; one that they accept is its fault."""
    record(version, outcome(version, noop=(Verdict.FAILED, Verdict.PASSED)))
    client = Client()
    client.force_login(people["viewer"])
    page = as_read(client.get(f"/tasks/{version.task.slug}/").content)
    good, bad = '<span class="badge badge--good">{}</span>', '<span class="badge badge--bad">{}</span>'
    parts = [part.partition("<dd>") for part in page.split("<dt>")[1:]]
    names = ("Oracle", "No-op", "Wrong patches", "Exploits")
    facts = {name: text.partition("</dd>")[0] for name in names for term, _, text in parts if name in term}
    assert facts["Oracle"].strip() == good.format("passed") * 3
    assert facts["No-op"].strip() == good.format("rejected") + bad.format("accepted")
    for what in (facts["Wrong patches"], facts["Exploits"]):  # each opens what the attempt did
        assert re.search(r'<button[^>]*class="badge badge--good[^>]*>[^<]*rejected</button>', what)
        assert "badge--bad" not in what and "failed" not in what
