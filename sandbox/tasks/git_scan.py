"""Looking through a `.git` folder for more than one fresh commit, without git: nothing of the repository is executed."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

MAX_OBJECT_BYTES = 64 << 20
MAX_TOTAL_BYTES = 1 << 30
OBJECT = re.compile(r"objects/([0-9a-f]{2})/([0-9a-f]{38})")
HEAD = re.compile(r"ref: (refs/heads/[\w./-]+)\n")
HARMLESS = re.compile(r"HEAD|config|description|index|info/exclude|hooks/[\w.-]+\.sample|logs/.*|refs/.*|objects/.*")
COMMIT_TREE = re.compile(rb"tree ([0-9a-f]{40})\n")


class _Unreadable(ValueError):
    pass


def scan_git(files: Mapping[str, Path], forbidden: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """(entry, why) for everything in a `.git` folder beyond one commit of one branch, its reflog and the index.

    `files` maps paths below `.git` to files; `forbidden` are ids of blobs that must not be there at all.
    """
    for entry, file in files.items():
        if file.is_symlink():
            yield entry, "a link inside the repository's data"
        elif not HARMLESS.fullmatch(entry):
            yield entry, "not part of a fresh repository (another head, stash, hook, worktree or module)"
        elif entry.startswith("objects/") and not OBJECT.fullmatch(entry):
            yield entry, "packed or borrowed objects"
        elif entry.startswith("logs/") and file.read_bytes().count(b"\n") > 1:
            yield entry, "a reflog of more than one entry"
        elif entry == "config" and b"[remote" in file.read_bytes():
            yield entry, "a remote: where the fixed version is"
    objects = {match[1] + match[2]: file for entry, file in files.items() if (match := OBJECT.fullmatch(entry))}
    for blob in sorted(forbidden & objects.keys()):
        yield f"objects/{blob[:2]}/{blob[2:]}", "a file of the oracle"
    refs = {entry: file for entry, file in files.items() if entry.startswith("refs/") and not file.is_symlink()}
    try:
        yield from _reachable(files, refs, objects)
    except _Unreadable as error:
        yield "objects", f"cannot be read: {error}"


def _reachable(
    files: Mapping[str, Path], refs: Mapping[str, Path], objects: Mapping[str, Path]
) -> Iterator[tuple[str, str]]:
    head = HEAD.fullmatch(files["HEAD"].read_text("utf-8", "replace")) if "HEAD" in files else None
    if head is None or set(refs) != {head[1]}:
        others = sorted(set(refs) - ({head[1]} if head else set()))
        yield (others[0] if others else "HEAD"), "not the one branch of a fresh repository"
        return
    reader = _Reader(objects)
    commit = refs[head[1]].read_text("utf-8", "replace").strip()
    kind, body = reader.read(commit)
    tree = COMMIT_TREE.match(body)
    if kind != b"commit" or tree is None:
        raise _Unreadable(f"{commit[:12]} is no commit")
    if b"\nparent " in body.split(b"\n\n", 1)[0]:
        yield head[1], "a commit with a parent: older states can be looked up"
    wanted = {commit, *reader.tree(tree[1].decode())}
    for extra in sorted(objects.keys() - wanted):
        yield f"objects/{extra[:2]}/{extra[2:]}", "an object that the one commit does not hold"


class _Reader:
    """Loose objects, unpacked within bounds."""

    def __init__(self, objects: Mapping[str, Path]) -> None:
        self._objects, self._total = objects, 0

    def read(self, name: str) -> tuple[bytes, bytes]:
        """(kind, content). Raises _Unreadable."""
        if name not in self._objects:
            raise _Unreadable(f"object {name[:12]} is missing")
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(self._objects[name].read_bytes(), MAX_OBJECT_BYTES)
        except zlib.error as error:
            raise _Unreadable(f"object {name[:12]} is damaged: {error}") from None
        self._total += len(data)
        if unpacker.unconsumed_tail or self._total > MAX_TOTAL_BYTES:
            raise _Unreadable(f"object {name[:12]} unpacks to more than is read")
        if hashlib.sha1(data, usedforsecurity=False).hexdigest() != name:
            raise _Unreadable(f"object {name[:12]} has another content than its name says")
        head, _, body = data.partition(b"\0")
        return head.partition(b" ")[0], body

    def tree(self, name: str) -> set[str]:
        """Ids of the tree and all that it holds; blobs only have to be there."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            current = waiting.pop()
            if current in found:
                continue
            found.add(current)
            kind, body = self.read(current)
            if kind != b"tree":
                raise _Unreadable(f"{current[:12]} is no tree")
            position = 0
            while position < len(body):
                end = body.find(b"\0", position)
                if end < 0 or end + 21 > len(body):
                    raise _Unreadable(f"tree {current[:12]} ends early")
                mode, child = body[position:end].partition(b" ")[0], body[end + 1 : end + 21].hex()
                if mode == b"40000":
                    waiting.append(child)
                else:
                    found.add(child)
                position = end + 21
        return found
