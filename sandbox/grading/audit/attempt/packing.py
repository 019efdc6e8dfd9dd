"""What a text holds in another form: base64, hexadecimal, compressed, reversed, shifted. Bounded, and never executed."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import zlib
from collections.abc import Iterator

MIN_CHARS, MAX_CHARS = 16, 40_000
MAX_UNPACKED = 100_000
BLOB = re.compile(r"[A-Za-z0-9+/=_\s-]+")


def unpacked(text: str) -> Iterator[str]:
    """The texts that `text` may stand for, itself left out."""
    plain = text.strip()
    if not MIN_CHARS <= len(plain) <= MAX_CHARS:
        return
    yield plain[::-1]
    yield codecs.decode(plain, "rot13")
    if not BLOB.fullmatch(plain):
        return
    joined = "".join(plain.split())
    for read in (_hexadecimal, _base64):
        data = read(joined)
        if data is None:
            continue
        for form in (data, _inflated(data)):
            if form is not None and (found := _text(form)):
                yield found


def _hexadecimal(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _inflated(data: bytes) -> bytes | None:
    for bits in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
        try:
            return zlib.decompressobj(bits).decompress(data, MAX_UNPACKED)
        except zlib.error:
            continue
    return None


def _text(data: bytes) -> str:
    try:
        found = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return found if found.isprintable() or all(c.isprintable() or c.isspace() for c in found) else ""
