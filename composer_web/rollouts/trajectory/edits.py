"""Edits in a transcript as inline diffs: what `edit_file` replaces, and what `write_file` writes.

Arguments are recognised by their names, not by the tool: other harnesses call the same edit by another name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from sandbox.harness.types import ToolCall

REPLACE = (("old_string", "new_string"), ("old_str", "new_str"))
WRITE = ("contents", "content", "file_text")
WRITERS = ("write_file", "create_file", "write")
MAX_LINES = 400
"""Lines of one diff. More are counted, not shown."""
CONTEXT = 3

Line = tuple[str, str, str]
"""Class, sign and text of a line."""


@dataclass(frozen=True)
class Edit:
    html: SafeString
    arguments: tuple[str, ...]
    """Arguments that the diff replaces on the page."""
    missing: bool
    """Whether characters or lines are left out."""


def diff_of(call: ToolCall, limit: int) -> Edit | None:
    """The change of a call as a diff of at most `limit` characters a side. None for a call that changes no text."""
    given = call.arguments
    for old, new in REPLACE:
        if isinstance(given.get(old), str) and isinstance(given.get(new), str):
            return _edit(given[old], given[new], (old, new), limit)
    for name in WRITE:
        if call.name in WRITERS and isinstance(given.get(name), str):
            return _edit("", given[name], (name,), limit)
    return None


def _edit(old: str, new: str, arguments: tuple[str, ...], limit: int) -> Edit:
    rows = list(_lines(old[:limit].splitlines(), new[:limit].splitlines()))
    missing = len(old) > limit or len(new) > limit or len(rows) > MAX_LINES
    left_out = max(0, len(old) - limit) + max(0, len(new) - limit)
    shown = rows[:MAX_LINES]
    if left_out:
        shown.append(("diff__gap", " ", f"… {left_out} characters are not shown here …"))
    elif len(rows) > MAX_LINES:
        shown.append(("diff__gap", " ", f"… {len(rows) - MAX_LINES} lines are not shown here …"))
    lines = format_html_join("", '<span class="diff__line {}"><i>{}</i>{}\n</span>', shown)
    added, removed = (sum(row[1] == sign for row in rows) for sign in "+−")
    label = f"Change: {added} line{'s' * (added != 1)} added, {removed} removed"
    html = format_html('<pre class="diff" tabindex="0" role="group" aria-label="{}">{}</pre>', label, lines)
    return Edit(html, arguments, missing)


def _lines(old: list[str], new: list[str]) -> Iterable[Line]:
    """Lines of the diff: unchanged ones far from a change are folded."""
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            same = old[a:b]
            if len(same) > 2 * CONTEXT + 1:
                yield from (("", " ", line) for line in same[:CONTEXT])
                yield "diff__gap", " ", f"… {len(same) - 2 * CONTEXT} unchanged lines …"
                same = same[-CONTEXT:]
            yield from (("", " ", line) for line in same)
            continue
        yield from (("diff__old", "−", line) for line in old[a:b])
        yield from (("diff__new", "+", line) for line in new[c:d])
