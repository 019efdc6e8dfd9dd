"""What Celery tasks declare: queues, time limits, leases; and that a second delivery of any of them is harmless."""

from __future__ import annotations

import ast
import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, connections, transaction

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import User
from composer_web.celery import VISIBILITY_SECONDS, app
from composer_web.core.models import Lease, Outbox
from composer_web.core.queue import leases, work
from composer_web.core.queue.queues import QUEUES
from composer_web.core.queue.work import TASKS
from composer_web.env import REPOSITORY
from composer_web.tasks import controls, generating, generation_jobs
from composer_web.tasks.models import GenerationJob, GeneratorRun, Suite, TaskVersion
from composer_web.tasks.tasks import generate as generate_task
from composer_web.tasks.tasks import run_controls
from sandbox.generators.building.drafts import Reason, Rejected
from sandbox.generators.building.yields import Yield
from sandbox.grading.controls import Controls
from sandbox.tasks.procedural import generate
from sandbox.tasks.spec import TaskSpec
from tests.web.helpers import eventually

pytestmark = pytest.mark.django_db(transaction=True)
ARGUMENTS = {"version_ids": [7], "wanted": {}, "project": 1, "job": 7}


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """All modules of tasks, as a worker has them."""
    app.loader.import_default_modules()


@pytest.fixture
def one_thread_for_long_work() -> Iterator[None]:
    work.threads.bound(2)
    yield
    work.threads.bound(1_000)


def ours() -> dict[str, Any]:
    return {name: task for name, task in app.tasks.items() if not name.startswith("celery.")}


def test_every_task_ends_in_time_or_holds_a_lease() -> None:
    """The broker sends a message again that was not acknowledged in time, while the first worker goes on."""
    assert ours().keys() == TASKS.keys(), "declare it with composer_web.core.queue.work.task"
    wrong = [
        name
        for name, declared in TASKS.items()
        if not (declared.lease or (declared.seconds is not None and declared.seconds < VISIBILITY_SECONDS / 2))
    ]
    assert not wrong, f"longer than the broker waits, and without a lease: {wrong}"


def test_every_message_goes_to_a_queue_of_its_task() -> None:
    asked = [*scheduled(), *sent()]
    assert len(asked) > 25
    assert {queue for _, queue in asked} <= set(QUEUES)
    assert not [(name, queue) for name, queue in asked if queue not in TASKS[name].queues]


def test_nothing_long_shares_a_queue_with_what_everything_waits_for() -> None:
    """Outbox, pump and reconciler never wait behind work that may take minutes, and neither do rollouts."""
    for name, declared in TASKS.items():
        if "control" in declared.queues:
            assert declared.seconds is not None and declared.seconds <= 300, name
        if {"rollout", "eval"} & set(declared.queues):
            assert name == "rollouts.run_group"
    for name in ("ops.flush_outbox", "ops.reconcile", "runs.pump", "runs.pump_all"):
        assert TASKS[name].queues == ("control",)
    long = {
        "rollouts.export",
        "datasets.prepare",
        "datasets.prepare_corpus",
        "policies.measure",
        "rollouts.audit_run",
        "evals.check_contamination",
    }
    assert all(TASKS[name].long for name in long)


def scheduled() -> Iterator[tuple[str, str]]:
    for entry in app.conf.beat_schedule.values():
        yield entry["task"], entry["options"]["queue"]


def sent() -> Iterator[tuple[str, str]]:
    """Task and queue of every call of `enqueue` and `enqueue_many` in the product that names both."""
    for path in (REPOSITORY / "composer_web").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") == "enqueue":
                queue = next((word.value for word in node.keywords if word.arg == "queue"), None)
                if isinstance(node.args[0], ast.Constant) and isinstance(queue, ast.Constant):
                    yield node.args[0].value, queue.value
            elif isinstance(node, ast.Tuple) and len(node.elts) == 4 and isinstance(node.elts[0], ast.Constant):
                name, queue = node.elts[0].value, node.elts[2]
                if name in TASKS and isinstance(queue, ast.Constant):
                    yield name, queue.value


