"""Starting supervisord and talking to it over its private socket."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from . import processes
from .errors import NotAnswering, StackError
from .layout import REPOSITORY, Layout
from .programs import control_socket

START_SECONDS = 15.0
STOP_SECONDS = 90.0  # longer than the patience of all programs together
FAILED_STATES = ("FATAL", "EXITED")


@dataclass(frozen=True, slots=True)
class State:
    """One program as the supervisor sees it."""

    name: str
    group: str
    state: str  # STOPPED STARTING RUNNING BACKOFF STOPPING EXITED FATAL
    pid: int  # 0 when it does not run
    seconds: int  # since it was started


class Supervisor:
    """A running supervisord. Methods raise StackError when it does not answer."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._socket = control_socket(layout)

    @classmethod
    def start(cls, layout: Layout, configuration: str, environment: Mapping[str, str]) -> Supervisor:
        path = layout.run / "supervisor.conf"
        path.write_text(configuration)
        log = layout.logs / "supervisor.out"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "supervisor.supervisord", "-c", str(path)],
                cwd=REPOSITORY,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches only the command, which then stops everything in order
            )
        started = cls(layout)
        deadline = time.monotonic() + START_SECONDS
        while not started.answers():
            if process.poll() is not None:
                raise StackError(f"the supervisor ended at once:\n{log.read_text()[-2000:]}")
            if time.monotonic() > deadline:
                process.kill()
                raise NotAnswering("the supervisor", START_SECONDS, log)
            time.sleep(0.02)
        return started

    @classmethod
    def running(cls, layout: Layout) -> Supervisor | None:
        """The supervisor of this data folder, if one answers."""
        found = cls(layout)
        return found if found.answers() else None

    def answers(self) -> bool:
        try:
            self._call("getState")
        except (OSError, http.client.HTTPException, xmlrpc.client.Error):
            return False
        return True

    @property
    def pid(self) -> int:
        return cast(int, self._ask("getPID"))

    def states(self) -> list[State]:
        return [
            State(
                name=info["name"],
                group=info["group"],
                state=info["statename"],
                pid=info["pid"],
                seconds=max(0, info["now"] - info["start"]) if info["pid"] else 0,
            )
            for info in cast(list[dict[str, Any]], self._ask("getAllProcessInfo"))
        ]

    def state(self, name: str) -> State:
        return next(state for state in self.states() if state.name == name)

    def start_program(self, group: str, name: str) -> None:
        """Ask for a start of one program, unless it runs. Does not wait."""
        if not self.state(name).pid:
            self._ask("startProcess", f"{group}:{name}", False)

    def start_group(self, group: str) -> None:
        """Ask for a start; programs that run already are left alone. Does not wait."""
        self._ask("startProcessGroup", group, False)

    def shut_down(self) -> None:
        """Stop every program, the product before its services, then the supervisor. Returns when all are gone."""
        pid = self.pid
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._call("shutdown")
        deadline = time.monotonic() + STOP_SECONDS
        while processes.alive(pid):
            if time.monotonic() > deadline:
                raise NotAnswering("the supervisor, asked to stop,", STOP_SECONDS, self._layout.logs / "supervisor.log")
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # when it is our own child
            time.sleep(0.05)

    def _ask(self, method: str, *arguments: object) -> object:
        try:
            return self._call(method, *arguments)
        except (OSError, http.client.HTTPException, xmlrpc.client.Error) as error:
            raise StackError(
                f"the supervisor did not answer {method}: {error}; its log is {self._layout.logs / 'supervisor.log'}"
            ) from error

    def _call(self, method: str, *arguments: object) -> object:
        with xmlrpc.client.ServerProxy("http://localhost", transport=_UnixTransport(self._socket)) as proxy:
            return getattr(proxy.supervisor, method)(*arguments)


class _UnixTransport(xmlrpc.client.Transport):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        return _UnixConnection(self._path)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
