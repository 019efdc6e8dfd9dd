"""Where there is no engine to use, the backend says what is missing and what to do."""

from __future__ import annotations

import asyncio
import builtins
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from sandbox.backends import choice
from sandbox.backends.base import EnvSpec, SandboxUnavailable
from sandbox.backends.docker.backend import DockerBackend
from sandbox.backends.docker.remedies import reach
from sandbox.backends.docker.settings import DockerSettings

ROOT = Path(__file__).resolve().parents[4]


def refusal(settings: DockerSettings) -> str:
    backend = DockerBackend(settings)
    found = backend.probe()
    assert not found.usable and found.enforced == frozenset()
    with pytest.raises(SandboxUnavailable) as refused:
        asyncio.run(backend.start(EnvSpec(layers=())))
    assert str(refused.value) == found.reasons[0]
    asyncio.run(backend.close())
    return found.reasons[0]


def test_no_engine(tmp_path: Path) -> None:
    said = refusal(DockerSettings(url=f"unix://{tmp_path}/absent", leases=tmp_path / "leases"))
    assert "no Docker engine answers at" in said and "systemctl start docker" in said and "DOCKER_HOST" in said


def test_an_engine_that_ended(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "s"))
    assert "nothing listens there" in refusal(DockerSettings(url=f"unix://{tmp_path}/s", leases=tmp_path / "leases"))


def test_something_else_answers(tmp_path: Path) -> None:
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "s"))
        other.listen()

        def hang_up() -> None:
            while not over.is_set():
                other.accept()[0].close()

        serving = threading.Thread(target=hang_up)
        serving.start()
        try:
            settings = DockerSettings(url=f"unix://{tmp_path}/s", leases=tmp_path / "leases")
            said = DockerBackend(settings).probe().reasons[0]
        finally:
            over.set()
            with socket.socket(socket.AF_UNIX) as last:  # nothing else wakes one who accepts
                last.connect(str(tmp_path / "s"))
            serving.join(timeout=30)
    assert "cannot connect" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_no_permission() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as engine:
        os.chmod(folder, 0o755)
        engine.bind(f"{folder}/s")
        engine.listen()
        os.chmod(f"{folder}/s", 0o660)
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            try:
                reach(f"unix://{folder}/s")
            except SandboxUnavailable as error:
                os._exit(0 if "usermod -aG docker" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("url", ["tcp://192.0.2.1:2375", "ssh://somewhere", "nonsense"])
def test_an_engine_elsewhere(url: str, tmp_path: Path) -> None:
    said = refusal(DockerSettings(url=url, leases=tmp_path / "leases"))
    assert "not on this machine" in said and "unix://" in said


def test_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: object, **options: object) -> object:
        if name == "docker":
            raise ImportError("No module named 'docker'")
        return real(name, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    assert "opencomposer[docker]" in refusal(DockerSettings(leases=tmp_path))


def test_the_backend_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(choice.CHOICE, "dockr")
    with pytest.raises(SandboxUnavailable, match=r"'dockr'.*namespaces, docker"):
        choice.chosen()
    script = "from sandbox.backends.choice import default_backend as d, layer_owner; print(d().name, *layer_owner())"
    for name in choice.NAMES:
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | {choice.CHOICE: name}, capture_output=True)
        assert done.stdout.split()[0] == name.encode(), done.stderr
        if name == "docker" and os.geteuid() == 0:
            assert done.stdout.split()[1:] == [b"1000", b"1000"]
