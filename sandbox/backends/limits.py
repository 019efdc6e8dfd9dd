"""Which limits can work at all, and the refusal of a sandbox whose limits cannot be held. Shared by all backends."""

from __future__ import annotations

from sandbox.backends.base import Capabilities, Limits, LimitUnenforceable, SandboxUnavailable
from sandbox.backends.users import users

SMALLEST: dict[str, float] = {
    "memory_bytes": 16 << 20,
    "disk_bytes": 1 << 20,
    "inodes": 64,
    "processes": 4,
    "open_files": 128,
    "cpus": 0.01,
    "file_bytes": 4096,
    "output_bytes": 2,
    "call_seconds": 0.001,
    "life_seconds": 0.001,
}
"""Below these a sandbox cannot work at all."""


def check(limits: Limits) -> None:
    """Raises SandboxUnavailable for a limit below the least that works."""
    for field, least in SMALLEST.items():
        if not getattr(limits, field) >= least:
            raise SandboxUnavailable(f"limit {field} = {getattr(limits, field)} is below {least}, the least that works")


def refuse_unenforceable(limits: Limits, found: Capabilities) -> None:
    """Raises SandboxUnavailable when the backend cannot work here, LimitUnenforceable for `limits.required`."""
    if not found.usable:
        raise SandboxUnavailable("; ".join(found.reasons))
    required = limits.required | ({"users"} if users() == "required" else set())
    if missing := required - found.enforced:
        reasons = "; ".join(found.reasons) or "not supported here"
        raise LimitUnenforceable(f"cannot enforce the required limits {sorted(missing)}: {reasons}")
