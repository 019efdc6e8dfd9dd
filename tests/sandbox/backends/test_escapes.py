"""Nothing outside is reached, nothing outside shows, and nothing outside is changed."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import threading
from pathlib import Path

import pytest

from sandbox.backends.base import Backend, EnvSpec, ExecResult, Limits, PathError, Sandbox

from .attacks import python
from .host_state import Bystander

pytestmark = pytest.mark.usefixtures("unchanged_host")
PROBES = Path(__file__).with_name("probes.py")
REFUSED = {"EPERM", "EACCES", "ENOENT", "ENXIO", "EROFS", "ESRCH", "ENOSYS", "ENODEV", "EAFNOSUPPORT"}
UNREACHABLE = {"ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EINVAL", "EPROTONOSUPPORT"}


class TestProbes:
    @pytest.fixture
    async def found(self, sandbox: Sandbox, bystander: Bystander, monkeypatch: pytest.MonkeyPatch) -> dict:
        monkeypatch.setenv("HOST_SECRET", "secret")
        knows = {
            "file": str(bystander.file),
            "path": bystander.path,
            "name": bystander.name,
            "tcp": bystander.tcp.getsockname()[1],
            "pids": [bystander.process.pid, os.getpid(), os.getppid()],
        }
        await sandbox.write("/tmp/probes.py", PROBES.read_bytes())
        result = await sandbox.exec(
            f"python3 /tmp/probes.py {shlex.quote(json.dumps(knows))} >/tmp/found", timeout=90, keep_state=False
        )
        assert result.exit_code == 0, result.output.decode()
        return json.loads(await sandbox.read("/tmp/found"))

    async def test_nothing_is_reached(self, found: dict) -> None:
        assert {name: value for name, value in found.items() if value is True} == {}
        answers = {name: value for name, value in found.items() if isinstance(value, str) and value.startswith("E")}
        assert len(answers) > 80
        assert {name: value for name, value in answers.items() if value not in REFUSED | UNREACHABLE} == {}

    async def test_nothing_of_the_kernel_can_be_written(self, found: dict) -> None:
        assert found["knobs"] == [] and found["setuid programs"] == []

    async def test_no_network_but_its_own_loopback(self, found: dict) -> None:
        assert (found["interfaces"], found["routes"]) == (["lo"], 0)

    async def test_privileges_are_gone(self, found: dict) -> None:
        assert found["capabilities"] == [0] * 5
        assert (found["no_new_privs"], found["seccomp"]) == (1, 2)

    async def test_root_is_nobody_outside(self, found: dict, backend: Backend) -> None:
        if backend.name == "namespaces":
            assert found["mapped"][0] == "1000" and found["mapped"][1] != "0" and found["mapped"][2] == "1"

    async def test_nothing_of_the_host_shows(self, found: dict) -> None:
        assert "HOST_SECRET" not in found["environment"]
        assert found["processes"] <= 4
        assert [fd for fd in found["descriptors"] if fd not in (0, 1, 2, 3, 60, 63)] == []
        assert str(os.path.expanduser("~")) == "/root" or os.path.expanduser("~") not in found["mounts"]
        for line in found["cgroups"].splitlines():
            assert line.endswith(":/"), line


class TestEscapes:
    async def test_pid_1_looks_like_an_init_and_tells_nothing(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("tr '\\0' ' ' </proc/1/cmdline; cat /proc/1/comm; cat /proc/1/environ /proc/1/maps")
        assert result.output.split()[:2] == [b"/sbin/init", b"init"]
        assert b"python" not in result.output

    async def test_links_to_the_host_name_sandbox_files(self, sandbox: Sandbox) -> None:
        await sandbox.exec(
            "ln -s /proc/1/root/etc/shadow a; ln -s /etc/shadow b; ln -s /dev/zero c; ln -s /proc/1/fd/0 d"
        )
        for path in "abcd":
            with pytest.raises(PathError):
                async with asyncio.timeout(5):
                    await sandbox.read(path)

    async def test_sandboxes_do_not_meet(self, backend: Backend, env: EnvSpec) -> None:
        listen = python("""
            import socket, time
            unix = socket.socket(socket.AF_UNIX); unix.bind("\\0meeting"); unix.listen()
            tcp = socket.create_server(("127.0.0.1", 4444))
            open("/tmp/ready", "w").close(); time.sleep(30)
        """)
        async with await backend.start(env) as first, await backend.start(env) as second:
            await first.exec(f"({listen}\n) >/dev/null 2>&1 &")
            async with asyncio.timeout(60):
                while not any(name == "ready" for name, _, _ in await first.list("/tmp")):
                    await asyncio.sleep(0.02)
            connect = python("""
                import socket
                for family, address in ((socket.AF_UNIX, "\\0meeting"), (socket.AF_INET, ("127.0.0.1", 4444))):
                    with socket.socket(family) as end: print(end.connect_ex(address))
            """)
            assert (await first.exec(connect)).output == b"0\n0\n"
            assert (await second.exec(connect)).output == b"111\n111\n"
            assert (await second.exec("ls /tmp; ipcs -q | wc -l; ps -e | wc -l")).exit_code == 0

    async def test_the_host_runs_nothing_of_the_repository(self, sandbox: Sandbox) -> None:
        """Reading the patch never runs git: hooks and monitors in .git/config stay text."""
        await sandbox.exec(
            "git init -q . && git config core.fsmonitor 'touch /tmp/ran' && git config diff.external 'touch /tmp/ran'"
        )
        await sandbox.write("main.py", b"changed\n")
        assert [change.path for change in (await sandbox.diff()).changes] == ["main.py"]
        assert ("ran", "file", 0) not in await sandbox.list("/tmp")


class TestNeighbours:
    async def test_a_bomb_next_door(self, backend: Backend, env: EnvSpec) -> None:
        async with await backend.start(env, limits=Limits(processes=64)) as noisy, await backend.start(env) as quiet:
            bomb = asyncio.create_task(noisy.exec(":(){ :|:& };:; sleep 9", timeout=1.5))
            results: list[ExecResult] = []
            while not bomb.done():
                results.append(await quiet.exec("/bin/true && echo fine", timeout=15))
            assert {result.output for result in results} == {b"fine\n"}
            await bomb

    async def test_a_blocked_event_loop_loses_nothing(self, sandbox: Sandbox) -> None:
        """The agent buffers what the host does not read at once."""
        calls = [asyncio.create_task(sandbox.exec("head -c 30000 /dev/zero", keep_state=False)) for _ in range(30)]
        await asyncio.sleep(0)
        blocker = threading.Event()
        blocker.wait(0.5)
        assert {len((await call).output) for call in calls} == {30_000}
