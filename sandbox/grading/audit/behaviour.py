"""How an attempt works, in numbers: what a run is watched for as it learns.

None of these is a fault of one attempt. Their means over a step become metrics, and `drift.py` says when they move.
"""

from __future__ import annotations

import re
from collections import Counter

from sandbox.grading.audit.attempt.attempt import STRINGS, Attempt
from sandbox.harness.types import ToolErrorKind

ASIDE = frozenset({"finish", "todo_write"})
"""Tools that neither look nor change."""
EDITS = frozenset({"edit_file", "write_file", "delete_file"})
MALFORMED = frozenset({ToolErrorKind.MALFORMED_CALL, ToolErrorKind.UNKNOWN_TOOL, ToolErrorKind.INVALID_ARGUMENTS})
QUESTION = re.compile(
    r"\?\s*\Z|\b(could|can|would|should|do|shall) (you|I|we)\b[^.?\n]{0,120}\?|\bplease (clarify|confirm|specify|provide)",
    re.I,
)
LINE_COMMENT = re.compile(r"//[^\n]*+")

MEASURES: dict[str, str] = {
    "behaviour/comment_share": "share of the code written that is comments",
    "behaviour/comment_chars": "characters of comments written",
    "behaviour/terminal_share": "share of calls that go to the terminal",
    "behaviour/top_tool_share": "share of calls that go to the most used tool",
    "behaviour/edits": "calls that change files",
    "behaviour/patched": "attempts that leave a change",
    "behaviour/turns": "turns",
    "behaviour/questions": "attempts that end by asking the user",
    "behaviour/malformed_share": "share of calls that are malformed, unknown or have wrong arguments",
}


def measure(attempt: Attempt) -> dict[str, float]:
    """Every measure of one attempt, under the names of MEASURES."""
    tools: Counter[str] = Counter()
    malformed = tried = edits = 0
    for step in attempt.steps:
        for call in step.calls:
            tools[call.name] += call.name not in ASIDE
            edits += call.name in EDITS
        bad = sum(result.error is not None and result.error.kind in MALFORMED for result in step.results)
        malformed += bad
        tried += max(len(step.calls), len(step.results))
    calls = sum(tools.values())
    comments, written = _comments(attempt)
    last = attempt.steps[-1] if attempt.steps else None
    asks = last is not None and not last.calls and not last.results and bool(QUESTION.search(last.text[-2_000:]))
    return {
        "behaviour/comment_share": comments / written if written else 0.0,
        "behaviour/comment_chars": float(comments),
        "behaviour/terminal_share": tools["run_terminal_cmd"] / calls if calls else 0.0,
        "behaviour/top_tool_share": max(tools.values()) / calls if calls else 0.0,
        "behaviour/edits": float(edits),
        "behaviour/patched": float(bool(attempt.files)),
        "behaviour/turns": float(len(attempt.steps)),
        "behaviour/questions": float(asks),
        "behaviour/malformed_share": malformed / tried if tried else 0.0,
    }


def _comments(attempt: Attempt) -> tuple[int, int]:
    """(characters of comments, characters in all) of the code that was left or run."""
    comments = written = 0
    shown = {code.path for code in attempt.added}
    for code in (*attempt.added, *(script for script in attempt.scripts if script.path not in shown)):
        written += sum(not c.isspace() for c in code.text)
        if code.path.endswith((".js", ".ts", ".go", ".rs", ".java", ".c", ".cpp", ".h", ".tsx", ".jsx")):
            found = (m.group() for m in LINE_COMMENT.finditer(code.text))
        else:
            found = (m.group() for m in STRINGS.finditer(code.text) if m.group().startswith("#"))
        comments += sum(sum(not c.isspace() for c in text) for text in found)
    return comments, written
