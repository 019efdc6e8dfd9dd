"""Every limit of `Limits` holds, and the sandbox answers when it was reached."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandbox.backends.base import Backend, EndReason, EnvSpec, Limits, Sandbox, SandboxExpired

from .attacks import MEMORY_HOG, alive, python
from .conftest import MIB

pytestmark = pytest.mark.usefixtures("unchanged_host")


class TestProcesses:
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

    async def test_the_most_processes(self, sandbox: Sandbox) -> None:
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


class TestMemory:
    async def test_one_process(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(MEMORY_HOG, timeout=20)
        assert (result.exit_code, result.ended) == (None, EndReason.MEMORY)
        await alive(sandbox)

    async def test_many_processes(self, sandbox: Sandbox) -> None:
        hog = "python3 -c 'import time; x=bytearray(b\"y\")*(30*10**6); time.sleep(1)'"
        await sandbox.exec(f"for i in $(seq 8); do {hog} & done; wait; echo done", timeout=15)
        await alive(sandbox)

    @pytest.mark.parametrize(
        "grow",
        [
            'lambda: os.write(os.memfd_create("x"), b"x" * 2**24)',
            'lambda: keep(mmap.mmap(-1, 2**24)).write(b"x" * 2**24)',
            "lambda: shared_memory(2**24)",
        ],
        ids=["memfd", "mapping", "system-v"],
    )
    async def test_memory_that_no_process_owns(self, sandbox: Sandbox, grow: str) -> None:
        source = """
            import ctypes, mmap, os
            libc = ctypes.CDLL(None, use_errno=True)
            libc.shmat.restype = ctypes.c_void_p
            kept = []
            def keep(thing):
                kept.append(thing)
                return thing
            def shared_memory(size):
                number = libc.shmget(0, size, 0o1600)
                if number < 0: raise OSError(ctypes.get_errno(), "shmget")
                place = libc.shmat(number, None, 0)
                ctypes.memset(place, 1, size)
                libc.shmdt(ctypes.c_void_p(place))
                return size
            made = 0
            try:
                grow = GROW
                while made < 2**29: made += grow()
            except OSError as error: print(error)
            print(made)
        """
        result = await sandbox.exec(python(source.replace("GROW", grow)), timeout=20)
        assert result.ended is EndReason.MEMORY or int(result.output.split()[-1]) < 320 * MIB, result
        await alive(sandbox)


class TestDisk:
    async def test_bytes(self, sandbox: Sandbox) -> None:
        for place in ("/home/dev/repo", "/tmp", "/dev/shm"):
            result = await sandbox.exec(
                f"head -c 100M /dev/zero >{place}/fill; stat -c %s {place}/fill; rm {place}/fill"
            )
            assert b"No space left" in result.output
            assert int(result.output.split()[-1]) <= 32 * MIB
        await alive(sandbox)

    async def test_all_places_share_one_limit(self, sandbox: Sandbox) -> None:
        places = ("/home/dev/repo", "/tmp", "/dev/shm", "/home/dev", "/var/tmp")
        await sandbox.exec("; ".join(f"head -c 100M /dev/zero >{place}/fill" for place in places))
        result = await sandbox.exec(f"stat -c %b {' '.join(f'{place}/fill' for place in places)}")
        assert sum(int(blocks) for blocks in result.output.split()) * 512 <= 32 * MIB

    async def test_nowhere_else_is_room(self, sandbox: Sandbox) -> None:
        """What can be written at all lies in the places that are limited."""
        result = await sandbox.exec(
            "for d in $(find / -xdev -type d -writable 2>/dev/null; awk '{print $2}' /proc/mounts); do "
            "[ -d $d ] && [ -w $d ] && stat -f -c '%i %n' $d; done | sort -u | awk '{print $1}' | uniq | wc -l; "
            "stat -f -c %i /home/dev /tmp /dev/shm | sort -u | wc -l"
        )
        writable, limited = (int(count) for count in result.output.split())
        assert writable <= limited + 1  # the folder of terminals holds no files

    async def test_inodes(self, sandbox: Sandbox, backend: Backend) -> None:
        if "inodes" not in backend.probe().enforced:
            pytest.skip("this kernel does not limit the number of files, and says so")
        result = await sandbox.exec(
            "mkdir d; cd d; for i in $(seq 4000); do : >$i || break; done; ls | wc -l; rm -rf ../d", timeout=30
        )
        assert b"No space left" in result.output and int(result.output.split()[-1]) < 3000
        await alive(sandbox)

    async def test_size_of_a_file(self, backend: Backend, env: EnvSpec) -> None:
        async with await backend.start(env, limits=Limits(file_bytes=MIB)) as small:
            result = await small.exec("truncate -s 1T sparse; head -c 2M /dev/zero >big; stat -c %s big")
            assert int(result.output.split()[-1]) == MIB
            await alive(small)


class TestOpenFiles:
    async def test_of_one_process(self, backend: Backend, env: EnvSpec) -> None:
        async with await backend.start(env, limits=Limits(open_files=200)) as sandbox:
            result = await sandbox.exec(
                python("""
                    import resource
                    try: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
                    except ValueError: print("stays")
                    files = []
                    try:
                        while len(files) < 5000: files.append(open("/dev/null"))
                    except OSError as error: print(error.strerror)
                    print(len(files))
                """)
            )
            kept, refusal, count = result.output.decode().splitlines()
            assert (kept, refusal) == ("stays", "Too many open files") and 150 < int(count) < 200
            await alive(sandbox)

    async def test_all_processes_together_hold_nothing_up(self, sandbox: Sandbox) -> None:
        await sandbox.exec(
            python("""
                import os, time
                for _ in range(50):
                    if os.fork() == 0:
                        files = []
                        try:
                            while True: files.append(os.pipe())
                        except OSError: time.sleep(30)
            """),
            timeout=15,
        )
        await alive(sandbox)
        await sandbox.exec("kill -9 -1")


class TestOutput:
    async def test_endless(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("yes", timeout=1)
        assert result.ended is EndReason.TIMEOUT
        assert result.total_bytes > MIB and len(result.output) < 31_000
        await alive(sandbox)

    @pytest.mark.slow
    async def test_a_gigabyte(self, sandbox: Sandbox) -> None:
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


class TestTime:
    async def test_processor(self, backend: Backend, env: EnvSpec) -> None:
        if "cpu" not in backend.probe().enforced:
            pytest.skip("cpu shares are not enforced here, and the backend says so")
        async with await backend.start(env, limits=Limits(cpus=0.2)) as sandbox:
            spin = python("""
                import os, time
                if os.fork() == 0 or os.fork() == 0:
                    while True: pass
                began = time.monotonic()
                while time.monotonic() - began < 3: pass
                os.system("kill -9 $(pgrep -P $PPID python3) 2>/dev/null")
            """)
            began = time.monotonic()
            await sandbox.exec(f"({spin}\n) & sleep 3; kill -9 -1", timeout=20)
            used, deadline = 0.0, began + 60
            while not used and time.monotonic() < deadline:  # pid 1 collects the dead when its turn comes
                spent = await sandbox.exec("cat /proc/1/stat", timeout=20)
                fields = spent.output.decode().rsplit(")", 1)[1].split()
                used = (int(fields[13]) + int(fields[14])) / 100
            assert 0 < used <= 0.2 * (time.monotonic() - began) + 0.3

    async def test_of_a_call(self, sandbox: Sandbox) -> None:
        began = time.monotonic()
        result = await sandbox.exec("sleep 600", timeout=0.5)
        assert (result.ended, result.exit_code, result.background) == (EndReason.TIMEOUT, None, 0)
        assert 0.5 <= result.seconds <= time.monotonic() - began < 60

    async def test_of_calls_that_name_no_timeout(self, backend: Backend, env: EnvSpec) -> None:
        async with await backend.start(env, limits=Limits(call_seconds=0.5)) as sandbox:
            assert (await sandbox.exec("sleep 600")).ended is EndReason.TIMEOUT

    async def test_of_a_life(self, backend: Backend, env: EnvSpec) -> None:
        began = time.monotonic()
        async with await backend.start(env, limits=Limits(life_seconds=1.5)) as sandbox:
            assert (await sandbox.exec("(trap '' TERM; sleep 600) & echo on")).output == b"on\n"
            with pytest.raises(SandboxExpired):
                await sandbox.exec("trap '' TERM; while :; do :; done", timeout=100)
            assert 1.5 <= time.monotonic() - began < 60
            async with asyncio.timeout(20):
                with pytest.raises(SandboxExpired):
                    await sandbox.diff()
