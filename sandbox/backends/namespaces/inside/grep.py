"""Regular-expression search in a forked child: a pattern that backtracks for ever costs CPU seconds, not the agent."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import resource
import signal
import stat
import time
from collections.abc import Iterator

from sandbox.backends.namespaces.inside.loop import Loop
from sandbox.backends.namespaces.inside.protocol import MAX_TEXT_CHARS

MAX_SECONDS = 25.0  # a busy machine is not the pattern's fault
MAX_CPU_SECONDS = 2
MAX_FILE_BYTES = 2 << 20
MAX_LINE = 400
MAX_ANSWER_BYTES = 8 << 20
MAX_AT_ONCE = 4
MAX_WAITING = 20
SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]|[^ -~]")
"""What makes a pattern more than plain text."""
SKIPPED_FOLDERS = {".git", ".hg", ".svn", "__pycache__", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache"}


class Search:
    def __init__(self, number: int, pid: int, fd: int) -> None:
        self.number, self.pid, self.fd = number, pid, fd
        self.end = time.monotonic() + MAX_SECONDS
        self.answer = bytearray()
        self.reaped = False


class Searches:
    """The searches that run now, and those that wait for their turn."""

    def __init__(self, loop: Loop, workdir: str) -> None:
        self._loop, self._workdir = loop, workdir
        self._by_number: dict[int, Search] = {}
        self._waiting: list[tuple[int, dict]] = []

    def running(self) -> set[int]:
        """Pids of our own children that do the searching."""
        return {search.pid for search in self._by_number.values() if not search.reaped}

    def reaped(self, pid: int) -> None:
        """A child of pid 1 was reaped; if it was a searcher, its pid means nothing any more."""
        for search in self._by_number.values():
            if search.pid == pid:
                search.reaped = True

    def deadline(self) -> float | None:
        return min((search.end for search in self._by_number.values()), default=None)

    def start(self, number: int, header: dict) -> None:
        if len(self._by_number) >= MAX_AT_ONCE:
            if len(self._waiting) >= MAX_WAITING:
                return self._loop.reply(number, {"error": "path", "text": "too many searches at once"})
            return self._waiting.append((number, header))
        ends: tuple[int, ...] = ()
        try:
            reader, writer = ends = os.pipe()
            pid = os.fork()
        except OSError as error:
            for fd in ends:
                os.close(fd)
            return self._loop.reply(number, {"error": "path", "text": f"cannot search now: {error.strerror}"})
        if pid == 0:
            _child(writer, self._workdir, header)
        os.close(writer)
        os.set_blocking(reader, False)
        search = Search(number, pid, reader)
        self._by_number[number] = search
        self._loop.watch(reader, lambda: self._read(search))

    def expire(self, now: float) -> None:
        for search in [found for found in self._by_number.values() if found.end <= now]:
            self._finish(search)

    def _read(self, search: Search) -> None:
        try:
            data = os.read(search.fd, 1 << 18)
        except BlockingIOError:
            return
        search.answer += data
        if not data or len(search.answer) > MAX_ANSWER_BYTES:
            self._finish(search)

    def _finish(self, search: Search) -> None:
        if not search.reaped:
            os.kill(search.pid, signal.SIGKILL)
            os.waitpid(search.pid, 0)
        del self._by_number[search.number]
        self._loop.forget(search.fd)
        try:
            answer = json.loads(search.answer)
        except ValueError:  # cut short by a limit
            answer = {"error": "value", "text": "the search took too long; use a simpler pattern or a smaller path"}
        matches = json.dumps(answer.pop("matches", [])).encode()
        self._loop.reply(search.number, answer, matches)
        if self._waiting:
            self.start(*self._waiting.pop(0))


def _child(writer: int, workdir: str, header: dict) -> None:
    """Search and answer on `writer`; never returns, whatever the pattern and the tree do."""
    try:
        _answer(writer, workdir, header)
    finally:
        os._exit(0)


def _answer(writer: int, workdir: str, header: dict) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(writer, 3, inheritable=False)
    os.closerange(4, 4096)
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
    try:
        pattern = re.compile(header["pattern"])
        root = os.path.normpath(os.path.join(workdir, header["path"]))
        matches = list(_limited(find(pattern, root, header["glob"]), header["max_matches"]))
        named = [(os.path.relpath(path, workdir), line, text) for path, line, text in matches]
        answer: dict = {"matches": named}
    except (re.error, OverflowError, RecursionError) as error:
        answer = {"error": "value", "text": f"not a regular expression: {error}"}
    except FileNotFoundError:
        answer = {"error": "path", "text": f"no such file: {header['path']}"}
    except OSError as error:
        answer = {"error": "path", "text": f"{error.strerror}: {header['path']}"}
    if "text" in answer:
        answer["text"] = answer["text"][:MAX_TEXT_CHARS]
    data = memoryview(json.dumps(answer).encode())
    while data:
        data = data[os.write(3, data) :]


def _limited(matches: Iterator, count: int) -> Iterator:
    for _, match in zip(range(count), matches, strict=False):
        yield match


def find(pattern: re.Pattern, root: str, glob: str | None) -> Iterator[tuple[str, int, str]]:
    """(path, line number, line) of every match at or below `root`, in path order."""
    proc = os.stat("/proc").st_dev
    plain = pattern.pattern.encode() if not SPECIAL.search(pattern.pattern) else b""
    for path in _files(root, proc):
        if glob is None or _matches(os.path.relpath(path, root) if path != root else os.path.basename(path), glob):
            yield from _lines(pattern, plain, path, proc)


def _files(root: str, proc: int) -> Iterator[str]:
    found = os.stat(root)
    if found.st_dev == proc:
        raise FileNotFoundError
    if not stat.S_ISDIR(found.st_mode):
        yield root
        return
    with os.scandir(root) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        try:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED_FOLDERS:
                    yield from _files(entry.path, proc)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path
        except OSError:  # removed or closed to us meanwhile
            continue


def _matches(relative: str, glob: str) -> bool:
    if fnmatch.fnmatchcase(relative, glob) or fnmatch.fnmatchcase(os.path.basename(relative), glob):
        return True
    return glob.startswith("**/") and fnmatch.fnmatchcase(relative, glob[3:])


def _lines(pattern: re.Pattern, plain: bytes, path: str, proc: int) -> Iterator[tuple[str, int, str]]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_dev == proc or found.st_size > MAX_FILE_BYTES:
            return
        content = os.read(fd, MAX_FILE_BYTES)
    finally:
        os.close(fd)
    if b"\0" in content[:8192] or (plain and plain not in content):
        return
    for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
        text = line.rstrip("\r")
        if pattern.search(text):
            yield path, number, text[:MAX_LINE]
