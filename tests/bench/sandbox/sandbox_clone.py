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
    from sandbox.backends.namespaces import layer_mounts
    from sandbox.backends.namespaces.kernel import base_root, identity, mounts, syscalls, users

    host = os.geteuid()
    mounts.enter(host)
    base = base_root.build_base(os.path.realpath(sys.executable), sys.base_prefix)
    for place in (f"home/{identity.USER}", "tmp", "dev/shm"):  # of a root that others measure
        os.makedirs(f"{base.stage}/new/{place}")
    user = users.Users(host, shared=False).take()
    taken = []
    for _ in range(count):
        reader, writer = os.pipe()
        begun = time.perf_counter()
        detached = layer_mounts.detached(layer, user, root_host=host == 0)
        outside = time.perf_counter() - begun
        if os.fork() == 0:
            if host == 0:
                os.setresgid(user.gid, user.gid, user.gid)
                os.setresuid(user.uid, user.uid, user.uid)
            syscalls.unshare(syscalls.NEWUSER, "userns")
            mounts.map_ids(identity.INNER_UID, identity.INNER_GID, user.uid, user.gid)
            syscalls.unshare(syscalls.NEWNS, "namespaces")
            os.chdir(base.stage)
            began = time.perf_counter()
            mounts.finish(base, [detached], detached=True, **LIMITS)
            seconds = time.perf_counter() - began + outside
            os.write(writer, repr(seconds).encode())
            os._exit(0)
        os.close(detached)
        os.close(writer)
        taken.append(float(os.read(reader, 100)))
        os.close(reader)
        os.wait()
    return taken


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_clones(sys.argv[1], int(sys.argv[2]))))
