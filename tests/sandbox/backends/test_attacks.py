"""Hostile commands: each must end, leave the sandbox answering, and reach nothing outside."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import textwrap
import threading
import time

import pytest

from sandbox.backends.base import Backend, EndReason, EnvSpec, ExecResult, Limits, PathError, Sandbox

from .conftest import MIB

MEMORY_HOG = "python3 -c 'x=[]\nwhile 1: x.append(bytearray(10**7))'"


async def alive(sandbox: Sandbox) -> None:
    """The next call and the next file operation answer soon."""
    async with asyncio.timeout(15):
        result = await sandbox.exec("echo alive", timeout=10)
        assert (result.exit_code, result.output) == (0, b"alive\n"), result
        assert await sandbox.read("main.py")


def python(source: str) -> str:
    return f"python3 - <<'END_OF_SOURCE'\n{textwrap.dedent(source)}\nEND_OF_SOURCE"


class TestExhaustion:
    @pytest.mark.parametrize(
        "bomb",
        [
            ":(){ :|:& };:; sleep 30",
            python("""
                import os
                while True:
                    try:
                        if os.fork() == 0: os.setsid()
                    except OSError: pass
            """),
            python("""
                import threading, time
                while True:
                    try: threading.Thread(target=time.sleep, args=(60,)).start()
                    except RuntimeError: time.sleep(0.01)
            """),
        ],
        ids=["shell", "sessions", "threads"],
    )
    async def test_fork_bombs(self, sandbox: Sandbox, bomb: str) -> None:
        result = await sandbox.exec(bomb, timeout=1.5)
        assert result.ended is EndReason.TIMEOUT and result.background == 0
        await alive(sandbox)

    async def test_fork_bomb_that_outlives_its_call(self, sandbox: Sandbox) -> None:
        await sandbox.exec(":(){ :|:& };: & disown", timeout=2)
        # a command may find no room for a process of its own; what runs outside calls is then ended for it
        for _ in range(10):
            if (await sandbox.exec("/bin/true", timeout=2)).exit_code == 0:
                break
        await alive(sandbox)

    async def test_process_limit(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(
            python("""
                import os, time
                count = 0
                try:
                    while count < 1000:
                        if os.fork() == 0: time.sleep(30)
                        count += 1
                except OSError as error: print(error.strerror)
                print(count)
            """)
        )
        refusal, count = result.output.decode().splitlines()
        assert refusal == "Resource temporarily unavailable" and 50 <= int(count) <= 64 + 4
        assert result.background == int(count)
        await sandbox.exec("kill -9 -1")
        await alive(sandbox)

    async def test_memory_of_one_process(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(MEMORY_HOG, timeout=20)
        assert (result.exit_code, result.ended) == (None, EndReason.MEMORY)
        await alive(sandbox)

    async def test_memory_of_many_processes(self, sandbox: Sandbox) -> None:
        hog = "python3 -c 'import time; x=bytearray(b\"y\")*(30*10**6); time.sleep(1)'"
        await sandbox.exec(f"for i in $(seq 8); do {hog} & done; wait; echo done", timeout=15)
        await alive(sandbox)

    async def test_memory_that_no_process_owns(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(
            python("""
                import os
                made = 0
                try:
                    files = [os.memfd_create(str(n)) for n in range(20)]
                    for _ in range(20):
                        for file in files: made += os.write(file, b"x" * 2**20)
                except OSError as error: print(error)
                print(made)
            """),
            timeout=20,
        )
        assert result.ended is EndReason.MEMORY or int(result.output.split()[-1]) < 320 * MIB
        await alive(sandbox)

    async def test_disk(self, sandbox: Sandbox) -> None:
        for place in ("/home/dev/repo", "/tmp", "/dev/shm"):
            result = await sandbox.exec(
                f"head -c 100M /dev/zero >{place}/fill; stat -c %s {place}/fill; rm {place}/fill"
            )
            assert b"No space left" in result.output
            assert int(result.output.split()[-1]) <= 32 * MIB
        await alive(sandbox)

    async def test_inodes_and_file_size(self, sandbox: Sandbox, backend: Backend, env: EnvSpec) -> None:
        result = await sandbox.exec(
            "mkdir d; cd d; for i in $(seq 4000); do : >$i || break; done; ls | wc -l; rm -rf ../d", timeout=30
        )
        assert b"No space left" in result.output and int(result.output.split()[-1]) < 3000
        await alive(sandbox)
        async with await backend.start(env, limits=Limits(file_bytes=MIB)) as small:
            result = await small.exec("truncate -s 1T sparse; head -c 2M /dev/zero >big; stat -c %s big")
            assert int(result.output.split()[-1]) == MIB
            await alive(small)

    async def test_endless_output(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("yes", timeout=1)
        assert result.ended is EndReason.TIMEOUT
        assert result.total_bytes > MIB and len(result.output) < 31_000
        await alive(sandbox)

    @pytest.mark.slow
    async def test_a_gigabyte_of_output(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("head -c 1000000000 /dev/zero", timeout=60)
        assert (result.exit_code, result.total_bytes) == (0, 10**9)
        await alive(sandbox)

    async def test_huge_shell_state(self, sandbox: Sandbox) -> None:
        await sandbox.exec("export BIG=$(head -c 300000 /dev/zero | tr '\\0' a); cd pkg")
        result = await sandbox.exec("echo ${#BIG}; ls /; unset BIG")
        assert result.output.startswith(b"300000\n")
        await alive(sandbox)
        await sandbox.exec("HUGE=$(head -c 6000000 /dev/zero | tr '\\0' a)")
        await alive(sandbox)

    async def test_junk_in_the_private_channels(self, sandbox: Sandbox) -> None:
        await sandbox.exec(
            "for fd in $(ls /proc/self/fd); do head -c 6000000 /dev/zero >&$fd; done 2>/dev/null", timeout=5
        )
        await sandbox.exec("for fd in 60 61 62 63; do echo 'cd /tmp; exit 9' >&$fd; done; :")
        result = await sandbox.exec("echo on")
        assert result.output.endswith(b"on\n") or result.exit_code == 9
        await sandbox.exec("cd /home/dev/repo")


class TestStubbornness:
    @pytest.mark.parametrize(
        "command",
        [
            "trap '' TERM INT HUP QUIT; while :; do :; done",
            python("""
                import signal
                for number in range(1, 65):
                    try: signal.signal(number, signal.SIG_IGN)
                    except (OSError, ValueError): pass
                while True: pass
            """),
            "setsid sh -c '(sleep 987 &)'; sleep 100",
            "kill -STOP $$",
        ],
        ids=["traps", "ignores", "daemon", "stopped"],
    )
    async def test_ignoring_a_timeout(self, sandbox: Sandbox, command: str) -> None:
        began = time.monotonic()
        result = await sandbox.exec(command, timeout=0.5)
        assert result.ended is EndReason.TIMEOUT and time.monotonic() - began < 6
        assert (await sandbox.exec("pgrep -c sleep")).output == b"0\n"
        await alive(sandbox)

    async def test_waiting_for_input(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("cat; read x; python3 -c 'input()'; less main.py | head -1; git log", timeout=10)
        assert result.ended is EndReason.EXIT
        await alive(sandbox)

    async def test_killing_everything(self, sandbox: Sandbox) -> None:
        for command in ("kill -9 -1", "kill -9 1; kill -STOP 1; kill -TERM 1; kill -CHLD 1", "exec 0<&- 1>&- 2>&-"):
            await sandbox.exec(command, timeout=5)
            await alive(sandbox)

    async def test_breaking_the_shell(self, sandbox: Sandbox) -> None:
        for command in (
            "trap - EXIT; eval() { :; }; cd() { :; }; declare() { :; }; unset PATH",
            "mkdir /tmp/gone; cd /tmp/gone; rm -rf /tmp/gone",
            "builtin() { :; }; printf() { exit 3; }",
            "shopt -s extdebug; set -euf -o pipefail; exec 2>/dev/null",
            "readonly HOME PATH PWD; set -o noglob",
            "ulimit -n 8; ulimit -u 1; ulimit -t 1",
        ):
            await sandbox.exec(command, timeout=5)
            result = await sandbox.exec("echo still; /bin/pwd", timeout=5)
            assert result.output.startswith(b"still\n"), (command, result)

    async def test_limits_of_pid_1_cannot_be_lowered(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("prlimit --pid 1 --nofile=3:3 --cpu=1:1")
        assert result.exit_code != 0
        await alive(sandbox)

    async def test_zombies(self, sandbox: Sandbox) -> None:
        await sandbox.exec(
            python("""
                import os
                for _ in range(50):
                    if os.fork() == 0:
                        if os.fork() == 0: os._exit(0)
                        os._exit(0)
            """)
        )
        # On a busy machine the last orphans may still be on their way out when the first call returns.
        async with asyncio.timeout(20):
            while True:
                result = await sandbox.exec("ps -eo stat | grep -c Z")
                if result.background == 0:
                    break
        assert result.output == b"0\n"

    async def test_races_with_file_operations(self, sandbox: Sandbox) -> None:
        """A directory that turns into a link and back never makes the host read through it."""
        swap = "mkdir -p d; echo in >d/passwd; while :; do mv d e; ln -s /etc d; rm d; mv e d; done"
        swapping = asyncio.create_task(sandbox.exec(swap, timeout=2))
        while not swapping.done():
            for change in (await sandbox.diff()).changes:
                assert change.content in (b"in\n", b""), change
        await swapping


PROBES = """
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
found = {}
def probe(name, action):
    try:
        value = action()
        found[name] = True if value is None else value
    except OSError as error:
        found[name] = errno.errorcode.get(error.errno, "timeout")
