"""How the engine frames what a container without a terminal writes: `u8 stream, 3 zero bytes, u32 length (big endian)`."""

from __future__ import annotations

import struct

HEADER = struct.Struct(">BxxxI")
STDOUT, STDERR = 1, 2


class Streams:
    """Cuts the engine's byte stream into what was written to each stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        self._buffer += data
        found = []
        while len(self._buffer) >= HEADER.size:
            stream, length = HEADER.unpack_from(self._buffer)
            end = HEADER.size + length
            if len(self._buffer) < end:
                break
            found.append((stream, bytes(self._buffer[HEADER.size : end])))
            del self._buffer[:end]
        return found
