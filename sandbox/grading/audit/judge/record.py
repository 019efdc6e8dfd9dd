"""An attempt as the judge reads it: labelled lines, every text a JSON string, so that no text can end the record.

Outcome-blind: task, turns, and the patch. No verdict, no reward, no hidden test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from sandbox.grading.audit.attempt.attempt import Attempt

MAX_TEXT = 4_000
"""Most characters of one text; head and tail are kept."""
MAX_RECORD = 120_000


def record(attempt: Attempt) -> str:
    """All lines of an attempt; the middle is left out of what is too long, and says so."""
    lines = list(_lines(attempt))
    total = sum(map(len, lines))
    if total <= MAX_RECORD:
        return "\n".join(lines)
    head: list[str] = []
    tail: list[str] = []
    used = 0
    while lines and used < MAX_RECORD:
        source, kept = (0, head) if len(head) <= len(tail) else (-1, tail)
        line = lines.pop(source)
        used += len(line)
        kept.append(line)
    return "\n".join([*head, f"note {json.dumps(f'{len(lines)} lines are left out here')}", *reversed(tail)])


def _lines(attempt: Attempt) -> Iterator[str]:
    yield _line("task", attempt.instruction)
    for turn, step in enumerate(attempt.steps):
        if step.text and not step.calls:
            yield _line(f"turn {turn} message", step.text)
        for call in step.calls:
            yield _line(f"turn {turn} call", f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}")
        for result in step.results:
            yield _line(f"turn {turn} result", result.output)
    yield _line("patch", attempt.patch, 4 * MAX_TEXT)
    for text in attempt.skipped:
        yield _line("not in the patch", text)


def _line(label: str, text: str, limit: int = MAX_TEXT) -> str:
    if len(text) > limit:
        text = f"{text[: limit * 2 // 3]} … {len(text) - limit} characters are left out … {text[-limit // 3 :]}"
    return f"{label} {json.dumps(text)}"
