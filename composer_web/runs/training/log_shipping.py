"""Hands the log lines of this process over to the pages of the runs that it works for.

A trainer works for one run. A worker of another queue works for several: `logs.lines_of` says for which at the moment.

A line costs the process that logs it an append to a bounded queue: a thread redacts and stores. While Postgres is away, lines
wait; what the queue cannot hold is dropped and counted, and the next line that is stored says how many.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from datetime import UTC, datetime
from itertools import groupby

from django.db import DatabaseError, IntegrityError, InterfaceError, connections

from composer_web.gateway.redaction import redactor
from composer_web.runs import logs
from composer_web.runs.models import RunLog

MAX_WAITING = 2000
FLUSH_SECONDS = 1.0
GOODBYE_SECONDS = 5.0


class LogShipper(logging.Handler):
    """A handler of the root logger, between `start` and `stop`."""

    def __init__(
        self, *, process: str, run_id: int | None = None, level: int = logging.INFO, waiting: int = MAX_WAITING
    ) -> None:
        """`run_id`: the run of all lines; without it, the run that `logs.lines_of` names when a line is logged."""
        super().__init__(level)
        self.run_id, self.process = run_id, process[:120]
        self._waiting: deque[RunLog] = deque()
        self._room = waiting
        self._dropped = 0
        self._news, self._stopping = threading.Event(), threading.Event()
        self._redact = redactor(())
        self._thread = threading.Thread(target=self._run, name="log-shipping", daemon=True)

    def start(self) -> LogShipper:
        self._thread.start()
        logging.getLogger().addHandler(self)
        return self

    def stop(self) -> None:
        """Store what waits, for a few seconds at most."""
        logging.getLogger().removeHandler(self)
        if self._dropped:
            self._room += 1
            self.handle(
                logging.makeLogRecord({"name": __name__, "levelno": logging.WARNING, "msg": "the log ends here"})
            )
        self._stopping.set()
        self._news.set()
        self._thread.join(GOODBYE_SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        """Called under the handler's lock. Lines of the thread that stores are left to the console: they would never end."""
        if threading.current_thread() is self._thread:
            return
        if (run_id := self.run_id or logs.run_of_lines()) is None:
            return
        if len(self._waiting) >= self._room:
            self._dropped += 1
            return
        try:
            text = self.format(record)
        except (TypeError, ValueError, LookupError):  # arguments that do not fit their format: said as by every handler
            self.handleError(record)
            return
        level = (
            "error" if record.levelno >= logging.ERROR else "warning" if record.levelno >= logging.WARNING else "info"
        )
        self._waiting.append(
            RunLog(
                run_id=run_id,
                at=datetime.fromtimestamp(record.created, UTC),
                process=self.process,
                level=level,
                logger=record.name[:100],
                message=text,
                dropped=self._dropped,
            )
        )
        self._dropped = 0
        self._news.set()

    def flush_waiting(self) -> bool:
        """Store what waits. False when the database did not take it: it waits on."""
        lines = list(self._waiting)
        if not lines:
            return True
        return all(self._store(run_id, list(of_run)) for run_id, of_run in groupby(lines, key=lambda line: line.run_id))

    def _store(self, run_id: int, lines: list[RunLog]) -> bool:
        for line in lines:
            line.message = self._shown(line.message)
        try:
            logs.keep(run_id=run_id, process=self.process, lines=lines)
        except IntegrityError:  # the run was deleted
            pass
        except (DatabaseError, InterfaceError):
            for line in lines:
                line.pk = None
            return False
        for _ in lines:
            self._waiting.popleft()
        return True

    def _shown(self, text: str) -> str:
        """Without secrets, and bounded. Text that was shown before stays as it is."""
        clean, _ = self._redact.text(text.replace("\0", "\ufffd"))
        more = len(clean) - logs.MAX_CHARACTERS
        return clean if more <= 0 else f"{clean[: logs.MAX_CHARACTERS - 40]}… ({more + 40} characters more)"

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._news.wait()
            self._news.clear()
            if not self._try() and not self._stopping.wait(FLUSH_SECONDS):
                self._news.set()
            self._stopping.wait(FLUSH_SECONDS)
        end = time.monotonic() + GOODBYE_SECONDS
        while not self._try() and time.monotonic() < end:
            time.sleep(0.1)

    def _try(self) -> bool:
        try:
            return self.flush_waiting()
        finally:
            connections.close_all()
