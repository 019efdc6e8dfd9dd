"""What in an image could give a task's answer away: read from the host, nothing of the image is run.

The image is what a sandbox would show below the home directory: the layers of an environment, the uppermost first.
Looked for are git history, caches and build products, second copies and archives of the package, and for a task
the definitions and lines that its oracle restores, in every file.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sandbox.repositories.artefacts import CACHES, PRODUCTS
from sandbox.tasks.environments import REPO, EnvironmentStore
from sandbox.tasks.git_scan import scan_git
from sandbox.tasks.spec import BuiltEnvironment, Environment, TaskSpec

MAX_FILES = 200_000
MAX_BYTES = 1 << 30
MAX_FILE_BYTES = 32 << 20
MAX_LEAKS = 20
MIN_LINE = 30
"""Characters that make a line telling."""
FEW_LINES = 4
"""One in so many of the oracle's lines may be in another file, as everyday lines of tests are; not a name."""
EVERYDAY = 3
"""A line that so many other files have is how people write there, and nobody's answer."""
MIN_NAME = 4
ARCHIVES = (".tar.gz", ".tgz", ".zip", ".whl", ".tar.bz2", ".tar.xz", ".crate", ".jar", ".gem")
BUILD_FOLDERS = frozenset({"build", "dist"})
"""At the top of the checkout, where building leaves copies."""


@dataclass(frozen=True, slots=True)
class Leak:
    path: str
    """Below the home directory."""
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def scan_layers(layers: Sequence[Path], name: str = "") -> list[Leak]:
    """What gives answers away whatever the task is; `name` is the package that the checkout is of."""
    return _first(_structure(image(layers), name))


def scan_environment(store: EnvironmentStore, env: Environment) -> list[Leak]:
    """`scan_layers` of a stored environment. Raises EnvironmentMissing."""
    return scan_layers(store.spec(env).layers, _name(store, env))


def scan_task(store: EnvironmentStore, task: TaskSpec) -> list[Leak]:
    """All that gives away the answer of one task. Raises EnvironmentMissing."""
    files = image(store.spec(task.environment).layers[:-1])  # the last is the home that all tasks have: everyday words
    needles = Needles.of(store, task)
    name = _name(store, task.environment)
    return _first(_structure(files, name, needles.blobs), _contents(files, needles))


def _name(store: EnvironmentStore, env: Environment) -> str:
    return store.manifest(env.digest).name if isinstance(env, BuiltEnvironment) else ""


def _first(*sources: Iterator[Leak]) -> list[Leak]:
    found: list[Leak] = []
    for source in sources:
        for leak in source:
            found.append(leak)
            if len(found) == MAX_LEAKS:
                return found
    return found


def image(layers: Sequence[Path]) -> dict[str, Path]:
    """Path below the home directory → file on this machine, as the merged layers show it. Links are not followed."""
    merged: dict[str, Path] = {}
    for layer in layers:
        for path in _walk(layer):
            merged.setdefault(path.relative_to(layer).as_posix(), path)
            if len(merged) > MAX_FILES:
                return merged
    return merged


def _walk(root: Path) -> Iterator[Path]:
    waiting = [root]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            if path.is_dir() and not path.is_symlink():
                waiting.append(path)
            elif path.is_symlink() or path.is_file():
                yield path


def _structure(files: dict[str, Path], name: str, blobs: frozenset[str] = frozenset()) -> Iterator[Leak]:
    if len(files) > MAX_FILES:
        yield Leak(".", f"the image has more than {MAX_FILES} files and was not searched")
    package = re.sub(r"[-_.]+", "-", name).lower()
    git: dict[str, dict[str, Path]] = {}
    top = {PurePosixPath(path).parts[1] for path in files if path.startswith(f"{REPO}/") and path.count("/") > 1}
    for path, file in files.items():
        pure = PurePosixPath(path)
        if ".git" in pure.parts:
            at = pure.parts.index(".git")
            git.setdefault("/".join(pure.parts[: at + 1]), {})["/".join(pure.parts[at + 1 :])] = file
            continue
        inside = pure.parts[0] == REPO
        if inside and (cache := next((part for part in pure.parts if part in CACHES), None)):
            yield Leak(path, CACHES[cache])
        elif inside and pure.name.endswith(PRODUCTS):
            yield Leak(path, "a build product or a left-over of work")
        elif inside and any(part.endswith((".egg-info", ".dist-info")) for part in pure.parts):
            yield Leak(path, "metadata of a built package")
        elif inside and len(pure.parts) > 2 and pure.parts[1] in BUILD_FOLDERS:
            yield Leak(path, "a folder of build products")
        elif (
            package
            and pure.name.endswith(ARCHIVES)
            and re.sub(r"[-_.]+", "-", pure.name).lower().startswith(f"{package}-")
        ):
            yield Leak(path, f"an archive of {name}")
        elif "site-packages" in pure.parts and _second_copy(pure, top, files):
            yield Leak(path, "a second copy of a module of the checkout")
    for folder, entries in git.items():
        for entry, why in scan_git(entries, blobs):
            yield Leak(f"{folder}/{entry}", why)


