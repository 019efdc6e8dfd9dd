"""The environment store: prepared environments as read-only layers on disk, addressed by their content.

    <root>/home/<digest>/             skeleton of the home directory, below every environment
    <root>/inline/<ab>/<digest>/      repositories that travelled inside a task bundle
    <root>/built/<digest>/            layer/ and manifest.json of environments made from packages
    <root>/overrides/<ab>/<digest>/   files of one task laid over a built environment (the planted bug)

A layer is written below `<root>/tmp` and renamed into place, so that concurrent processes may prepare the same
one: the first rename wins, and the others find it there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.backends.base import EnvSpec
from sandbox.backends.machine import MACHINE, Machine
from sandbox.errors import EnvironmentMissing, TaskInvalid
from sandbox.repositories.history import TreeFile, write_history
from sandbox.repositories.ownership import give_to_sandbox
from sandbox.tasks.skeleton import home_files, write_home
from sandbox.tasks.spec import BuiltEnvironment, Environment, InlineEnvironment

FORMAT = b"environment-4"
"""Part of every digest; changed whenever the way in which layers are written changes."""
REPO = "repo"
EPOCH = 1_717_400_000
"""Commits are dated in the 200 days after this second, each by its digest."""
STALE_SECONDS = 24 * 3600.0


class Manifest(BaseModel):
    """What is known about a built environment besides its files."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    version: str
    env: dict[str, str] = Field(default_factory=dict)
    """Extra variables of every command in it."""
    python: str = "python3"
    """The interpreter, inside the sandbox, that has the environment's packages."""
    tests: dict[str, float] = Field(default_factory=dict)
    """Test id → seconds, of the tests that passed in every repeat."""
    flaky: tuple[str, ...] = ()
    """Ids that did not pass in every repeat; never used by a task."""
    source_roots: tuple[str, ...] = (".",)
    """Directories of the checkout that are on the interpreter's path."""


