"""How a box hands out the listener of its only port: over a socket in a folder that it sees until it is confined."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

WAY = "/mnt/way"
"""Where a box sees the socket."""


class Way:
    """A folder with a socket over which a box hands out the listener of its only port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o755)
        self._socket = socket.socket(socket.AF_UNIX)
        path = folder / Path(WAY).name
        self._socket.bind(str(path))
        path.chmod(0o666)
        self._socket.listen(1)

    def listener(self) -> socket.socket:
        """The socket that listens inside; pid 1 sent it before it said that it is ready."""
        self._socket.setblocking(False)
        peer, _ = self._socket.accept()
        with peer:
            peer.setblocking(False)
            _, descriptors, _, _ = socket.recv_fds(peer, 1, 1)
        return socket.socket(fileno=descriptors[0])

    def close(self) -> None:
        self._socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)
