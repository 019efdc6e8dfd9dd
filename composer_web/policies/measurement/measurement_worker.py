"""Runs a measurement on a worker: in a separate process, under a lease and a timeout, with progress reports."""

from __future__ import annotations

import contextlib
import logging
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO

from django.db import InterfaceError, OperationalError, connection
from pydantic import ValidationError

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import DEFAULT_PROJECT
from composer_web.env import REPOSITORY
from composer_web.core.queue import leases
from composer_web.core.errors import UserError
from composer_web.datasets import codebases
from composer_web.policies.measurement import measurement_jobs
from composer_web.policies.models import MeasurementOrder
from composer_web.policies.measurement.measurement_schemas import Wanted
from composer_web.policies.selectors import resolve
from trainer.model_selection.measure import Asked, Told
from trainer.model_selection.scores import Selection

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""Renewed at every check, so that it expires soon after the worker dies."""
MAX_SECONDS = 3600.0
"""Timeout of one measurement in seconds."""
LOOK_SECONDS = 1.0
"""Seconds between two checks for cancellation."""
COMMAND = (sys.executable, "-m", "trainer.model_selection.measure")


class Ended(Exception):
    """The measurement failed. The message names the cause and the remedy."""


class Stopped(Exception):
    """The measurement was cancelled or taken over by another worker. There is nothing left to write."""


def carry_out(order_id: int) -> str:
    """Run the requested measurement. Returns the outcome for the log. Idempotent."""
    held = leases.take(measurement_jobs.resource(order_id), owner=leases.identity("measure"), seconds=LEASE_SECONDS)
    if held is None:
        return "another worker measures it"
    try:
        order = measurement_jobs.claim(order_id, held)
        if order is None:
            return "nothing to do"
        try:
            measurement_jobs.finish(order, held, _measured(order, held))
        except (Ended, UserError) as error:
            measurement_jobs.fail(order, held, str(error))
            return f"failed: {error}"
        return "measured"
    except (Stopped, leases.LeaseLost) as error:
        return f"stopped: {error}"
    finally:
        leases.release(held)


def _measured(order: MeasurementOrder, held: leases.Held) -> Selection:
    """Raises Ended, Stopped, UserError."""
    wanted = Wanted.model_validate(order.wanted)
    with acting(Access(order.created_by_id or 0, "viewer", order.project_id or DEFAULT_PROJECT)):
        place = codebases.find(wanted.codebase)
        weights = resolve(order.policy.at(order.version))
    asked = Asked(
        folder=weights.whole().resolve(), policy=order.policy.at(order.version), path=place.path.resolve(),
        codebase=place.name, **wanted.model_dump(exclude={"codebase"}),
    )  # fmt: skip
    end = time.monotonic() + MAX_SECONDS

    def look(doing: str, share: float) -> None:
        if time.monotonic() > end:
            raise Ended(
                f"it was not done after {MAX_SECONDS / 60:.0f} minutes; measure less text (most_bytes), fewer questions "
                "(items), or let a worker with a GPU do it"
            )
        try:
            if leases.beat([held]):
                raise Stopped("another worker took it over")
            if not measurement_jobs.say(order, doing=doing, share=share):
                raise Stopped("somebody stopped it")
        except (OperationalError, InterfaceError) as error:  # Postgres is away for a while: the measuring goes on
            log.warning("measurement %d is not told of: %s", order.pk, str(error).strip())
            connection.close()

    return _in_a_process(asked, look)


def _in_a_process(asked: Asked, look: Callable[[str, float], None]) -> Selection:
    """Run the measurement in a child process. The child ends with this call in any case, and with this worker, whose
    end closes its standard input."""
    with tempfile.TemporaryFile() as errors, subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=REPOSITORY
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
        reader.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # it died at once: what it left says why
                process.stdin.write(asked.model_dump_json().encode() + b"\n")
                process.stdin.flush()
            return _heard(lines, look, process, errors)
        finally:
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            reader.join()


def _read(out: IO[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    for line in out:
        lines.put(line)
    lines.put(None)


def _heard(
    lines: queue.SimpleQueue[bytes | None], look: Callable[[str, float], None], process: subprocess.Popen[bytes],
    errors: IO[bytes],
) -> Selection:  # fmt: skip
    """Raises Ended, and the errors of `look`."""
    told = Told(doing="begins")
    while True:
        look(told.doing, told.share)
        try:
            line = lines.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            continue
        if line is None:
            raise Ended(_died(process.wait(), errors))
        try:
            told = Told.model_validate_json(line)
        except ValidationError:  # a library wrote to standard output
            log.warning("measuring said %s", line[:200])
            continue
        if told.refused:
            raise Ended(told.refused)
        if told.found is not None:
            return told.found


def _died(status: int, errors: IO[bytes]) -> str:
    """Reason why a process ended without a result."""
    errors.seek(0)
    said = errors.read().decode("utf-8", "replace").strip()
    if said:
        log.warning("measuring died with status %d: %s", status, said[-4000:])
    if status < 0:
        return (
            f"the measuring process was killed (signal {-status}), as a rule for lack of memory; measure with a smaller "
            "window, or on a worker with more memory"
        )
    last = said.splitlines()[-1][:300] if said else "it said nothing"
    return f"measuring broke: {last}; the worker's log has the rest"
