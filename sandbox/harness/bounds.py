"""Bounded text: the head and the tail of an output, and a line that says what was left out between them."""

from __future__ import annotations

NOTICE_BYTES = 64


def cut_notice(cut_bytes: int) -> str:
    """The line that stands for `cut_bytes` of left-out output."""
    return f"[... {cut_bytes} bytes cut ...]"


def bound(text: str, limit: int, *, unseen: int = 0) -> tuple[str, int]:
    """`text` within about `limit` bytes and the number of bytes cut from its middle.

    Cuts at line ends where a line end is near, never inside a character. `unseen` bytes were left out of the middle
    of `text` before, and a notice stands there; they are counted, and room for that notice is granted.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= limit + (NOTICE_BYTES if unseen else 0):
        return text, unseen
    half = max(limit // 2, 1)
    head, tail = data[:half], data[-half:]
    line_end = head.rfind(b"\n")
    if line_end >= half // 2:
        head = head[:line_end]
    line_start = tail.find(b"\n")
    if 0 <= line_start < half // 2:
        tail = tail[line_start + 1 :]
    head_text = head.decode("utf-8", "ignore")
    tail_text = tail.decode("utf-8", "ignore")
    cut = len(data) + unseen - len(head_text.encode()) - len(tail_text.encode())
    return f"{head_text}\n{cut_notice(cut)}\n{tail_text}", cut