def _second_copy(pure: PurePosixPath, top: set[str], files: dict[str, Path]) -> bool:
    """Whether a file below site-packages is one of a package that the checkout holds."""
    at = pure.parts.index("site-packages") + 1
    if len(pure.parts) <= at + 1:
        return False
    inner = "/".join(pure.parts[at:])
    return (pure.parts[at] in top and f"{REPO}/{inner}" in files) or f"{REPO}/src/{inner}" in files


@dataclass(frozen=True, slots=True)
class Needles:
    """What must not be found anywhere in the image of a task."""

    names: frozenset[str]
    """Names that the oracle defines and the checkout does not, unless the instruction tells them."""
    lines: frozenset[str]
    """Long lines that only the oracle has."""
    blobs: frozenset[str]
    """Git's ids of the oracle's files."""
    paths: frozenset[str]

    @classmethod
    def of(cls, store: EnvironmentStore, task: TaskSpec) -> Needles:
        names: set[str] = set()
        lines: set[str] = set()
        blobs: set[str] = set()
        # What one of the changed files has already is not restored by another: code may move from one to the other.
        had: set[str] = set()
        known: set[str] = set()
        for path, text in task.gold.items():
            file = store.pristine(task.environment, path)
            before = "" if file is None else file.content.decode("utf-8", "replace")
            had |= definitions(path, before)
            known |= {line.strip() for line in before.split("\n")}
            if before == text:
                continue
            names |= definitions(path, text)
            lines |= {line for line in map(str.strip, text.split("\n")) if len(line) >= MIN_LINE}
            data = text.encode()
            blobs.add(hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest())
        names -= had
        lines -= known
        told = frozenset(re.findall(r"\w+", task.instruction))
        long_names = frozenset(name for name in names if len(name) >= MIN_NAME and not name.startswith("__"))
        return cls(long_names - told, frozenset(lines), frozenset(blobs), frozenset(f"{REPO}/{p}" for p in task.gold))


def definitions(path: str, text: str) -> set[str]:
    """Names of the functions and classes that a file defines; [] for what cannot be read."""
    if path.endswith(".py"):
        try:
            nodes = ast.walk(ast.parse(text))
            kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            return {node.name for node in nodes if isinstance(node, kinds)}
        except (SyntaxError, ValueError, RecursionError):
            return set()
    return set(
        re.findall(r"\b(?:func|fn|function|class|struct|interface|def|trait|enum|type) +(?:\([^)\n]*\) *)?(\w+)", text)
    )


def _contents(files: dict[str, Path], needles: Needles) -> Iterator[Leak]:
    """Files in which a needle is found, byte by byte: compiled and other binary files as well."""
    if not needles.names and not needles.lines:
        return
    parts = [rb"(?<!\w)" + re.escape(name.encode()) + rb"(?!\w)" for name in sorted(needles.names)]
    lines = {line.encode() for line in needles.lines}
    expression = re.compile(rb"|".join([*parts, *map(re.escape, sorted(lines))]))
    found: dict[str, set[bytes]] = {}
    total = 0
    for path, file in files.items():
        if file.is_symlink() or ("/.git/" in f"/{path}" and "/objects/" in path):
            continue  # objects are compressed: they are read by the scan of git
        size = file.stat().st_size
        total += size
        if total > MAX_BYTES or size > MAX_FILE_BYTES:
            yield Leak(path, f"larger than what is searched ({MAX_FILE_BYTES} bytes of a file, {MAX_BYTES} in all)")
            return
        # The changed files themselves are compared as a whole by what made the task; a name may stay in a call there.
        found[path] = set() if path in needles.paths else set(expression.findall(file.read_bytes()))
    spread = Counter(line for held in found.values() for line in held & lines)
    everyday = {line for line, count in spread.items() if count >= EVERYDAY}
    for path, held in found.items():
        named, told = held - lines, (held & lines) - everyday
        if named or len(told) > len(lines) / FEW_LINES:
            first = min(named or told)[:60].decode("utf-8", "replace")
            yield Leak(path, f"holds {first!r}, which the oracle restores")
