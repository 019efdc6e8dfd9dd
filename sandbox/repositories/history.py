"""A git repository with one commit, written directly: no process is started and nothing of the tree is executed.

A checkout in a sandbox has the history a user's would have, as one fresh commit: no older state of a file can be
looked up in it. Formats: git's loose objects and index version 2.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

AUTHOR = "Robin Marsh <robin@workstation>"
BRANCH = "main"
MESSAGE = "Import current state"
REGULAR, EXECUTABLE, DIRECTORY = 0o100644, 0o100755, 0o040000

CONFIG = """[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
"""


@dataclass(frozen=True, slots=True)
class TreeFile:
    content: bytes
    executable: bool = False


def write_history(repo: Path, files: Mapping[str, TreeFile], *, timestamp: int) -> str:
    """Write `repo/.git` with one commit of `files` (path below the repository → content); returns the commit id.

    `timestamp` is in seconds since the epoch; the same files and timestamp give the same commit.
    """
    git = repo / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "tags").mkdir()
    (git / "objects" / "info").mkdir(parents=True)
    (git / "objects" / "pack").mkdir()
    (git / "info").mkdir()
    entries = [
        (path, EXECUTABLE if file.executable else REGULAR, _store(git, b"blob", file.content), len(file.content))
        for path, file in sorted(files.items(), key=lambda item: item[0].encode())
    ]
    tree = _write_tree(git, [(path.split("/"), mode, sha) for path, mode, sha, _ in entries])
    who = f"{AUTHOR} {timestamp} +0000"
    body = f"tree {tree.hex()}\nauthor {who}\ncommitter {who}\n\n{MESSAGE}\n"
    commit = _store(git, b"commit", body.encode()).hex()
    (git / "HEAD").write_text(f"ref: refs/heads/{BRANCH}\n")
    (git / "config").write_text(CONFIG)
    (git / "info" / "exclude").write_text("")
    (git / "refs" / "heads" / BRANCH).write_text(f"{commit}\n")
    (git / "logs" / "refs" / "heads").mkdir(parents=True)
    entry = f"{'0' * 40} {commit} {who}\tcommit (initial): {MESSAGE}\n"
    for log in (git / "logs" / "HEAD", git / "logs" / "refs" / "heads" / BRANCH):
        log.write_text(entry)
    (git / "index").write_bytes(_index(entries))
    return commit


def _store(git: Path, kind: bytes, body: bytes) -> bytes:
    """Write a loose object; returns its id (20 bytes)."""
    data = kind + b" %d\0" % len(body) + body
    sha = hashlib.sha1(data, usedforsecurity=False)
    name = sha.hexdigest()
    folder = git / "objects" / name[:2]
    folder.mkdir(exist_ok=True)
    target = folder / name[2:]
    if not target.exists():
        target.write_bytes(zlib.compress(data, 1))
        target.chmod(0o444)
    return sha.digest()


def _write_tree(git: Path, entries: list[tuple[list[str], int, bytes]]) -> bytes:
    """Write the tree objects of (path parts, mode, blob id) entries; returns the id of the top tree."""
    folders: dict[str, list[tuple[list[str], int, bytes]]] = {}
    rows: list[tuple[bytes, int, bytes]] = []
    for parts, mode, sha in entries:
        if len(parts) == 1:
            rows.append((parts[0].encode(), mode, sha))
        else:
            folders.setdefault(parts[0], []).append((parts[1:], mode, sha))
    rows.extend((name.encode(), DIRECTORY, _write_tree(git, inner)) for name, inner in folders.items())
    rows.sort(key=lambda row: row[0] + (b"/" if row[1] == DIRECTORY else b""))
    return _store(git, b"tree", b"".join(b"%o %s\0%s" % (mode, name, sha) for name, mode, sha in rows))


def _index(entries: list[tuple[str, int, bytes, int]]) -> bytes:
    """The index of (path, mode, blob id, size) entries; file times are 0, so git compares contents once."""
    out = bytearray(struct.pack(">4sII", b"DIRC", 2, len(entries)))
    for path, mode, sha, size in entries:
        name = path.encode()
        entry = struct.pack(">10I20sH", 0, 0, 0, 0, 0, 0, mode, 0, 0, size, sha, min(len(name), 0xFFF)) + name
        out += entry + b"\0" * (8 - len(entry) % 8)
    return bytes(out + hashlib.sha1(out, usedforsecurity=False).digest())
