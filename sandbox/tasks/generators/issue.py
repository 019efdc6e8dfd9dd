"""An issue report from what a failing test observed: its text and the error it saw, nothing about the change."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sandbox.tasks.generators.pruning import function_text, functions_of

MAX_TEST_LINES = 30
MAX_ERROR_LINES = 12


def issue_report(package: str, failures: Mapping[str, str], read: Callable[[str], str]) -> str | None:
    """A report on one of `failures` (test id → pytest's account of it), or None when none can be shown.

    `read` gives the text of a test file. The test with the shortest text is shown: it is the plainest evidence.
    """
    best: tuple[int, str, str, str] | None = None
    for test_id in sorted(failures):
        ((path, functions),) = functions_of([test_id]).items()
        (function,) = functions
        text = function_text(read(path), function)
        error = error_lines(failures[test_id])
        if text is None or not error or len(text.splitlines()) > MAX_TEST_LINES:
            continue
        size = len(text)
        if best is None or size < best[0]:
            best = (size, test_id, text, error)
    if best is None:
        return None
    _, test_id, text, error = best
    case = test_id.partition("[")[2].removesuffix("]")
    which = f" (case `{case}`)" if case else ""
    return (
        f"`{package}` behaves wrongly. This check used to pass and fails now{which}:\n\n"
        f"```python\n{text.rstrip()}\n```\n\n"
        f"It reports:\n\n```\n{error}\n```\n\n"
        "Find the cause in the package and correct it. The check above is not in the checkout; "
        "other checks of the same behaviour will be run as well, and everything that works now must keep working.\n"
    )


def error_lines(account: str) -> str:
    """The lines of pytest's account that state the error (marked `E`), without the traceback's code."""
    lines = [line[1:].strip() for line in account.splitlines() if line.startswith("E ")]
    return "\n".join(lines[:MAX_ERROR_LINES])
