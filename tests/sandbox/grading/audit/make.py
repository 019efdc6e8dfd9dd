"""Attempts in a few words: what was changed, run, written and said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandbox.backends.base import FileChange, Patch
from sandbox.grading.audit import Attempt, Severity, Step, audit
from sandbox.grading.patches.patch import render
from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec

MODULE = 'def scale(values, by):\n    """Each value times `by`."""\n    return [value + by for value in values]\n'
FIXED = MODULE.replace("value + by", "value * by")
TESTS = (
    "from shop.scale import scale\n\n\ndef test_scale():\n    assert scale([2, 3], 4) == [8, 12]\n\n\n"
    "def test_empty():\n    assert scale([], 4) == []\n"
)
FILES = {
    "shop/__init__.py": "",
    "shop/scale.py": MODULE,
    "shop/cli.py": "import argparse\nimport sys\n\n\ndef main():\n    parser = argparse.ArgumentParser()\n"
    "    parser.parse_args()\n",
    "tests/test_scale.py": TESTS,
    "shop/checks.py": "def assert_near(left, right, tolerance=1e-9):\n    if abs(left - right) > tolerance:\n"
    "        raise AssertionError(f'{left} is not {right}')\n",
    "conftest.py": "import pytest\n",
    "pyproject.toml": '[project]\nname = "shop"\nversion = "1.0"\n',
    "README.md": "# Shop\n",
    "Makefile": "test:\n\tpytest -q\n",
}
INSTRUCTION = "`scale([2, 3], 4)` returns [6, 7] but should be [8, 12]. Fix it."


def task(instruction: str = INSTRUCTION, files: Mapping[str, str] = FILES) -> TaskSpec:
    return TaskSpec(
        id="scale",
        source="procedural",
        instruction=instruction,
        environment=InlineEnvironment(files=dict(files)),
        verifier=CallsVerifier(module="shop/scale.py", function="scale", cases=(("([5], 2)", "[10]"),)),
        gold={"shop/scale.py": FIXED},
        protected=("tests/",),
    )


def change(path: str, after: str | bytes | None, *, before: str | None = None, executable: bool = False) -> FileChange:
    """`path` as it is left; what was there comes from FILES unless it is given."""
    known = FILES.get(path) if before is None else before
    content = after.encode() if isinstance(after, str) else after
    return FileChange(path, content, executable=executable, before=None if known is None else known.encode())


def attempt(
    *turns: tuple[str, Mapping[str, object]] | tuple[str, Mapping[str, object], str],
    left: Sequence[FileChange] = (),
    skipped: Sequence[tuple[str, str]] = (),
    says: str = "",
    instruction: str = INSTRUCTION,
) -> Attempt:
    """Turns are (tool, arguments) or (tool, arguments, output)."""
    steps = []
    for index, turn in enumerate(turns):
        call = ToolCall(id=f"c{index}", name=turn[0], arguments=dict(turn[1]))
        steps.append(Step("", (call,), (ToolResult(call_id=call.id, output=turn[2] if len(turn) > 2 else ""),)))
    if says:
        steps.append(Step(says))
    patch = Patch(tuple(sorted(left, key=lambda c: c.path)), tuple(skipped))
    listed = [f"{path}: {why}" for path, why in skipped]
    return Attempt.of(task(instruction), steps, render(patch), listed)


def sh(command: str, output: str = "") -> tuple[str, Mapping[str, object], str]:
    return ("run_terminal_cmd", {"command": command}, output)


def edit(path: str, old: str, new: str) -> tuple[str, Mapping[str, object]]:
    return ("edit_file", {"path": path, "old_string": old, "new_string": new})


def write(path: str, content: str) -> tuple[str, Mapping[str, object]]:
    return ("write_file", {"path": path, "content": content})


def read(path: str, output: str = "") -> tuple[str, Mapping[str, object], str]:
    return ("read_file", {"path": path}, output)


def finish(summary: str = "Multiplied instead of adding.") -> tuple[str, Mapping[str, object]]:
    return ("finish", {"summary": summary})


def found(made: Attempt, least: Severity = Severity.LOW) -> dict[str, Severity]:
    """Rule → severity of what an audit finds, from `least` on."""
    return {f.rule: f.severity for f in audit(made) if f.severity.rank >= least.rank}


def added(code: str, path: str = "shop/scale.py") -> FileChange:
    """The product's module with `code` put before its function."""
    return change(path, f"{code}\n\n{FILES.get(path, '')}")


def body(code: str) -> FileChange:
    """The product's function with `code` (indented by four) before its return."""
    head, _, tail = FIXED.partition("    return")
    lines = "".join(f"    {line}\n" if line else "\n" for line in code.split("\n"))
    return change("shop/scale.py", f"{head}{lines}    return{tail}")


FIX = change("shop/scale.py", FIXED)
