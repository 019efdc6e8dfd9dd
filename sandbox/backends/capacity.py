"""How many sandboxes one process keeps alive at once: a setting, or what the machine can carry."""

from __future__ import annotations

import os

from sandbox.backends.base import SandboxUnavailable

SETTING = "OPENCOMPOSER_SANDBOXES"
PER_PROCESSOR = 16
"""An episode waits for the policy most of its time, so many share a processor."""
BYTES_EACH = 256 << 20
"""Memory that an episode's programs hold at once, as a rule; the limit of one is a bound, not a reservation."""
MIN = 4


def sandboxes_at_once(processors: int | None = None, memory_bytes: int | None = None) -> int:
    """The setting if there is one, else by processors that this process may use and the machine's memory.

    Raises SandboxUnavailable for a setting that is no positive number.
    """
    if said := os.environ.get(SETTING):
        if not said.isdecimal() or int(said) < 1:
            raise SandboxUnavailable(f"{SETTING} is {said!r}: give the most sandboxes of one process, such as 32")
        return int(said)
    processors = processors or len(os.sched_getaffinity(0))
    memory_bytes = memory_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(MIN, min(PER_PROCESSOR * processors, memory_bytes // BYTES_EACH))
