"""The backend that this process uses."""

from __future__ import annotations

import os
from functools import lru_cache

from sandbox.backends.base import Backend, SandboxUnavailable

NAMES = ("namespaces", "docker")
CHOICE = "OPENCOMPOSER_SANDBOX"
"""Variable that names the backend of a process; without it the first of NAMES is used."""


def chosen() -> str:
    """The name of this process's backend. Raises SandboxUnavailable when the variable names none."""
    name = os.environ.get(CHOICE) or NAMES[0]
    if name not in NAMES:
        raise SandboxUnavailable(f"{CHOICE} is {name!r}: there is no such backend, use one of {', '.join(NAMES)}")
    return name


@lru_cache(maxsize=1)
def default_backend() -> Backend:
    """The chosen backend of this process. Closing it stops its sandboxes; the next `start` begins anew."""
    if chosen() == "docker":
        from sandbox.backends.docker.backend import DockerBackend

        return DockerBackend()
    from sandbox.backends.namespaces.backend import NamespacesBackend

    return NamespacesBackend()


def layer_owner() -> tuple[int, int]:
    """The (uid, gid) that every file of an environment layer should carry so that sandboxes can change it.

    An ordinary user's layers are the user's own. A host that runs as root starts its sandboxes under another
    kernel uid. Layers of any other single owner are translated: by idmapped mounts under overlayfs in namespaces
    (Linux 5.19), by a copy for each process in Docker.
    """
    from sandbox.backends.namespaces.kernel import identity

    if chosen() == "docker" and os.geteuid() == 0:
        return identity.INNER_UID, identity.INNER_GID
    return identity.sandbox_identity()
