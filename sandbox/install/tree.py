"""The files of an environment while it is built: a checkout laid out, and a sandbox's changes merged into it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from sandbox.backends.namespaces.layers import is_opaque, is_whiteout
from sandbox.repositories.artefacts import CACHES, PRODUCTS
from sandbox.repositories.history import TreeFile
from sandbox.tasks.environments import REPO

ENDINGS = (".egg-info", ".dist-info", *PRODUCTS)


def lay_out(tree: Path, files: Mapping[str, TreeFile]) -> None:
    """Write a checkout below `tree`, as `repo/`."""
    for path, file in files.items():
        target = tree / REPO / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(0o755 if file.executable else 0o644)


def merge(layer: Path, tree: Path) -> None:
    """Apply a snapshot's layer (changes, removals, replaced directories) to the directory `tree`."""
    for entry in sorted(os.scandir(layer), key=lambda found: found.name):
        target, found = tree / entry.name, entry.stat(follow_symlinks=False)
        folder = entry.is_dir(follow_symlinks=False)
        if not folder or not target.is_dir() or target.is_symlink() or _opaque(Path(entry.path)):
            remove(target)
        if is_whiteout(found):
            continue
        if folder:
            target.mkdir(exist_ok=True)
            merge(Path(entry.path), target)
            target.chmod(found.st_mode & 0o777 | 0o700)
        elif entry.is_symlink():
            target.symlink_to(os.readlink(entry.path))
        elif entry.is_file(follow_symlinks=False):
            shutil.copy2(entry.path, target)
            target.chmod(found.st_mode & 0o777 | 0o600)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def scrub(tree: Path, *, homes: tuple[str, ...] = ()) -> None:
    """Take out what installing leaves and no environment needs: caches and products in the checkout, `homes` beside it."""
    for name in homes:
        remove(tree / name)
    repo = tree / REPO
    for folder, names, entries in os.walk(repo):
        for name in list(names):
            if name in CACHES or name == ".git" or name.endswith(ENDINGS):
                shutil.rmtree(Path(folder) / name)
                names.remove(name)
        for name in entries:
            if name in CACHES or name.endswith(ENDINGS):
                (Path(folder) / name).unlink()
    for name in ("build", "dist", "PKG-INFO"):
        remove(repo / name)


def size_of(tree: Path) -> int:
    """Bytes of regular files below `tree`."""
    total = 0
    for folder, _, entries in os.walk(tree):
        total += sum((Path(folder) / name).lstat().st_size for name in entries)
    return total


def _opaque(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return is_opaque(descriptor)
    finally:
        os.close(descriptor)
