"""Workers and trainers forked from one process that has imported them: killed and started by the hundred, none waits for torch.

`python -m tests.web.forked SOCKET` imports the product, and then forks a process for each request on its socket; what runs in it
is `celery …`, `manage.py …` or `-c CODE …` as typed. `ForkedProduct` is a `Product` of such processes. Train workers start their
trainer process with `forked_client.py`, a stand-in that ends as the forked process ends, and takes it along when it is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.web.helpers import eventually
from tests.web.product import Product

CLIENT = Path(__file__).with_name("forked_client.py")
SOCKET = "FORKED_SOCKET"
LOOK_SECONDS = 0.05


class ForkedProduct(Product):
    def __init__(self, folder: Path, port: int, **settings: str) -> None:
        super().__init__(folder, port, **settings, **{SOCKET: str(folder / "forked")})
        self.address = str(folder / "forked")
        with (folder / "forked.log").open("ab") as log:
            self.server = subprocess.Popen(
                [sys.executable, "-m", "tests.web.forked", self.address],
                env=self.variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(Path(self.address).exists, seconds=240, what="the process to fork from")

    def start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-S", "-E", str(CLIENT), *self.commands[name]],
                env=self.variables,
                stdout=log,
                stderr=log,
            )

    def script(self, code: str, *words: str) -> subprocess.Popen[str]:
        """A process of these lines of Python, as `python -c` would run them."""
        return subprocess.Popen(
            [sys.executable, "-S", "-E", str(CLIENT), "-c", code, *words],
            env=self.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill(self, name: str) -> None:
        """Kill -9 the worker itself, and start it again."""
        pids = self.pids(name)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.running[name].wait(timeout=30)
        self.start(name)

    def terminate(self, name: str) -> None:
        for pid in self.pids(name):
            os.kill(pid, signal.SIGTERM)

    def pids(self, name: str) -> list[int]:
        return self._asked(" ".join(self.commands[name]))

    def trainer_pids(self, run_id: int | None = None) -> list[int]:
        return self._asked("manage.py trainer " if run_id is None else f"manage.py trainer {run_id} ")

    def _asked(self, command: str) -> list[int]:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(30)
            asking.connect(self.address)
            asking.sendall(json.dumps({"list": command}).encode())
            found: list[int] = json.loads(asking.makefile().readline())
            return found

    def end(self) -> None:
        """Kill what runs; programs can be started again."""
        super().stop()
        self.running.clear()
        eventually(lambda: not self._asked(""), seconds=60, what="the end of all processes")

    def stop(self) -> None:
        self.end()
        self.server.kill()
        self.server.wait(timeout=30)


class Server:
    def __init__(self, address: str) -> None:
        self.children: dict[int, tuple[str, socket.socket]] = {}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{address}.new")
        self.listener.listen(64)
        os.rename(f"{address}.new", address)

    def serve(self) -> None:
        parent = os.getppid()
        while os.getppid() == parent:  # a test session that is killed outright cleans nothing up
            connections = {connection: pid for pid, (_, connection) in self.children.items()}
            ready, _, _ = select.select([self.listener, *connections], [], [], LOOK_SECONDS)
            for one in ready:
                if one is self.listener:
                    self._answer(self.listener.accept()[0])
                else:  # the stand-in was killed, and takes its process along
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(connections[one], signal.SIGKILL)
            self._reap()
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)

    def _answer(self, connection: socket.socket) -> None:
        text, fds, _, _ = socket.recv_fds(connection, 1 << 16, 3)
        asked = json.loads(text)
        if "list" in asked:
            found = [pid for pid, (command, _) in self.children.items() if asked["list"] in command]
            connection.sendall(f"{json.dumps(found)}\n".encode())
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            self._become(asked["argv"], fds)
        for fd in fds:
            os.close(fd)
        self.children[pid] = (" ".join(asked["argv"]), connection)

    def _become(self, argv: Sequence[str], fds: Sequence[int]) -> None:
        code = 1
        try:
            os.setsid()
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
            os.closerange(3, 4096)
            sys.stdin = open(0)  # noqa: SIM115 (the process's own)
            code = run(argv)
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 1
            if isinstance(leave.code, str):
                print(leave.code, file=sys.stderr)
        except Exception:  # noqa: BLE001 (it must not go on as the server)
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _, connection = self.children.pop(pid)
            with contextlib.suppress(OSError):
                connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            connection.close()


def run(argv: Sequence[str]) -> int:
    """`manage.py …`, `-m celery …` or `-c CODE …` in this process."""
    if argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        exec(compile(argv[1], "<script>", "exec"), {"__name__": "__main__"})
        return 0
    if argv[0].endswith("manage.py"):
        from django.core.management import execute_from_command_line

        execute_from_command_line(list(argv))
        return 0
    from celery.bin.celery import main as celery

    sys.argv = ["celery", *argv[2:]]
    if "worker" in argv:
        from composer_web.runs.training import train_worker

        train_worker.TRAINER = (sys.executable, "-S", "-E", str(CLIENT))
    return int(celery() or 0)  # type: ignore[func-returns-value]


def load() -> None:
    """Everything that workers and trainers import; nothing that opens a connection."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "composer_web.settings")
    import django

    django.setup()
    import torch

    from composer_web.celery import app

    app.loader.import_default_modules()
    import trainer.rl.stage
    import trainer.weights  # noqa: F401

    torch.set_num_threads(1)


if __name__ == "__main__":
    load()
    Server(sys.argv[1]).serve()
