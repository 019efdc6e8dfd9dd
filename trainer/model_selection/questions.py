"""Questions of state tracking: a file or a passage of one, a series of diffs, and what it is after them.

They are about the codebase that is measured: files as they were some commits ago with the diffs of those commits, and, where the
history has too few of them, passages under small edits whose words come from the same file. `generated` questions are about
functions of the procedural family, away from the seeds of suites; they are the same for every codebase.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from sandbox.tasks.procedural import problem
from trainer.midtrain.corpus.readers import SourceUnreadable, git
from trainer.model_selection.codebase import Codebase

QUESTION = "\n# the file after these changes:\n"
MAX_CHARS = 1_500
"""Characters of a file or a passage that is asked for: models of a base's size write it whole."""
MIN_LINES, MAX_LINES = 4, 30
LOOKED_AT = 8
"""Files whose history is read for each question that is wanted."""
WORD = re.compile(r"[A-Za-z_]\w*|\d+")


@dataclass(frozen=True, slots=True)
class StateItem:
    """A question: what is read, and the text that is right."""

    prompt: str
    answer: str


def of_codebase(codebase: Codebase, count: int, *, changes: int, seed: int) -> list[StateItem]:
    """Questions about the codebase, those of its history first. Empty if no file has MIN_LINES lines."""
    rng = random.Random(f"state:{seed}:{codebase.digest}")
    items = list(islice(_of_history(codebase, count, changes, rng), count))
    passages = [(path, passage) for path, text in codebase.texts() for passage in _passages(text)]
    while passages and len(items) < count:
        path, passage = rng.choice(passages)
        versions = _edited(passage, changes, rng)
        if len(versions) > 1:
            items.append(_item(path, versions))
    return items


def generated(count: int, *, changes: int, seed: int) -> list[StateItem]:
    """Questions about functions of the procedural family under a series of one-line diffs."""
    rng = random.Random(f"state:{seed}")
    items: list[StateItem] = []
    while len(items) < count:
        task = problem(rng.randrange(2_000_000_000, 3_000_000_000), "train")
        current = dict(task.current)
        versions = [[*task.function.head, *task.function.body(current)]]
        for _ in range(changes):
            edits = [edit for slot in task.function.skeleton.faults for edit in task.edits(current, slot)]
            if not edits:
                break
            edit = rng.choice(edits)
            current[edit.slot] = edit.option
            versions.append([*task.function.head, *task.function.body(current)])
        items.append(_item("", versions))
    return items


def _item(path: str, versions: Sequence[Sequence[str]]) -> StateItem:
    """`versions` are lines, oldest first."""
    diffs = "".join(
        f"{line}\n" for one, next_ in pairwise(versions) for line in difflib.unified_diff(one, next_, lineterm="", n=0)
    )
    name = f"# {path}\n" if path else ""
    return StateItem(f"{name}{_text(versions[0])}{diffs}{QUESTION}", _text(versions[-1]))


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _of_history(codebase: Codebase, count: int, changes: int, rng: random.Random) -> Iterator[StateItem]:
    """Small files that the last commits changed, as they were before them."""
    if codebase.repository is None:
        return
    for path in rng.sample(codebase.files, min(len(codebase.files), LOOKED_AT * count)):
        try:
            versions = _versions(codebase.repository, path, changes)
        except SourceUnreadable:
            continue  # renamed or created within these commits
        if len(versions) == changes + 1 and all(len(v) >= MIN_LINES and len(_text(v)) <= MAX_CHARS for v in versions):
            yield _item(path, versions)


def _versions(repository: Path, path: str, changes: int) -> list[list[str]]:
    """The file's last versions, oldest first. Raises SourceUnreadable."""
    options = ("--first-parent", "-n", str(changes + 1), "--format=%H", "HEAD", "--", path)
    commits = git(repository, "log", *options).decode().split()
    found: list[list[str]] = []
    for commit in reversed(commits):
        lines = git(repository, "show", f"{commit}:{path}").decode("utf-8", "replace").splitlines()
        if not found or found[-1] != lines:
            found.append(lines)
    return found


def _passages(text: str) -> Iterator[list[str]]:
    """Runs of lines that begin after an empty line and end before one."""
    passage: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.strip() or (passage and len(passage) < MIN_LINES):
            passage.append(line)
        elif passage:
            if len(passage) <= MAX_LINES and len(_text(passage)) <= MAX_CHARS and any(WORD.search(x) for x in passage):
                yield passage
            passage = []


def _edited(passage: list[str], changes: int, rng: random.Random) -> list[list[str]]:
    """The passage after each edit: a word gives way to another one of the passage, or a line goes or comes twice."""
    versions = [passage]
    words = sorted(set(WORD.findall("\n".join(passage))))
    for _ in range(changes):
        lines = list(versions[-1])
        at = rng.randrange(len(lines))
        spans = list(WORD.finditer(lines[at]))
        others = [word for word in words if spans and word != spans[0].group()]
        if spans and others and rng.random() < 0.6:
            span = rng.choice(spans)
            lines[at] = lines[at][: span.start()] + rng.choice(others) + lines[at][span.end() :]
        elif len(lines) > MIN_LINES and rng.random() < 0.5:
            del lines[at]
        else:
            lines.insert(at, lines[at])
        if lines != versions[-1]:
            versions.append(lines)
    return versions
