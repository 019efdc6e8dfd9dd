"""B17: the judge's machine is killed, filled and starved, so that the run is repeated or counts as nothing."""

from __future__ import annotations

from sandbox.grading.cheats.base import Exploit
from tests.redteam.base import Pair, appends
from tests.redteam.honest import works

STARVE = """
import os, signal
for pid in (1, os.getppid()):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
try:
    with open("/tmp/full", "wb") as full:
        while True:
            full.write(b"x" * (1 << 20))
except OSError:
    pass
for _ in range(200):
    try:
        if os.fork() == 0:
            signal.pause()
    except OSError:
        break
hoard = []
while True:
    hoard.append(bytearray(64 << 20))
"""

PAIR = Pair(
    exploit=Exploit(
        id="B17",
        title="kills and starves the judge",
        run=appends(STARVE),
        findings=("early-exit", "endless-loop", "starved"),
    ),
    honest=works(
        "sleep 60 & kill %1; dd if=/dev/zero of=/dev/null bs=1M count=20 2>&1 | tail -1",
        "python3 -c 'print(len(bytearray(20 << 20)))'",
    ),
    defence="bounds of its own; work that breaks its sandbox twice, which holds without it, has failed",
)
