"""What is left of JavaScript files when all is taken out that only other tests explain.

A value may stay where the product is given it. If the only test that does so leaves, the value has to leave as well, and
with it what uses it; so files are read anew until nothing changes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sandbox.grading.observations.brace_tests.deciding import LOADS, SCRIPTS, TestFile, resolved
from sandbox.grading.observations.brace_tests.helper_files import pruned
from sandbox.grading.observations.brace_tests.statements import FROM, Names
from sandbox.grading.observations.literals import shown

MAX_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Settled:
    texts: Mapping[str, str]
    names: Mapping[str, set[Names]]
    """Tests of each file that show nothing in these texts."""


def settled(files: Mapping[str, TestFile], names: Mapping[str, Collection[Names]], *, hooks: bool) -> Settled:
    """Files with those of the tests `names` alone that show no expectation there, and what they need."""
    left = {path: set(tests) for path, tests in names.items()}
    texts = {path: file.text.decode() for path, file in files.items()}
    for _ in range(MAX_ROUNDS):
        made = {path: file.without(left[path], left[path], hooks=hooks).decode() for path, file in files.items()}
        files = {path: TestFile(path, text.encode(), {**files[path].files, **made}) for path, text in made.items()}
        same = {path: left[path] & file.comparable() for path, file in files.items()}
        if same == left and made == texts:
            telling = _telling(files)
            if not any(same[path] for path in telling):
                return Settled(made, same)
            same = {path: set() if path in telling else tests for path, tests in same.items()}
        left, texts = same, made
    return Settled(texts, {path: set() for path in texts})


def _telling(files: Mapping[str, TestFile]) -> set[str]:
    """Test files that still hold, or load a helper that holds, a value that nothing explains."""
    texts = {path: file.text.decode() for path, file in files.items()}
    every = {path: text for file in files.values() for path, text in file.files.items()}
    helpers = {path: text for path, text in every.items() if path not in files and path.endswith(SCRIPTS)}
    read = shown({**pruned(helpers, texts.values()), **texts})
    told = {path for path, values in read.items() if values.unread or values.places}
    found = told & texts.keys()
    for path, text in texts.items():
        if not told.isdisjoint(_loaded(path, text, helpers)):
            found.add(path)
    return found


def _loaded(path: str, text: str, helpers: Mapping[str, str]) -> set[str]:
    """Helper files that a file loads, directly or through others."""
    found: set[str] = set()
    waiting = [(path, text)]
    while waiting:
        where, source = waiting.pop()
        modules = [match[-1] for pattern in (LOADS, FROM) for match in pattern.findall(source.encode())]
        for module in modules:
            other = resolved(where, module.decode("utf-8", "replace"), helpers)
            if other is not None and other not in found:
                found.add(other)
                waiting.append((posixpath.normpath(other), helpers[other]))
    return found
