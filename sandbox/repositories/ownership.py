"""Layers must belong to the user that sandboxes run as, or files in them cannot be changed from inside.

The kernel refuses to copy up an overlay file whose owner has no name in the sandbox's user namespace. When the
host process is root, sandboxes run as another user, and what root wrote is handed over here.
"""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.backends.choice import layer_owner


def give_to_sandbox(folder: Path) -> None:
    """Make `folder` and everything below it owned by the sandbox's user (nothing to do for an ordinary user)."""
    if os.geteuid() != 0:
        return
    uid, gid = layer_owner()
    for parent, folders, files in os.walk(folder):
        os.chown(parent, uid, gid)
        for name in (*folders, *files):
            os.lchown(os.path.join(parent, name), uid, gid)
