"""Cache of verified package files, stored by SHA-256 for later sandboxes.

Only this process writes here, and only files that it fetched and verified itself; sandboxes have no access. The reader
verifies each cached file again, like a file from the registry.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

MAX_BYTES = 4 << 30
"""Total size of all files; the least recently used are evicted first."""
MAX_FILE_BYTES = 256 << 20
CHUNK = 1 << 18


class KeptFiles:
    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes

    def has(self, sha256: str) -> bool:
        return self._path(sha256).is_file()

    async def read(self, sha256: str) -> AsyncIterator[bytes]:
        """Raises OSError when it went meanwhile."""
        with self._path(sha256).open("rb") as file:
            os.utime(file.fileno())
            while chunk := await asyncio.to_thread(file.read, CHUNK):
                yield chunk

    def put(self, sha256: str, content: IO[bytes], size: int) -> None:
        """Keep a verified file, the reading position being at its start before and after."""
        if self.has(sha256) or size > min(MAX_FILE_BYTES, self._max_bytes):
            return
        target = self._path(sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=target.parent, suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                shutil.copyfileobj(content, file)
            Path(draft).replace(target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        finally:
            content.seek(0)
        self._prune()

    def forget(self, sha256: str) -> None:
        self._path(sha256).unlink(missing_ok=True)

    def _path(self, sha256: str) -> Path:
        assert re.fullmatch(r"[0-9a-f]{64}", sha256), "a digest is 64 hexadecimal digits"
        return self._folder / sha256[:2] / sha256

    def _prune(self) -> None:
        found = []
        for path in self._folder.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):  # another process pruned it
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._max_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size
