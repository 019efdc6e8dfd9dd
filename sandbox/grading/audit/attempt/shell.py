"""Reading bash commands well enough to tell a command from text that mentions one. Nothing is executed.

A command line becomes simple commands: words without their quotes, redirections, a here-document's body. Wrappers
(`sudo`, `env X=1`, `timeout 5`, `bash -c '…'`, `$(…)`) are looked through. What does not parse is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_CHARS = 20_000
"""Longest command line that is taken apart; of a longer one, its head."""
MAX_DEPTH = 3

TOKEN = re.compile(
    r"""
    (?P<space>(?:[ \t]|\\\n)+)
  | (?P<redirect>\d*(?:<<<|<<-?|>>|>\||>&|<&|>|<)|&>>?)
  | (?P<operator>\n|&&|\|\||;;|[;|&()])
  | (?P<word>(?:[^\s'"\\;|&()<>`$]|\\.|'[^']*+'|"(?:[^"\\]|\\.)*+"|\$'(?:[^'\\]|\\.)*+'
      |\$\((?:[^()]|\([^()]*+\))*+\)|\$\{[^}]*+\}|`[^`]*+`|\$)++)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
QUOTED = re.compile(r"""'([^']*+)'|"((?:[^"\\]|\\.)*+)"|\\(.)""", re.DOTALL)
SUBSTITUTION = re.compile(r"\$\(((?:[^()]|\([^()]*+\))++)\)|`([^`]++)`")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
MAX_VALUES = 50
WRAPPERS = frozenset({"sudo", "env", "command", "builtin", "exec", "nohup", "time", "nice", "setsid", "stdbuf", "xargs",
                      "timeout", "ionice", "if", "then", "else", "elif", "do", "while", "until", "!", "{"})  # fmt: skip
SHELLS = frozenset({"bash", "sh", "dash", "zsh"})
WITH_VALUE = frozenset({"-n", "-I", "-u", "-s", "-k", "-o", "-e", "-i", "-P", "-d"})


@dataclass(slots=True)
class Command:
    """A simple command. `words[0]` is the program's name without its directory."""

    words: list[str]
    start: int
    end: int
    assignments: list[str] = field(default_factory=list)
    wrappers: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    """Files that output is redirected to."""
    inputs: list[str] = field(default_factory=list)
    body: str = ""
    """A here-document or here-string."""

    @property
    def program(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def arguments(self) -> list[str]:
        return self.words[1:]

    @property
    def operands(self) -> list[str]:
        """Arguments that are not options."""
        return [word for word in self.arguments if not word.startswith("-")]

    @property
    def line(self) -> str:
        return " ".join([*self.assignments, *self.words])


def unquote(word: str) -> str:
    return QUOTED.sub(lambda m: next(part for part in m.groups() if part is not None), word.removeprefix("$'"))


def split(text: str, depth: int = 0) -> list[Command]:
    """The simple commands of a command line, in order; those inside substitutions and `bash -c` follow theirs."""
    text = text[:MAX_CHARS]
    found: list[Command] = []
    known: dict[str, list[str]] = {}
    for command in _simple(text):
        _fill_in(command, known)
        inner = [part for word in _raw(text, command) for pair in SUBSTITUTION.findall(word) for part in pair if part]
        _unwrap(command)
        if command.program in SHELLS:
            arguments = command.arguments
            flags = [i for i, word in enumerate(arguments) if re.fullmatch(r"-\w*c", word)]
            inner += arguments[flags[0] + 1 : flags[0] + 2] if flags else [command.body]
        elif command.program == "eval":
            inner.append(" ".join(command.arguments))
        if command.words or command.assignments or command.targets or command.wrappers:
            found.append(command)
        if depth < MAX_DEPTH:
            for nested in (c for part in inner if part.strip() for c in split(part, depth + 1)):
                nested.start, nested.end = command.start, command.end
                found.append(nested)
    return found


def _fill_in(command: Command, known: dict[str, list[str]]) -> None:
    """Put the values of variables in that the text itself gives: `for name in a b`, `name=a`. Several words, if several."""
    words = command.words
    command.words = [word for item in words for word in _values(item, known)]
    command.targets = [word for item in command.targets for word in _values(item, known)]
    if words[:1] == ["for"] and words[2:3] == ["in"]:
        known[words[1]] = command.words[3:][:MAX_VALUES]
    for assignment in command.assignments:
        name, _, value = assignment.partition("=")
        if "$(" not in value and "`" not in value:
            known[name] = _values(value, known)


def _values(word: str, known: dict[str, list[str]]) -> list[str]:
    """The words that `word` stands for; itself where it names no variable that is known."""
    found = VARIABLE.search(word)
    values = known.get(found[1] or found[2]) if found else None
    if found is None or not values:
        return [word]
    return [f"{word[: found.start()]}{value}{word[found.end() :]}" for value in values]


def _raw(text: str, command: Command) -> list[str]:
    return [text[command.start : command.end]]


def _simple(text: str) -> Iterator[Command]:
    """Commands between operators, with quotes taken off; here-documents are attached to theirs."""
    command = Command([], 0, 0)
    waiting: list[tuple[Command, str, bool]] = []
    redirect = ""
    position = 0
    while position < len(text):
        token = TOKEN.match(text, position)
        assert token is not None, "the last alternative takes any character"
        kind, value, start, position = token.lastgroup, token.group(), token.start(), token.end()
        if kind == "space":
            continue
        if kind == "redirect":
            redirect = value.lstrip("0123456789")
        elif kind == "word":
            if value.startswith("#") and not redirect:
                end = text.find("\n", start)
                position = len(text) if end < 0 else end
                continue
            if not (command.words or command.targets or command.assignments):
                command.start = start
            command.end = position
            word = unquote(value)
            if redirect:
                _redirect(command, redirect, word, quoted=value != word, waiting=waiting)
                redirect = ""
            elif not command.words and ASSIGNMENT.match(value):
                command.assignments.append(word)
            else:
                command.words.append(word)
        elif kind == "operator":
            if value == "\n" and waiting:
                position = _read_bodies(text, position, waiting)
            if command.words or command.assignments or command.targets:
                yield command
            command, redirect = Command([], position, position), ""
    if command.words or command.assignments or command.targets:
        yield command


def _redirect(
    command: Command, operator: str, word: str, *, quoted: bool, waiting: list[tuple[Command, str, bool]]
) -> None:
    if operator in ("<<", "<<-"):
        waiting.append((command, word, operator == "<<-"))
    elif operator == "<<<":
        command.body = word
    elif operator in ("<", "<&"):
        command.inputs.append(word)
    elif not (operator == ">&" and word.isdigit()):
        command.targets.append(word)


def _read_bodies(text: str, position: int, waiting: list[tuple[Command, str, bool]]) -> int:
    """Attach the here-documents that begin at `position`; returns where they end."""
    for command, word, tabs in waiting:
        lines: list[str] = []
        while position < len(text):
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            line = text[position:end]
            position = end + 1
            if (line.lstrip("\t") if tabs else line) == word:
                break
            lines.append(line)
        command.body = "\n".join(lines)
        command.end = min(position, len(text))
    waiting.clear()
    return min(position, len(text))


def _unwrap(command: Command) -> None:
    """Take wrappers off the front: `sudo env X=1 timeout 5 git log` is `git log`."""
    words = command.words
    while words and (words[0].rsplit("/", 1)[-1] in WRAPPERS):
        name = words.pop(0).rsplit("/", 1)[-1]
        command.wrappers.append(name)
        while words and words[0].startswith("-"):
            option = words.pop(0)
            if option in WITH_VALUE and words:
                words.pop(0)
        if name == "timeout" and words:
            words.pop(0)
        while words and ASSIGNMENT.match(words[0]):
            command.assignments.append(words.pop(0))
    if words:
        words[0] = words[0].rsplit("/", 1)[-1] or words[0]
