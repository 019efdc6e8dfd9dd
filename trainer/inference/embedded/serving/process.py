"""Runs a contract server as a child process, for loops and benchmarks without the supervisor."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from trainer.inference.client import InferenceAdmin
from trainer.inference.contract import InferenceError

START_SECONDS = 60.0


class ServerProcess:
    """`with ServerProcess(module, data) as server:` runs the server on a free loopback port inside the block."""

    launch: ClassVar[type[subprocess.Popen[bytes]]] = subprocess.Popen
    """What starts the command."""

    def __init__(self, module: str, data: Path, *, threads: int = 1, arguments: Sequence[str] = ()) -> None:
        """`data` receives the server's deployment registry and `inference.log`; `arguments` go to its command."""
        self.module = module
        self.data = data
        self.threads = threads
        self.arguments = tuple(arguments)
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until it answers. After `kill` it restarts at the same address."""
        self.data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", self.module]
        command += ["--port", str(self._port), "--data", str(self.data), *self.arguments]
        environment = os.environ | {"OMP_NUM_THREADS": str(self.threads)}
        with (self.data / "inference.log").open("ab") as log:
            self._process = self.launch(command, stdout=log, stderr=log, env=environment)
        try:
            self._await_health()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it gracefully; kill it after 15 s."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(15.0)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill it without warning; nothing is saved."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _await_health(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        with InferenceAdmin(self.url, timeout=5.0) as admin:
            while True:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise InferenceError(f"{self.module} did not start; see {self.data / 'inference.log'}")
                try:
                    if admin.health().ok:
                        return
                except InferenceError:
                    time.sleep(0.05)


class EmbeddedServer(ServerProcess):
    def __init__(self, data: Path, *, threads: int = 1, arguments: Sequence[str] = ()) -> None:
        super().__init__("trainer.inference.embedded.serving.server", data, threads=threads, arguments=arguments)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