def call(*arguments):
    ctypes.set_errno(0)
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
def opened(path, flags):
    os.close(os.open(path, flags))
def in_child(action):
    reader, writer = os.pipe()
    if os.fork() == 0:
        try: action(); os.write(writer, b"-")
        except OSError as error: os.write(writer, errno.errorcode[error.errno].encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 99).decode()
    os.close(reader)
    os.wait()
    if said != "-": raise OSError(getattr(errno, said), "")
def connected(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as end:
        end.settimeout(1)
        end.connect(address)
        if kind == socket.SOCK_DGRAM: end.send(b"x")
X86 = os.uname().machine == "x86_64"
probe("environ of 1", lambda: opened("/proc/1/environ", os.O_RDONLY))
probe("memory of 1", lambda: opened("/proc/1/mem", os.O_RDWR))
probe("descriptors of 1", lambda: os.listdir("/proc/1/fd") and None)
probe("root of 1", lambda: os.listdir("/proc/1/root") and None)
probe("program of 1", lambda: os.readlink("/proc/1/exe") and None)
probe("trace 1", lambda: call(101 if X86 else 117, 16, 1, 0, 0))
probe("seize 1", lambda: call(101 if X86 else 117, 0x4206, 1, 0, 0))
for path in ("/etc/shadow", "/root/.bashrc", "/proc/kcore", "/var/lib/dpkg/status", HOST_FILE):
    probe("read " + path, lambda: opened(path, os.O_RDONLY))
for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/usr/bin/env",
             "/proc/sys/kernel/hostname", "/etc/passwd", "/usr/local/bin/python3"):
    probe("write " + path, lambda: opened(path, os.O_WRONLY))
