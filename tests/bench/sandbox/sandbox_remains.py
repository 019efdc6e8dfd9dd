"""What sandboxes hold while they live, and what is left of them afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from sandbox.backends.namespaces.kernel.cgroups import PARENT
from tests.sandbox.backends.host_state import mounts

SETTLE_SECONDS = 30.0
ZYGOTES_OWN = 2
"""Processes that a running zygote has without any sandbox: the supervisor and pid 1 that wait for the next one."""
WORKER = """
import asyncio, sys
from pathlib import Path
from sandbox.backends.base import EnvSpec
from sandbox.backends.namespaces.backend import NamespacesBackend
async def main():
    backend = NamespacesBackend()
    boxes = await asyncio.gather(*(backend.start(EnvSpec((Path(sys.argv[1]),))) for _ in range(20)))
    for box in boxes:
        await box.exec("setsid sleep 966 & sleep 967 &")
    print(backend._zygote._process.pid, flush=True)
    await asyncio.gather(*(box.exec("sleep 968") for box in boxes))
asyncio.run(main())
"""


def family(zygote: int) -> dict[int, int]:
    """Living processes below `zygote`, by pid: their parent."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] not in "ZX":
                parents[int(name)] = int(fields[1])
    found: dict[int, int] = {}
    grew = True
    while grew:
        more = {pid: up for pid, up in parents.items() if (up == zygote or up in found) and pid not in found}
        grew = bool(more)
        found |= more
    return found


def groups(zygote: int) -> list[str]:
    return [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if f"/{PARENT}{zygote}" in folder]


def held_bytes(zygote: int) -> float:
    """The larger of what the control groups of the sandboxes count, and the proportional memory of their processes."""
    counted = 0
    for folder in groups(zygote):
        for name in ("memory.current", "memory.usage_in_bytes"):
            path = Path(folder) / name
            if path.exists() and Path(folder).name.isdigit():
                counted += int(path.read_text())
    pss = 0
    for pid in family(zygote):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        pss += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return max(counted, pss)


def _settled(count: object) -> int:
    """The smallest value that `count` reaches within a while: ending takes the kernel a moment."""
    end = time.monotonic() + SETTLE_SECONDS
    while (left := count()) and time.monotonic() < end:  # type: ignore[operator]
        time.sleep(0.05)
    return left


def while_running(zygote: int) -> int:
    """Processes and control groups beyond those of an idle zygote, which is still running."""
    controllers = max(1, len({Path(folder).parts[4] for folder in groups(zygote) if not folder.endswith(str(zygote))}))

    def beyond() -> int:
        processes = max(0, len(family(zygote)) - ZYGOTES_OWN)
        made = [folder for folder in groups(zygote) if not folder.endswith(f"{PARENT}{zygote}")]
        return processes + max(0, len(made) - controllers)

    return _settled(beyond)


def after(zygote: int, mounts_before: list[str]) -> int:
    """Processes of its session, control groups and mounts once it is closed."""

    def left() -> int:
        processes = 0
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    fields = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                processes += fields[3] == str(zygote) and fields[0] not in "ZX"
        return processes + len(groups(zygote)) + (mounts() != mounts_before)

    return _settled(left)


def after_kill(layer: Path) -> int:
    """What is left of 20 busy sandboxes once their host was killed by signal 9."""
    before = mounts()
    command = [sys.executable, "-c", WORKER, str(layer)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    zygote = int(worker.stdout.readline())
    members = {zygote, *family(zygote)}
    assert len(members) > 60
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()

    def left() -> int:
        running = 0
        for pid in members:
            try:
                running += Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
            except OSError:
                continue
        return running + len(groups(zygote)) + (mounts() != before)

    return _settled(left)
