"""What must hold for whoever runs it, with the standard library only: run as a script by `test_ordinary_user.py`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from sandbox.backends.base import EndReason, EnvSpec, Limits, LimitUnenforceable
from sandbox.backends.namespaces.backend import NamespacesBackend

MIB = 1 << 20


async def scenario(folder: Path) -> dict:
    """Use every part of a sandbox once; what was found, by name."""
    layer = folder / "layer"
    (layer / "repo").mkdir(parents=True)
    (layer / "repo/main.py").write_text("x = 1\n")
    backend = NamespacesBackend()
    caps = backend.probe()
    found: dict = {
        "usable": caps.usable,
        "cgroup": caps.cgroup,
        "enforced": sorted(caps.enforced),
        "reasons": caps.reasons,
    }
    try:
        async with await backend.start(EnvSpec(layers=()), limits=Limits(required=frozenset({"cpu"}))):
            found["refused"] = ""
    except LimitUnenforceable as error:
        found["refused"] = str(error)
    limits = Limits(memory_bytes=96 * MIB, disk_bytes=16 * MIB, inodes=2000, processes=40)
    async with await backend.start(EnvSpec(layers=(layer,)), limits=limits) as box:
        said = await box.exec(
            "id -un; echo 'y = 2' >>main.py; rm -f gone; cd /tmp; export A=1; python3 -c 'print(6*7)'"
        )
        found["said"] = said.output.decode().split()
        found["state"] = (await box.exec("pwd; echo $A")).output.decode().split()
        await box.write("pkg/new.py", b"z\n")
        found["search"] = await box.search("[yz]", ".", glob="*.py", max_matches=9)
        found["diff"] = [(change.path, (change.content or b"").decode()) for change in (await box.diff()).changes]
        snapshot = await box.snapshot(folder / "snapshot")
        bomb = await box.exec(":(){ :|:& };:; sleep 9", timeout=1)
        found["bomb"] = [bomb.ended, bomb.background]
        hog = await box.exec("python3 -c 'x=[]\nwhile 1: x.append(bytearray(10**6))'", timeout=20)
        found["hog"] = hog.ended
        shared = 'import mmap\nx=[]\nwhile 1: x.append(mmap.mmap(-1, 10**7)); x[-1].write(b"x"*10**7)'
        found["shared"] = (await box.exec(f"python3 -c '{shared}'", timeout=20)).ended
        threads = (
            "import ctypes, os, threading\n"
            "def hog():\n  x=[]\n  while 1: x.append(bytearray(10**6))\n"
            "threading.Thread(target=hog).start()\n"
            'ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)'  # only this thread ends
        )
        hidden = await box.exec(f"python3 -c '{threads}'", timeout=20)
        found["hidden"] = [hidden.ended, hidden.background]
        crowd = 'import time; x=bytearray(b"y")*(30*10**6); time.sleep(1)'
        await box.exec(f"for i in 1 2 3 4 5 6; do python3 -c '{crowd}' & done; wait", timeout=15)
        memfd = 'import os\nfile=os.memfd_create("x")\nwhile 1: os.write(file, b"x"*10**6)'
        ended = await box.exec(f"python3 -c '{memfd}'", timeout=20)
        found["memfd"] = "refused" if b"PermissionError" in ended.output else str(ended.ended)
        full = await box.exec("head -c 30M /dev/zero >fill; stat -c %s fill; rm fill")
        found["disk"] = b"No space left" in full.output
        found["network"] = (await box.exec("exec 3<>/dev/tcp/192.0.2.1/80")).exit_code
        found["alive"] = (await box.exec("echo alive")).output.decode().strip()
    async with await backend.start(EnvSpec(layers=(layer,)), snapshot=snapshot) as box:
        found["restored"] = (await box.exec("pwd; cat ~/repo/pkg/new.py")).output.decode().split()
    await backend.close()
    found["memory_reason"] = EndReason.MEMORY
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(scenario(Path(os.environ["HOME"])))))
