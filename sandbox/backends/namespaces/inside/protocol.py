"""Frames between the host and the processes of a sandbox: `u32 header length, u32 blob length, JSON header, blob`.

The host treats everything that arrives as hostile: both lengths are capped before a byte is kept, and a frame
that breaks the rules ends the sandbox. What a program in the sandbox can make long (names, paths, contents) travels in the
blob, or is cut; an answer that is too large all the same is an error of its call and ends nothing (`answer`).
"""

from __future__ import annotations

import json
import struct

PREFIX = struct.Struct("<II")
MAX_HEADER_BYTES = 4 << 20
MAX_BLOB_BYTES = 64 << 20
MAX_RESULT_BYTES = 32 << 20
"""Most that a command can send through its private result descriptor."""
MAX_TEXT_CHARS = 8192
"""Most of an error's text in an answer: it may quote a path or a pattern."""

DUMP_FD, STATE_FD, RESULT_FD, QUIET_FD = 60, 61, 62, 63
"""Descriptor numbers inside a command: where it leaves its shell state, where it reads it, its private result, and
where bash parks stderr while it reads the state."""


class ProtocolError(Exception):
    """The peer sent something that is not a frame."""


def encode(header: dict, blob: bytes = b"") -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER_BYTES or len(blob) > MAX_BLOB_BYTES:
        raise ProtocolError(f"frame too large: header {len(text)} bytes, blob {len(blob)} bytes")
    return PREFIX.pack(len(text), len(blob)) + text + blob


def answer(header: dict, blob: bytes = b"") -> bytes:
    """`encode` for a reply: one that is too large becomes an error of the call that it answers, and the peer lives on."""
    try:
        return encode(header, blob)
    except ProtocolError as error:
        return encode({"id": header.get("id"), "error": str(error), "kind": "large"})


class Decoder:
    """Cuts a byte stream into frames. `feed` returns the frames that became complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[dict, bytes]]:
        """Raises ProtocolError as soon as the stream cannot be valid any more."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= PREFIX.size:
            header_bytes, blob_bytes = PREFIX.unpack_from(self._buffer)
            if header_bytes > MAX_HEADER_BYTES or blob_bytes > MAX_BLOB_BYTES:
                raise ProtocolError(f"frame announces {header_bytes} + {blob_bytes} bytes")
            end = PREFIX.size + header_bytes + blob_bytes
            if len(self._buffer) < end:
                break
            body = PREFIX.size + header_bytes
            frames.append((_header(bytes(self._buffer[PREFIX.size : body])), bytes(self._buffer[body:end])))
            del self._buffer[:end]
        return frames


def _header(text: bytes) -> dict:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise ProtocolError("header is not an object")
    return header
