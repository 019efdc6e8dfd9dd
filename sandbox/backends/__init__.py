"""Isolation backends: the contract is `base.py`, the implementation used by default is `namespaces/`.

Kept free of imports: the zygote (which must stay tiny, see `namespaces/zygote.py`) loads this package too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.backends.base import Backend


@lru_cache(maxsize=1)
def default_backend() -> Backend:
    """The namespaces backend of this process. Closing it stops its sandboxes; the next `start` begins anew."""
    from sandbox.backends.namespaces.backend import NamespacesBackend

    return NamespacesBackend()


def layer_owner() -> tuple[int, int]:
    """The (uid, gid) that every file of an environment layer must carry so that sandboxes can change it.

    An ordinary user's layers are the user's own. A host that runs as root starts its sandboxes under another
    kernel uid; files of any single owner are mapped to it where the kernel can (idmapped mounts under
    overlayfs, Linux 5.19), and files that carry this owner work everywhere.
    """
    from sandbox.backends.namespaces.identity import sandbox_identity

    return sandbox_identity()