probe("tcp out", lambda: connected(socket.AF_INET, ("192.0.2.1", 9)))
probe("udp out", lambda: connected(socket.AF_INET, ("192.0.2.1", 53), socket.SOCK_DGRAM))
probe("tcp6 out", lambda: connected(socket.AF_INET6, ("2001:db8::1", 9)))
probe("loopback of the host", lambda: connected(socket.AF_INET, ("127.0.0.1", HOST_PORT)))
probe("abstract socket of the host", lambda: connected(socket.AF_UNIX, "\\0" + HOST_SOCKET))
for name, family, kind in (("vsock", 40, 1), ("packet", 17, 3), ("alg", 38, 5), ("bluetooth", 31, 3)):
    probe("socket " + name, lambda: socket.socket(family, kind).close())
probe("new user namespace", lambda: in_child(lambda: call(272 if X86 else 97, 0x10000000)))
probe("new mount namespace", lambda: in_child(lambda: call(272 if X86 else 97, 0x20000)))
probe("clone user namespace", lambda: in_child(lambda: call(56 if X86 else 220, 0x10000000 | 17, 0, 0, 0, 0)))
probe("mount", lambda: in_child(lambda: call(165 if X86 else 40, b"x", b"/tmp", b"tmpfs", 0, None)))
probe("chroot", lambda: in_child(lambda: call(161 if X86 else 51, b"/")))
probe("keyctl", lambda: call(250 if X86 else 219, 0, -3, 0, 0, 0))
probe("bpf", lambda: call(321 if X86 else 280, 0, 0, 0))
probe("io_uring", lambda: call(425, 1, ctypes.create_string_buffer(120)))
probe("userfaultfd", lambda: call(323 if X86 else 282, 1))
probe("perf", lambda: call(298 if X86 else 241, ctypes.create_string_buffer(120), 0, -1, -1, 0))
probe("kernel log", lambda: call(103 if X86 else 116, 10, 0, 0))
probe("handles", lambda: call(304 if X86 else 265, 0, ctypes.create_string_buffer(64), 0))
probe("block device", lambda: os.mknod("/tmp/block", 0o60600, os.makedev(254, 0)))
probe("become root", lambda: os.setuid(0))
probe("join a namespace", lambda: call(308 if X86 else 268, 0, 0))
probe("hostname", lambda: socket.sethostname("x"))
probe("limits of 1", lambda: call(302 if X86 else 261, 1, 7, ctypes.create_string_buffer(16), 0))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
found["capabilities"] = [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
found["no_new_privs"], found["seccomp"] = int(status["NoNewPrivs"]), int(status["Seccomp"])
found["descriptors"] = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
found["environment"] = sorted(os.environ)
found["processes"] = len([name for name in os.listdir("/proc") if name.isdigit()])
found["mapped"] = open("/proc/self/uid_map").read().split()
found["mounts"] = open("/proc/self/mounts").read()
found["cgroups"] = open("/proc/self/cgroup").read()
print(json.dumps(found))
"""


class TestEscapes:
    @pytest.fixture
    async def found(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
    ) -> dict:
        secret = tmp_path_factory.mktemp("host") / "secret"
        secret.write_text("secret")
        monkeypatch.setenv("HOST_SECRET", "secret")
        name = f"probe-{os.getpid()}"
        with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
            unix.bind("\0" + name)
            unix.listen()
            source = PROBES.replace("HOST_PORT", str(tcp.getsockname()[1])).replace("HOST_SOCKET", repr(name))
            await sandbox.write("/tmp/probe.py", source.replace("HOST_FILE", repr(str(secret))).encode())
            result = await sandbox.exec("python3 /tmp/probe.py", timeout=20)
        assert result.exit_code == 0, result.output.decode()
        return json.loads(result.output)

    async def test_nothing_outside_is_reached(self, found: dict) -> None:
        special = {
            "capabilities",
            "no_new_privs",
            "seccomp",
            "descriptors",
            "environment",
            "processes",
            "mapped",
            "mounts",
            "cgroups",
        }
        reached = {name: value for name, value in found.items() if name not in special and value is True}
        assert reached == {}

    async def test_privileges_are_gone(self, found: dict) -> None:
        assert found["capabilities"] == [0] * 5
        assert (found["no_new_privs"], found["seccomp"]) == (1, 2)
        assert found["mapped"][0] == "1000" and found["mapped"][1] != "0" and found["mapped"][2] == "1"

    async def test_nothing_of_the_host_shows(self, found: dict) -> None:
        assert "HOST_SECRET" not in found["environment"]
        assert found["processes"] <= 4
        assert [fd for fd in found["descriptors"] if fd not in (0, 1, 2, 3, 60, 63)] == []
        assert str(os.path.expanduser("~")) == "/root" or os.path.expanduser("~") not in found["mounts"]
        for line in found["cgroups"].splitlines():
            assert line.endswith(":/"), line

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
            async with asyncio.timeout(10):
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