def held_tasks() -> list[str]:
    app.loader.import_default_modules()
    return sorted(name for name, declared in TASKS.items() if declared.lease and not declared.inside)


@pytest.mark.parametrize("name", held_tasks())
def test_a_second_delivery_is_put_off_while_the_first_runs(name: str) -> None:
    task = ours()[name]
    names = [one for one in inspect.signature(task.run).parameters.values() if one.kind is one.KEYWORD_ONLY]
    given = {one.name: ARGUMENTS.get(one.name, 7) for one in names if one.default is one.empty}
    defaults = {one.name: one.default for one in names if one.default is not one.empty}
    resource = TASKS[name].lease.format(**{**defaults, **given})
    first = leases.take(resource, owner="the first worker", seconds=60)
    assert first is not None
    for _ in range(2):
        task(**given)
    rows = list(Outbox.objects.values("task", "kwargs", "queue", "sent_at"))
    assert rows == [{"task": name, "kwargs": given, "queue": TASKS[name].queues[0], "sent_at": None}] * 2
    assert len(set(Outbox.objects.values_list("key", flat=True))) == 1, "sent once"
    assert leases.is_held(resource)


def test_every_version_of_a_message_has_a_lease_of_its_own(
    make_suite: Callable[..., Suite], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two messages that share a version never grade it at the same time, and a second delivery grades nothing again."""
    make_suite(count=3)
    pks = list(TaskVersion.objects.order_by("pk").values_list("pk", flat=True))
    TaskVersion.objects.update(controls_ok=None)
    graded: list[int] = []

    by_hash = {version.bundle.bundle_hash: version.pk for version in TaskVersion.objects.all()}

    async def grade(*, task: TaskSpec, **_: Any) -> Controls:
        graded.append(by_hash[task.bundle_hash])
        return Controls(bundle_hash=task.bundle_hash, ok=True)

    monkeypatch.setattr(controls, "grade_controls", grade)
    other = leases.take(f"controls:{pks[1]}", owner="another worker", seconds=60)
    assert other is not None
    run_controls(version_ids=pks)
    assert sorted(graded) == [pks[0], pks[2]]
    assert not leases.is_held(f"controls:{pks[0]}")
    asked = Outbox.objects.get(task="tasks.run_controls", sent_at=None)
    assert asked.kwargs == {"version_ids": [pks[1]], "again": False}
    leases.release(other)
    for _ in range(2):
        run_controls(version_ids=pks)
    assert sorted(graded) == pks


class Work:
    """A task of the tests that stands still until it is told to write."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.wrote = 0

        @work.task(f"tests.work-{id(self)}", queue="io", lease="work:{number}")
        def run(*, number: int, **_: Any) -> None:
            self.begun.set()
            assert self.go.wait(timeout=60)
            with transaction.atomic():
                leases.fence()
                self.wrote += 1

        self.run = run

    def start(self) -> threading.Thread:
        def body() -> None:
            try:
                self.run(number=1)
            finally:
                connections.close_all()

        thread = threading.Thread(target=body)
        thread.start()
        assert self.begun.wait(timeout=60)
        return thread


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    monkeypatch.setattr(work, "LEASE_SECONDS", 1.0)
    made = Work()
    yield made
    made.go.set()
    for name in [name for name in TASKS if name.startswith("tests.")]:
        TASKS.pop(name)
        app.tasks.pop(name, None)


def test_a_lease_lives_as_long_as_the_work(slow: Work) -> None:
    thread = slow.start()
    began = Lease.objects.get(resource="work:1").expires_at
    eventually(lambda: Lease.objects.get(resource="work:1").expires_at > began, seconds=30, what="a longer lease")
    assert leases.take("work:1", owner="another", seconds=1) is None
    slow.go.set()
    thread.join(timeout=60)
    assert slow.wrote == 1 and not leases.is_held("work:1")


def test_a_worker_that_was_believed_dead_writes_nothing(slow: Work) -> None:
    thread = slow.start()
    with connection.cursor() as cursor:  # as if its process had stood still for longer than the lease
        cursor.execute("UPDATE ops_lease SET owner = 'another', token = token + 1 WHERE resource = 'work:1'")
    slow.go.set()
    thread.join(timeout=60)
    assert slow.wrote == 0
    assert Lease.objects.get(resource="work:1").owner == "another", "the other's lease stays"


def test_one_thread_of_a_worker_is_never_taken_by_long_work(one_thread_for_long_work: None) -> None:
    ran: list[str] = []

    def made(name: str, body: Callable[[], object], **declared: Any) -> Any:
        @work.task(f"tests.{name}", queue="io", seconds=1, **declared)
        def run(**_: Any) -> None:
            ran.append(name)
            body()

        return run

    short = made("short", lambda: None)
    second = made("second", lambda: None, long=True)
    first = made("first", lambda: [task() for task in (second, short)], long=True)  # while the first runs
    try:
        first()
        assert ran == ["first", "short"]
        assert Outbox.objects.get().task == "tests.second", "asked for again"
        second()
        assert ran[-1] == "second"
    finally:
        for name in [name for name in TASKS if name.startswith("tests.")]:
            TASKS.pop(name)
            app.tasks.pop(name, None)


# --- generation -------------------------------------------------------------------------------------------------


@pytest.fixture
def order(people: dict[str, User], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The message of an order whose generators are left out."""
    tried = Yield(generator="mutation", package="toolz", split="train", seed=0, tried=3, kept=1, seconds=2.0)
    monkeypatch.setattr(generating, "built_package", lambda name, environment: name)
    monkeypatch.setattr(generating, "generated", lambda *_, **__: ([generate(5, "train")], [tried]))
    with acting(Access(people["reviewer"].pk, "reviewer", 1, 1)):
        generating.request_suite(generating.Wanted(name="made", packages=("toolz",)), actor=people["reviewer"])
    return dict(Outbox.objects.get(task="tasks.generate").kwargs)


def ends() -> int:
    return GenerationJob.objects.filter(state="finished").count()


def test_an_order_that_is_delivered_twice_is_carried_out_once(order: dict[str, Any]) -> None:
    for _ in range(2):
        generate_task(**order)
    assert (GeneratorRun.objects.count(), ends(), Suite.objects.count()) == (1, 1, 1)


def test_a_worker_that_lost_its_order_leaves_nothing_behind(
    order: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = generating.generated

    def taken(*args: Any, **kwargs: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE ops_lease SET owner = 'another', token = token + 1 WHERE resource LIKE 'generate:%'")
        return honest(*args, **kwargs)

    monkeypatch.setattr(generating, "generated", taken)
    generate_task(**order)
    assert (GeneratorRun.objects.count(), ends(), Suite.objects.count()) == (0, 0, 0)


def test_a_stopped_generation_ends_at_once_and_makes_no_suite(
    order: dict[str, Any], monkeypatch: pytest.MonkeyPatch, people: dict[str, User]
) -> None:
    """The generators run in a thread of their own; the worker's thread writes the progress and sees the stop."""
    monkeypatch.undo()
    begun = threading.Event()

    async def endless(*args: Any, found: Yield, **_: Any) -> AsyncIterator[TaskSpec]:
        found.reject("arithmetic", Rejected(Reason.UNNOTICED))
        yield generate(5, "train")
        begun.set()
        await asyncio.sleep(600)

    monkeypatch.setattr(generating, "built_package", lambda name, environment: SimpleNamespace(name=name))
    monkeypatch.setattr(generating, "generate_tasks", endless)
    progress = generation_jobs.progress

    def stopped_later(pk: int, **fields: Any) -> bool:
        if begun.is_set() and progress(pk, **fields):
            assert (GenerationJob.objects.get().kept, GenerationJob.objects.get().tried) == (1, 1)
            generation_jobs.stop(pk, actor=people["reviewer"])
        return progress(pk, **fields)

    monkeypatch.setattr(generation_jobs, "progress", stopped_later)
    generate_task(**order)
    assert (GenerationJob.objects.get().state, Suite.objects.count()) == ("stopped", 0)
