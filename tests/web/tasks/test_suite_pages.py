"""Pages of suites and environments: sorting their tables, what they say while they are empty, and where they lead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import User
from composer_web.repositories import installing, services
from composer_web.repositories.models import Environment
from composer_web.repositories.requests import request_archive
from composer_web.tasks import generating, generation_jobs
from composer_web.tasks.curation import services as curation
from composer_web.tasks.models import Suite, Task
from composer_web.tasks.services import record_controls
from sandbox.install.recipes.goals import GoalSet
from sandbox.install.record import Evidence, InstallRecord
from sandbox.packages.build import BuiltPackage
from sandbox.tasks.spec import BuiltEnvironment
from tests.web.repositories.test_repositories import archive

pytestmark = pytest.mark.django_db
Browser = Callable[[str], Client]


@pytest.fixture
def browser(people: dict[str, User]) -> Browser:
    def of(role: str) -> Client:
        made = Client()
        made.force_login(people[role])
        return made

    return of


def column(client: Client, address: str, name: str) -> list[str]:
    """A column of the table on a page, as it is sorted there."""
    table = client.get(address).context["table"]
    return [str(row.get_cell_value(name)) for row in table.paginated_rows]


@pytest.mark.parametrize(("name", "of"), [("position", "position"), ("task", "task__slug"), ("family", "task__family")])
def test_members_are_sorted(browser: Browser, make_suite: Callable[..., Suite], name: str, of: str) -> None:
    suite = make_suite()
    Task.objects.filter(versions__suites=suite).update(category="debug")
    wanted = [str(value) for value in sorted(suite.memberships.values_list(of, flat=True))]
    assert len(set(wanted)) > 1
    client = browser("viewer")
    with CaptureQueriesContext(connection) as up:
        assert column(client, f"/suites/train/?sort={name}", name) == wanted
    with CaptureQueriesContext(connection) as down:
        assert column(client, f"/suites/train/?sort=-{name}", name) == wanted[::-1]
    assert len(up) == len(down)


def test_what_versions_say_does_not_sort(browser: Browser, make_suite: Callable[..., Suite]) -> None:
    """It would read the whole suite for one page: such a column is no link, and its name in the address does nothing."""
    make_suite()
    page = browser("viewer").get("/suites/train/?sort=controls")
    assert "sort=controls" not in page.content.decode().partition("<tbody>")[0].partition("<thead>")[2]
    assert column(browser("viewer"), "/suites/train/?sort=version", "position") == [str(n) for n in range(12)]


def test_a_suite_leads_on(browser: Browser, make_suite: Callable[..., Suite], people: dict[str, User]) -> None:
    suite = make_suite()
    operator, viewer = browser("operator"), browser("viewer")
    text = operator.get("/suites/train/").content.decode()
    assert "/tasks/review/?suite=train" in text and "/evaluations/releases/?suite=train" not in text
    version = suite.versions.earliest("pk")
    record_controls(version=version, controls={"bundle_hash": version.bundle_hash}, ok=True)
    assert "/evaluations/releases/?suite=train#publish" in operator.get("/suites/train/").content.decode()
    assert 'value="train" selected' in operator.get("/evaluations/releases/?suite=train").content.decode()
    assert "/tasks/review/" not in viewer.get("/suites/train/").content.decode()
    curation.open_suite(name="bench", purpose="benchmark", reviewed=True, actor=people["reviewer"])
    empty = operator.get("/suites/bench/").content.decode()
    assert "Nothing in this suite yet" in empty and "two for each" in empty
    assert "/tasks/review/?suite=bench" not in empty and "/tasks/review/?into=bench" in empty
    done = operator.get("/tasks/review/?q=nothing-like-it&into=bench").content.decode()
    assert "Nothing waits for your review" in done and "/suites/bench/" in done
    assert "/suites/none/" not in operator.get("/tasks/review/?q=nothing-like-it&into=none").content.decode()


def test_empty_pages_say_what_to_do(browser: Browser) -> None:
    for path, words, for_viewers in (
        ("/environments/", "/environments/new/", False),
        ("/suites/", "No suites yet", True),
        ("/tasks/", "Add your own repository", True),
    ):
        assert words in browser("operator").get(path).content.decode(), path
        assert (words in browser("viewer").get(path).content.decode()) is for_viewers, path


def test_generation_jobs_are_on_the_page_of_generators(browser: Browser, people: dict[str, User]) -> None:
    client = browser("reviewer")
    assert "Generation jobs" not in client.get("/generators/").content.decode()
    job = generation_jobs.create(
        name="fresh", generators=["mutation", "deletion"], packages=["toolz"], requested=8, actor=people["reviewer"]
    )
    assert "queued" in client.get("/generators/?part=jobs").content.decode()
    generation_jobs.start(job.pk)
    generation_jobs.progress(job.pk, kept=2, tried=5, current="mutation · toolz")
    text = client.get("/generators/?part=jobs").content.decode()
    assert "2 of 8 tasks" in text and "5 drafts tried · mutation · toolz" in text
    assert generation_jobs.get(job.pk).eta_seconds
    generation_jobs.fail(job.pk, why="the environment is gone <b>")
    text = client.get("/generators/?package=none").content.decode()
    assert "the environment is gone &lt;b&gt;" in text and "mutation, deletion" in text
    assert client.post(f"/generators/jobs/{job.pk}/stop/", follow=True).status_code == 200
    assert generation_jobs.get(job.pk).state == "failed", "it had ended before"


def test_a_fault_of_the_generator_ends_its_job(people: dict[str, User], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> BuiltPackage:
        raise KeyError("test_x[1]")

    monkeypatch.setattr(generating, "built_package", broken)
    wanted = generating.Wanted(name="fresh", packages=("toolz",))
    job = generating.request_suite(wanted, actor=people["reviewer"])
    with pytest.raises(KeyError):
        generating.carry_out(wanted, project=job.project_id, job=job.pk)
    ended = generation_jobs.get(job.pk)
    assert ended.state == "failed" and "KeyError: 'test_x[1]'" in ended.why and "build worker" in ended.why


@pytest.fixture
def shop(people: dict[str, User]) -> Environment:
    made = request_archive(name="shop", filename="shop-1.0.tar.gz", content=archive({"shop/shop.py": "x = 1\n"}))
    return made.environment


def built(**evidence: int) -> InstallRecord:
    package = BuiltPackage(
        name="shop",
        version="1.0",
        environment=BuiltEnvironment(digest="a" * 64),
        source_roots=("src",),
        tests={"test_shop.py::test_x": 0.25},
        covered={},
    )
    return InstallRecord(
        name="shop",
        version="1.0",
        checkout="b" * 64,
        language="python",
        goals=GoalSet.model_construct(goals=(), shown=()),
        attempts=(),
        evidence=Evidence(collected=40, unseen_met=7, unseen=7, **evidence),
        built=package,
        test_command="pytest",
    )


@pytest.mark.parametrize(("left_out", "line"), [(0, ""), (360, "40 of 400 tests stand for the whole")])
def test_a_sample_of_a_long_suite_is_told(browser: Browser, shop: Environment, left_out: int, line: str) -> None:
    assert shop.repository is not None
    claimed = services.claim(environment_id=shop.pk, owner="build@test", seconds=60)
    assert claimed is not None
    waiting = browser("reviewer").get(f"/environments/{shop.pk}/").content.decode()
    assert "as soon as the environment is ready" in waiting and "Make tasks from it" not in waiting
    detail = installing.describe(built(left_out=left_out), shop.repository)
    services.finish(environment=claimed[0], held=claimed[1], digest="a" * 64, detail=detail, log_key="")
    page = browser("reviewer").get(f"/environments/{shop.pk}/")
    text = page.content.decode()
    assert ("Sample of the suite" in text) is bool(line) and line in text
    assert "/generators/?package=shop" in text and "7 of 7, three times" in text
    names = [name for name, _ in page.context["facts"]]
    assert names[:3] == ["language", "test_command", "tests"] and "record" not in names
    assert "Make tasks from it" not in browser("viewer").get(f"/environments/{shop.pk}/").content.decode()
