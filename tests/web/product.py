"""The processes of the product on the test database, without the supervisor: a test kills and starts them itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from django.db import connections

from composer_web.env import REPOSITORY, env

REAL_NAME = env().database_url.partition("?")[0].rsplit("/", 1)[1]


class Product:
    """The processes of the product on the test database, killed and started at will."""

    def __init__(self, folder: Path, port: int, **settings: str) -> None:
        database = connections["default"].settings_dict
        url = env().database_url.replace(f"/{REAL_NAME}", f"/{database['NAME']}")
        self.variables = {
            **os.environ,
            "OPENCOMPOSER_DATABASE_URL": url,
            "OPENCOMPOSER_INFERENCE_URL": f"http://127.0.0.1:{port}",
            "OMP_NUM_THREADS": "1",
            **settings,
        }
        celery = ["-m", "celery", "-A", "composer_web"]
        worker = [*celery, "worker", "--without-gossip", "--without-mingle", "--pool", "threads"]
        self.worker = worker
        self.commands = {
            "inference": [
                "-m",
                "trainer.inference.embedded.serving.server",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            ],
            "control": [*worker, "-Q", "control", "-c", "2", "-n", "control@%h"],
            "io": [*worker, "-Q", "io,maintenance", "-c", "3", "-n", "io@%h"],
            "rollout": [*worker, "-Q", "rollout,eval", "-c", "4", "-n", "rollout@%h"],
            "beat": [*celery, "beat", "--pidfile=", "-s", str(folder / "beat")],
            "train": [*worker, "-Q", "train", "-c", "1", "-n", "train@%h"],
        }
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def add_train_worker(self, program: str, queues: str, *, name: str) -> None:
        """Another train worker, of these queues and with a name of its own."""
        self.commands[program] = [*self.worker, "-Q", queues, "-c", "1", "-n", f"{name}@%h"]

    def start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *self.commands[name]], cwd=REPOSITORY, env=self.variables, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """Kill -9, and start it again as the supervisor would."""
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait(timeout=10)
        self.start(name)

    def terminate(self, name: str) -> None:
        """Ask it to stop; `running[name]` ends when it has."""
        self.running[name].terminate()

    def pids(self, name: str) -> list[int]:
        """The process of a program, while it lives."""
        return [self.running[name].pid] if self.running[name].poll() is None else []

    def trainer_pids(self, run_id: int | None = None) -> list[int]:
        """Trainer processes (of the run) on this database, as the kernel lists them: also one that no heartbeat tells of
        yet."""
        database = f"OPENCOMPOSER_DATABASE_URL={self.variables['OPENCOMPOSER_DATABASE_URL']}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                    ours = database in (folder / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                if not ours or b"trainer" not in words or not any(word.endswith(b"manage.py") for word in words):
                    continue
                if run_id is None or words[words.index(b"trainer") + 1] == str(run_id).encode():
                    found.append(int(folder.name))
        return found

    def stop(self) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait(timeout=10)
