"""Tasks from a repository's own history: revert a commit that changed code and tests in today's checkout.

The commit is split in two. Its source patch is reversed in the checkout of the environment, exactly or not at all: the agent
begins without it, and the files as they are today are the oracle. The tests that it brought or changed are the hidden
verifier; one of them must fail. The agent's checkout has a history of one commit, so the fix is nowhere in it.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from sandbox.generators.analysis.targets import Split, Target, split_of
from sandbox.generators.building.builder import TaskBuilder, tests_near
from sandbox.generators.building.drafts import Draft, Reason, Rejected
from sandbox.generators.building.pruning import function_text
from sandbox.repositories.commits import Change, Commit
from sandbox.tasks.spec import Category

CONTEXT = 2
"""Unchanged lines around a change that must still be there."""
FEATURE = re.compile(r"(feat\b|feature\b|add(s|ed)?\b|implement|support|allow|introduce|new\b)", re.IGNORECASE)
MODULE = "<module>"


def mined(builder: TaskBuilder, commit: Commit, split: Split) -> Iterator[Draft | Rejected]:
    """The draft of one pair of code and tests; nothing for one that belongs to the other split."""
    sources, tests = _parted(commit)
    broken: dict[str, str] = {}
    gold: dict[str, str] = {}
    for change in sources:
        try:
            today = builder.read(change.path)
        except (OSError, UnicodeDecodeError):
            yield Rejected(Reason.MOVED_ON, change.path)
            return
        before = taken_back(today, change)
        if before is None:
            yield Rejected(Reason.MOVED_ON, change.path)
            return
        broken[change.path], gold[change.path] = before, today
    try:
        places = [(path, name) for path in gold for name in changed_definitions(gold[path], broken[path])]
        touched = tuple(test for change in tests for test in _tests_of(builder, change))
    except SyntaxError as error:
        yield Rejected(Reason.INVALID, str(error))
        return
    if not places:
        yield Rejected(Reason.INVALID)
        return
    if any(split_of(builder.built.name, Target(path, name, 0, ())) != split for path, name in places):
        return
    if not touched:
        yield Rejected(Reason.UNNOTICED, "none of its tests is stable today")
        return
    path, name = places[0]
    category: Category = "feature" if FEATURE.match(commit.subject) else "debug"
    yield Draft(
        source="mining", category=category, operator="commit", broken=broken, gold=gold,
        expected=tests_near(builder.built, tuple(gold), touched), family=f"{builder.built.name}:{path}:{name}",
        functions=tuple(name for _, name in places if name != MODULE), groups=(touched,),
    )  # fmt: skip


def is_pair(commit: Commit) -> bool:
    """Whether a commit changed code and tests."""
    return all(_parted(commit))


def _parted(commit: Commit) -> tuple[list[Change], list[Change]]:
    """(source patch, test patch); other files play no part."""
    code = [change for change in commit.changes if change.path.endswith(".py")]
    return [c for c in code if not is_test(c.path)], [c for c in code if is_test(c.path)]


def is_test(path: str) -> bool:
    pure = PurePosixPath(path)
    named = pure.name.startswith("test_") or pure.name.endswith("_test.py") or pure.name == "conftest.py"
    return named or bool({"test", "tests"} & set(pure.parts[:-1]))


def taken_back(today: str, change: Change) -> str | None:
    """`today` without what the commit did; None where later work touched the same lines, or no text would be left."""
    if change.before is None or change.after is None:
        return None  # a file that came or went: what an agent begins with cannot lack files of its environment
    if today == change.after:
        return change.before
    lines = today.split("\n")
    fixed, before = change.after.split("\n"), change.before.split("\n")
    matcher = difflib.SequenceMatcher(None, fixed, before, autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT):
        old = fixed[group[0][1] : group[-1][2]]
        new = before[group[0][3] : group[-1][4]]
        places = [at for at in range(len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
        if len(places) != 1:
            return None
        lines[places[0] : places[0] + len(old)] = new
    return "\n".join(lines)


def changed_definitions(one: str, other: str) -> list[str]:
    """Names of the top-level definitions that differ, MODULE for anything else. Raises SyntaxError."""
    left, right = _definitions(one), _definitions(other)
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))


def _definitions(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        name = node.name if isinstance(node, kinds) else MODULE
        found[name] = found.get(name, "") + ast.dump(node)
    return found


def _tests_of(builder: TaskBuilder, change: Change) -> Iterator[str]:
    """Stable tests of a file that the commit brought or changed, and that are today as it left them. Raises SyntaxError."""
    if change.after is None:
        return
    known: dict[tuple[str, ...], bool] = {}
    for test_id in sorted(builder.built.tests):
        path, *names = test_id.split("[", 1)[0].split("::")
        if path == change.path:
            where = tuple(names)
            if where not in known:
                after = function_text(change.after, where)
                before = function_text(change.before, where) if change.before is not None else None
                known[where] = after is not None and after != before
            if known[where]:
                yield test_id
