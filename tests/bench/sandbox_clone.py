"""What a sandbox's own writable copy of an environment costs by itself: the mounts, without processes around them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

LIMITS = {"disk": 512 << 20, "inodes": 200_000}


def clone_ms(layer: Path, count: int) -> list[float]:
    """Seconds of each of `count` clones, in a process of its own that stands where the zygote stands."""
    command = [sys.executable, "-m", __name__, str(layer), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _clones(layer: str, count: int) -> list[float]:
    from sandbox.backends.namespaces import identity, mounts, syscalls

    host = os.geteuid()
    uid, gid = identity.sandbox_identity()
    mounts.enter(host)
    stage = mounts.build_base(os.path.realpath(sys.executable), sys.base_prefix)
    numbers = mounts.Layers(stage, host, uid, gid).numbers([layer])
    taken = []
    for _ in range(count):
        reader, writer = os.pipe()
        if os.fork() == 0:
            if host == 0:
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
            syscalls.unshare(syscalls.NEWUSER, "userns")
            mounts.map_ids(identity.INNER_UID, identity.INNER_GID, uid, gid)
            syscalls.unshare(syscalls.NEWNS, "namespaces")
            began = time.perf_counter()
            new, _, _ = mounts.assemble(stage, numbers, **LIMITS)
            seconds = time.perf_counter() - began
            assert os.path.exists(f"{new}/home/{identity.USER}/repo")
            os.write(writer, repr(seconds).encode())
            os._exit(0)
        os.close(writer)
        taken.append(float(os.read(reader, 100)))
        os.close(reader)
        os.wait()
    return taken


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_clones(sys.argv[1], int(sys.argv[2]))))
