"""Log lines of trainers and workers: redacted, bounded, never lost silently, found on the Logs tab, by API and command line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.env import env
from composer_web.runs import logs
from composer_web.runs.models import Run, RunLog
from composer_web.runs.training.log_shipping import LogShipper
from tests.web.cli.support import Cli, data
from tests.web.helpers import eventually

log = logging.getLogger("trainer.here")


@pytest.fixture
def shipper(running: Run) -> Iterator[LogShipper]:
    made = LogShipper(run_id=running.pk, process="trainer@a/1").start()
    yield made
    made.stop()


@pytest.mark.django_db(transaction=True)
def test_lines_of_a_process_reach_its_run_without_secrets(running: Run, shipper: LogShipper) -> None:
    log.debug("too fine")
    log.info("connecting to postgresql://me:hunter22@db/x with api_key=abcdef0123456789")
    try:
        raise RuntimeError("the step broke")
    except RuntimeError:
        log.exception("run %d failed", running.pk)
    eventually(lambda: RunLog.objects.filter(message__contains="broke").exists(), seconds=30, what="the stored lines")
    error, info = logs.found(running, q="trainer.here")
    assert "[redacted:password]" in info.message and "hunter22" not in info.message and "abcdef" not in info.message
    assert (error.level, error.logger, error.process) == ("error", "trainer.here", "trainer@a/1")
    assert "Traceback" in error.message and "RuntimeError: the step broke" in error.message
    log.warning("x" * 10_000)
    shipper.stop()
    last = logs.found(running).first()
    assert last is not None and len(last.message) <= logs.MAX_CHARACTERS and last.message.endswith("characters more)")
    log.warning("after the end")
    assert not RunLog.objects.filter(message="after the end").exists()


@pytest.mark.django_db(transaction=True)
def test_what_the_queue_cannot_hold_is_counted(running: Run) -> None:
    """Nothing is stored before the thread starts, as while Postgres is away."""
    shipper = LogShipper(run_id=running.pk, process="trainer@a/1", waiting=2)
    for n in range(5):
        shipper.handle(logging.makeLogRecord({"name": "t", "levelno": logging.INFO, "msg": f"line {n}"}))
    assert shipper.flush_waiting()
    shipper.handle(logging.makeLogRecord({"name": "t", "levelno": logging.INFO, "msg": "again"}))
    assert shipper.flush_waiting() and shipper.flush_waiting()
    assert [(one.message, one.dropped) for one in logs.found(running)] == [("again", 3), ("line 1", 0), ("line 0", 0)]


@pytest.mark.django_db(transaction=True)
def test_lines_of_a_worker_go_to_the_run_that_it_works_for(running: Run) -> None:
    other = Run.objects.create(
        name="other", kind="rl", config=running.config, steps_total=1, policy_in=running.policy_in
    )
    shipper = LogShipper(process="rollout@a/1")
    logging.getLogger().addHandler(shipper)

    async def episode() -> None:
        log.info("in an episode")

    log.info("of no run")
    with logs.lines_of(10**9):  # deleted meanwhile
        log.info("of a run that is gone")
    for run in (running, other):
        with logs.lines_of(run.pk):
            log.info("of run %s", run.name)
            asyncio.run(episode())
    logging.getLogger().removeHandler(shipper)
    assert shipper.flush_waiting() and shipper.flush_waiting()
    for run in (running, other):
        lines = [(one.message, one.process) for one in logs.found(run)]
        assert lines == [("in an episode", "rollout@a/1"), (f"of run {run.name}", "rollout@a/1")]


@pytest.mark.django_db
def test_a_process_keeps_its_newest_lines_and_old_ones_are_deleted(
    running: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_LINES", 3)
    now = timezone.now()

    def line(text: str, process: str = "trainer@a/1") -> RunLog:
        return RunLog(run=running, at=now, process=process, level="info", message=text)

    logs.keep(run_id=running.pk, process="b", lines=[line("other", "b")])
    for n in range(5):
        logs.keep(run_id=running.pk, process="trainer@a/1", lines=[line(f"{n}")])
    assert [one.message for one in logs.found(running)] == ["4", "3", "2", "other"]
    RunLog.objects.filter(message="other").update(at=now - timedelta(days=env().run_log_days, hours=1))
    assert logs.prune() == 1 and logs.processes(running) == ["trainer@a/1"]


@pytest.mark.django_db
def test_lines_are_searched_by_text_level_and_process(running: Run, people: dict[str, User], cli: Cli) -> None:
    now, client = timezone.now(), Client()
    client.force_login(people["viewer"])
    address = f"/runs/{running.pk}/logs/?source=processes"
    assert "has logged anything for this run yet" in client.get(address).content.decode()
    for process, level, text in (
        ("trainer@a/1", "info", "step 1 <b>begins</b>"),
        ("trainer@a/1", "error", "the checkpoint failed"),
        ("trainer@b/1", "warning", "the checkpoint is late"),
    ):
        RunLog.objects.create(run=running, at=now, process=process, level=level, logger="t", message=text, dropped=7)
    html = client.get(address).content.decode()
    assert "step 1 &lt;b&gt;begins" in html and "7 lines before it" in html and "trainer@b/1" in html
    for query, found in (
        ("q=checkpoint", ["the checkpoint is late", "the checkpoint failed"]),
        ("level=warning", ["the checkpoint is late", "the checkpoint failed"]),
        ("q=checkpoint&process=trainer@a/1", ["the checkpoint failed"]),
    ):
        part = client.get(f"{address}&{query}", headers={"HX-Request": "true"}).content.decode()
        assert "<html" not in part and [text for text in found if text in part] == found and "begins" not in part, query
        items = client.get(f"/api/v1/runs/{running.pk}/logs/lines?{query}").json()["items"]
        assert [one["message"] for one in items] == found, query
    assert "No line matches" in client.get(f"{address}&q=nothing").content.decode()
    assert client.get(f"/api/v1/runs/{running.pk}/logs/lines?level=loud").status_code == 422
    rows = data(cli("logs", "list", str(running.pk), "--level", "error", "--json"))
    assert [one["message"] for one in rows] == ["the checkpoint failed"]
