"""Patches: rendered for people, and made from an oracle's files."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sandbox.backends.base import FileChange, Patch
from sandbox.tasks.spec import InlineEnvironment, TaskSpec

MAX_DIFF_BYTES = 256 << 10
"""A file larger than this is named in a rendered patch, not shown: diffing is quadratic."""
MAX_PAIRS = 2_000_000
"""Pairs of equal lines, one before and one after, that are looked at in a patch. Files beyond are shown as replaced."""


def from_files(task: TaskSpec, files: Mapping[str, str]) -> Patch:
    """The patch that leaves `files` (path → full text) in the checkout of `task`; unchanged files are left out."""
    environment = task.environment
    known = environment.files if isinstance(environment, InlineEnvironment) else environment.overrides
    changes = []
    for path, text in sorted(files.items()):
        before = known.get(path)
        if before != text:
            changes.append(FileChange(path, text.encode(), before=None if before is None else before.encode()))
    return Patch(changes=tuple(changes))


def render(patch: Patch) -> str:
    """`patch` as a unified diff in git's layout. For reading: it is never applied from this text."""
    left = [MAX_PAIRS]
    return "".join(_render(change, left) for change in patch.changes)


def _render(change: FileChange, left: list[int]) -> str:
    old = "/dev/null" if change.before is None else f"a/{change.path}"
    new = "/dev/null" if change.content is None else f"b/{change.path}"
    lines = [f"diff --git a/{change.path} b/{change.path}\n"]
    if change.before is None:
        lines.append(f"new file mode {'100755' if change.executable else '100644'}\n")
    elif change.content is None:
        lines.append("deleted file mode 100644\n")
    before, after = _text(change.before), _text(change.content)
    if before is None or after is None:
        lines.append(f"Binary files {old} and {new} differ\n")
    elif len(before) + len(after) > MAX_DIFF_BYTES:
        lines.append(f"Large files {old} and {new} differ\n")
    else:
        for line in _diff(_lines(before), _lines(after), old, new, left):
            lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def _diff(before: Sequence[str], after: Sequence[str], old: str, new: str, left: list[int]) -> Iterator[str]:
    """The unified difference of two texts, within the pairs that are left."""
    counts, most = Counter(before), len(after) // 100 + 1 if len(after) >= 200 else len(after)
    # difflib passes over lines that are more frequent than that.
    pairs = sum(count * counts[line] for line, count in Counter(after).items() if count <= most)
    if pairs <= left[0]:
        left[0] -= pairs
        yield from difflib.unified_diff(before, after, old, new)
        return
    yield from (f"--- {old}\n", f"+++ {new}\n", f"@@ -1,{len(before)} +1,{len(after)} @@\n")
    yield from (f"-{line}" for line in before)
    yield from (f"+{line}" for line in after)


def _lines(text: str) -> list[str]:
    """Lines with their ends; only `\\n` ends a line (form feeds and the like are part of it)."""
    parts = text.split("\n")
    lines = [f"{part}\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _text(content: bytes | None) -> str | None:
    """Decoded content ("" for an absent file), or None when it is not text."""
    if content is None:
        return ""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
