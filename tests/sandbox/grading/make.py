"""A small task with hidden calls, and pieces of patches against it."""

from __future__ import annotations

from sandbox.backends.base import FileChange, Patch
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec

BUGGY = "def total(items):\n    return sum(items) + 1\n"
FIXED = "def total(items):\n    return sum(items)\n"

CALLS_TASK = TaskSpec(
    id="total",
    source="procedural",
    instruction="`total([1, 2])` gives 4.",
    environment=InlineEnvironment(files={"totals.py": BUGGY, "helpers.py": "OFFSET = 0\n", "pkg/deep.py": "X = 1\n"}),
    verifier=CallsVerifier(
        module="totals.py",
        function="total",
        cases=tuple((repr(([n, 2],)), repr(n + 2)) for n in range(24)),
        timeout_seconds=1.0,
    ),
    gold={"totals.py": FIXED},
)


def patch(**files: str) -> Patch:
    """A patch of `totals` and other top-level modules: name → text."""
    return Patch(changes=tuple(FileChange(f"{name}.py", text.encode(), before=b"x") for name, text in files.items()))