class EnvironmentStore:
    """Turns an environment of a task into the layers that a backend mounts."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root).resolve()
        self._temporary = self.root / "tmp"
        self._temporary.mkdir(parents=True, exist_ok=True)
        self._sweep()

    def spec(self, env: Environment, machine: Machine = MACHINE) -> EnvSpec:
        """Layers and variables of `env` on `machine`, written now if they are not there yet; the home is the last layer.

        Raises EnvironmentMissing.
        """
        home = self._home(machine)
        if isinstance(env, InlineEnvironment):
            return EnvSpec(layers=(self._inline(env.files), home), env=machine.variables)
        manifest = self.manifest(env.digest)
        base = self.root / "built" / env.digest / "layer"
        variables = tuple(sorted({**dict(machine.variables), **manifest.env}.items()))
        return EnvSpec(layers=(self._overrides(env, base), base, home), env=variables)

    def manifest(self, digest: str) -> Manifest:
        """What is known about a built environment. Raises EnvironmentMissing, TaskInvalid."""
        path = self.root / "built" / digest / "manifest.json"
        if not self.has(digest):
            raise EnvironmentMissing(
                f"built environment {digest[:16]} is not in {self.root}",
                remedy="Build it with `python -m sandbox.generators --data DIR`",
            )
        try:
            return Manifest.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise TaskInvalid(f"manifest of environment {digest[:16]} is unreadable: {error}") from error

    def has(self, digest: str) -> bool:
        """Whether a built environment of that digest is here."""
        return len(digest) == 64 and digest.isalnum() and (self.root / "built" / digest / "manifest.json").is_file()

    def preview(self, tree: Path, manifest: Manifest) -> EnvSpec:
        """How sandboxes see `tree` before it is added: for trying an environment out while it is built."""
        give_to_sandbox(tree)
        return EnvSpec(layers=(tree, self._home(MACHINE)), env=tuple(sorted(manifest.env.items())))

    def repository(self, digest: str) -> Path:
        """The pristine checkout of a built environment, to be read only."""
        self.manifest(digest)
        return self.root / "built" / digest / "layer" / REPO

    def pristine(self, env: Environment, path: str) -> TreeFile | None:
        """The file at `path` of the checkout as a task begins with it; None where there is no regular file."""
        texts = env.files if isinstance(env, InlineEnvironment) else env.overrides
        base = None if isinstance(env, InlineEnvironment) else self.repository(env.digest) / path
        # Nothing below a link is the image's own: its target may lie anywhere on this machine.
        inside = base is not None and base.is_file() and base.resolve() == base
        executable = bool(inside and base is not None and base.stat().st_mode & 0o100)
        if path in texts:
            return TreeFile(texts[path].encode(), executable)
        return TreeFile(base.read_bytes(), executable) if inside and base is not None else None

    def add_built(self, tree: Path, manifest: Manifest) -> BuiltEnvironment:
        """Take over the directory `tree` (what appears below the home directory) as a built environment.

        `tree` is moved, not copied, when it lies on the store's file system; it must hold `repo/`. The digest is of
        the files only: measured times and the like do not change it, and the first manifest of a tree stays.
        """
        digest = tree_digest(tree, FORMAT + b"|" + f"{manifest.name} {manifest.version}".encode())

        def fill(folder: Path) -> None:
            shutil.move(tree, folder / "layer")
            (folder / "manifest.json").write_text(manifest.model_dump_json(indent=1))

        self._place(self.root / "built" / digest, fill)
        return BuiltEnvironment(digest=digest)

    def working_directory(self) -> Path:
        """A fresh directory on the store's file system, for building a tree; swept after a day if left behind."""
        path = self._temporary / uuid.uuid4().hex
        path.mkdir(mode=0o755)
        return path

    def _home(self, machine: Machine) -> Path:
        digest = _digest(b"home|%g" % machine.home_age_days, home_files(machine))
        return self._place(self.root / "home" / digest, lambda folder: write_home(folder, machine, now=time.time()))

    def _inline(self, files: Mapping[str, str]) -> Path:
        digest = _digest(b"inline", files)

        def fill(folder: Path) -> None:
            repo = folder / REPO
            repo.mkdir()
            _write(repo, files)
            write_history(repo, {p: TreeFile(t.encode()) for p, t in files.items()}, timestamp=_when(digest))

        return self._place(self.root / "inline" / digest[:2] / digest, fill)

    def _overrides(self, env: BuiltEnvironment, base: Path) -> Path:
        """The files of one task over `base`, and a git history of the merged tree."""
        digest = _digest(b"overrides" + env.digest.encode(), env.overrides)

        def fill(folder: Path) -> None:
            repo = folder / REPO
            repo.mkdir()
            _write(repo, env.overrides)
            files = read_tree(base / REPO)
            for path, text in env.overrides.items():
                executable = path in files and files[path].executable
                files[path] = TreeFile(text.encode(), executable)
                (repo / path).chmod(0o755 if executable else 0o644)
            write_history(repo, files, timestamp=_when(digest))

        return self._place(self.root / "overrides" / digest[:2] / digest, fill)

    def _place(self, target: Path, fill: Callable[[Path], None]) -> Path:
        """`target`, made by `fill` in a temporary directory and renamed into place unless it exists."""
        if target.is_dir():
            return target
        folder = self.working_directory()
        try:
            fill(folder)
            give_to_sandbox(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                folder.rename(target)
            except OSError:
                if not target.is_dir():
                    raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return target

    def _sweep(self) -> None:
        """Remove temporary directories that a killed process left behind."""
        limit = time.time() - STALE_SECONDS
        for entry in self._temporary.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if entry.stat().st_mtime < limit:
                    shutil.rmtree(entry, ignore_errors=True)


def read_tree(root: Path) -> dict[str, TreeFile]:
    """Regular files below `root` (not `.git`), as path → content."""
    files: dict[str, TreeFile] = {}
    for folder, names, entries in os.walk(root):
        if Path(folder) == root and ".git" in names:
            names.remove(".git")
        for entry in entries:
            path = Path(folder) / entry
            if path.is_file() and not path.is_symlink():
                executable = bool(path.stat().st_mode & 0o100)
                files[path.relative_to(root).as_posix()] = TreeFile(path.read_bytes(), executable)
    return files


def tree_digest(root: Path, salt: bytes) -> str:
    """SHA-256 over the names, kinds, execute bits and contents of everything below `root`."""
    total = hashlib.sha256(salt)
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix().encode()
        if path.is_symlink():
            body = b"l" + os.readlink(path).encode()
        elif path.is_dir():
            body = b"d"
        else:
            body = b"x" if path.stat().st_mode & 0o100 else b"f"
            body += hashlib.sha256(path.read_bytes()).digest()
        total.update(b"%d:%s%d:%s" % (len(name), name, len(body), body))
    return total.hexdigest()


def _digest(kind: bytes, files: Mapping[str, str]) -> str:
    text = json.dumps(files, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(FORMAT + b"|" + kind + b"|" + text.encode()).hexdigest()


def _when(digest: str) -> int:
    return EPOCH + int(digest[:8], 16) % (200 * 24 * 3600)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())
