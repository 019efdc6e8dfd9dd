"""The commands that stay: they show what the supervisor does until Ctrl-C, then stop what they started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from . import environment
from .errors import Busy, StackError
from .layout import REPOSITORY, Layout
from .lifecycle import bring_down, say
from .supervision import State, Supervisor

POLL_SECONDS = 1.0


class Stop(BaseException):
    """A signal asked us to end. Not an Exception: nothing on the way may mistake it for a failure."""


def obey_signals() -> None:
    """Turn Ctrl-C, `kill` and a closed terminal into Stop, once; more of them do not cut the stopping short."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        raise Stop

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)


def stay(layout: Layout, supervisor: Supervisor) -> int:
    """Report restarts until a signal comes or the stack is stopped from elsewhere."""
    known = {state.name: state for state in supervisor.states()}
    while True:
        time.sleep(POLL_SECONDS)
        try:
            now = supervisor.states()
        except StackError:
            if environment.read_mark(layout) is None:
                say("stopped by `make down`")
                return 0
            say(f"the supervisor is gone; its log is {layout.logs / 'supervisor.log'}")
            return 1
        for state in now:
            _report(known[state.name], state, layout)
        known = {state.name: state for state in now}


def _report(before: State, now: State, layout: Layout) -> None:
    log = layout.logs / f"{now.name}.log"
    if now.state == before.state and now.pid == before.pid:
        return
    if now.state == "FATAL":
        say(f"{now.name} keeps failing and was given up; its log is {log}")
    elif now.state == "BACKOFF" and before.state != "BACKOFF":
        say(f"{now.name} does not stay up and will be tried again; its log is {log}")
    elif before.pid and now.pid and before.pid != now.pid:
        say(f"{now.name} ended and was started again (pid {now.pid})")


def run_beside(layout: Layout, command: Sequence[str]) -> int:
    """Run one management command against the stack, with our terminal; it is ended when we are asked to stop."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", *command],
        cwd=REPOSITORY,
        env=environment.by_hand(layout),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def stop(layout: Layout) -> None:
    say("stopping …")
    try:
        bring_down(layout)
    except Busy:
        say("another command stops it")
        return
    say("stopped")
