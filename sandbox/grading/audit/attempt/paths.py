"""What kind of file a path names, by its name alone."""

from __future__ import annotations

import functools
import re
from pathlib import PurePosixPath

from sandbox.backends.base import HOME, WORKDIR

TEST_FILE = re.compile(r"^(test_.*|.*_test|tests?|.*\.(test|spec)|conftest)\.\w+$|Tests?\.(java|kt|cs)$")
TEST_FOLDERS = frozenset({"test", "tests", "testing", "__tests__", "spec", "specs", "t"})
DOCUMENTS = frozenset({".md", ".rst", ".txt", ".adoc", ".tex", ".html", ".svg"})
CODE = frozenset({".py", ".pyi", ".pyx", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".go", ".rs", ".java", ".rb",
                  ".c", ".h", ".cc", ".cpp", ".hpp", ".sh", ".bash", ".pl", ".php", ".kt", ".cs", ""})  # fmt: skip


@functools.lru_cache(maxsize=4096)
def relative(path: str) -> str:
    """A path as the checkout sees it: below it relative, outside it absolute, home as `~`."""
    text = path.strip()
    for prefix in (f"{WORKDIR}/", "./"):
        text = text.removeprefix(prefix)
    if text == WORKDIR:
        return "."
    if text.startswith((f"{HOME}/", "$HOME/", "${HOME}/")):
        return "~/" + text.split("/", 3 if text.startswith(HOME) else 1)[-1]
    return text


@functools.lru_cache(maxsize=4096)
def is_test(path: str) -> bool:
    """A test file, or anything below a folder of tests."""
    pure = PurePosixPath(path)
    return bool(TEST_FILE.search(pure.name)) or not TEST_FOLDERS.isdisjoint(pure.parts[:-1])


@functools.lru_cache(maxsize=4096)
def is_program_aside(path: str) -> bool:
    """An example or a benchmark of Rust: Cargo builds it as a program of its own, and the library cannot use it."""
    pure = PurePosixPath(path)
    return pure.suffix == ".rs" and not {"examples", "benches"}.isdisjoint(pure.parts[:-1])


@functools.lru_cache(maxsize=4096)
def is_document(path: str) -> bool:
    return PurePosixPath(path).suffix.lower() in DOCUMENTS


@functools.lru_cache(maxsize=4096)
def is_code(path: str) -> bool:
    pure = PurePosixPath(path)
    return pure.suffix.lower() in CODE and not is_document(path)


def is_python(path: str) -> bool:
    return path.endswith((".py", ".pyi", ".pyx"))
