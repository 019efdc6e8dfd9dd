"""An attempt as rules see it: what was asked, what was done turn by turn, and what was left behind.

Everything here was written by a policy or a repository. It is read as text, bounded, and never executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any

from sandbox.grading.audit import diff, shell
from sandbox.grading.audit.base import Evidence, excerpt
from sandbox.grading.audit.diff import Block, FileDiff
from sandbox.grading.audit.paths import is_code, is_python, is_test, relative
from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.spec import InlineEnvironment, SuiteVerifier, TaskSpec

MAX_CHARS = 400_000
"""Most characters that are read of one text."""
READERS = frozenset({"cat", "head", "tail", "less", "more", "nl", "strings", "xxd", "od", "hexdump", "sed", "awk", "ls",
                     "tree", "cp", "mv", "diff", "zcat", "unzip", "zipinfo", "tar", "find", "file", "stat", "cd", "bat",
                     "base64", "source", ".", "readlink", "realpath", "rsync", "vim", "nano", "jq", "wc", "sort"})  # fmt: skip
SEARCHERS = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "ack", "zgrep"})
PYTHON = re.compile(r"^(python|python3|pypy3?)(\.\d+)?$")
STRINGS = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)'
    r"|'''(?:[^'\\]|\\.|'(?!''))*+(?:'''|\Z)"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'(?:[^'\\\n]|\\.)*+'?"
    r"|\#[^\n]*+",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One policy turn: what it said, its calls, and what they returned."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """A shell command of a turn."""

    turn: int
    call: int
    text: str
    command: shell.Command


@dataclass(frozen=True, slots=True)
class Touch:
    """A path that a call read or wrote, relative to the checkout."""

    path: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Code:
    """A piece of code that the attempt wrote or ran."""

    path: str
    text: str
    place: Evidence
    """Where the piece begins; spans are counted from `place.start`."""
    first_line: int = 1

    @property
    def masked(self) -> str:
        """The same text with what is inside strings and comments blanked: offsets stay."""
        return mask(self.text)


def mask(text: str) -> str:
    """Blank comments and the inside of strings, keeping every offset and line."""
    return STRINGS.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    text = found.group()
    inner = "".join(c if c == "\n" else " " for c in text[1:-1])
    return f"{text[0]}{inner}{text[-1]}" if len(text) > 1 and text[0] in "\"'" else " " * len(text)


@dataclass(frozen=True)
class Attempt:
    instruction: str
    steps: tuple[Step, ...]
    patch: str = ""
    """As `sandbox.grading.patch.render` writes it."""
    skipped: tuple[str, ...] = ()
    """`path: reason` of changes that a patch cannot hold."""
    task: TaskSpec | None = field(default=None, repr=False)

    @staticmethod
    def of(task: TaskSpec, steps: Sequence[Step], patch: str, skipped: Sequence[str] = ()) -> Attempt:
        return Attempt(task.instruction, tuple(steps), patch, tuple(skipped), task)

    # --- what was left ------------------------------------------------------------------------------------------

    @cached_property
    def files(self) -> tuple[FileDiff, ...]:
        return tuple(diff.read(self.patch[:MAX_CHARS]))

    @cached_property
    def added(self) -> tuple[Code, ...]:
        """Added code of the patch, a piece for each run of added lines; documents are left out."""
        return tuple(
            Code(file.path, block.text, self.in_patch(file, block), block.first.number)
            for file in self.files
            if is_code(file.path)
            for block in file.blocks
        )

    @cached_property
    def product(self) -> tuple[Code, ...]:
        """Added code that is not a test."""
        return tuple(code for code in self.added if not is_test(code.path))

    def in_patch(self, file: FileDiff, block: Block) -> Evidence:
        start = block.first.offset
        return Evidence(source="patch", field=file.path, line=block.first.number, start=start, end=start)

    # --- what was done ------------------------------------------------------------------------------------------

    def calls(self) -> Iterator[tuple[int, int, ToolCall, ToolResult | None]]:
        """(turn, index in the turn, call, result) of every call."""
        for turn, step in enumerate(self.steps):
            results = {result.call_id: result for result in step.results}
            for index, call in enumerate(step.calls):
                by_place = step.results[index] if index < len(step.results) else None
                yield turn, index, call, results.get(call.id, by_place)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Every simple shell command."""
        return tuple(
            Run(turn, index, text, command)
            for turn, index, call, _ in self.calls()
            if call.name == "run_terminal_cmd" and (text := _argument(call, "command"))
            for command in shell.split(text)
        )

    @cached_property
    def scripts(self) -> tuple[Code, ...]:
        """Python that was run or written on the side: `python -c`, here-documents, files written by calls."""
        return tuple(self._scripts())

    def _scripts(self) -> Iterator[Code]:
        for run in self.runs:
            command = run.command
            bodies = [command.body] if command.body else []
            path = command.targets[0] if command.targets else ""
            if PYTHON.match(command.program) and "-c" in command.arguments:
                bodies += command.arguments[command.arguments.index("-c") + 1 :][:1]
            elif not (PYTHON.match(command.program) or is_python(path)):
                continue
            for body in bodies:
                start = max(command.start, run.text.find(body[:200], command.start))
                yield Code(relative(path), body[:MAX_CHARS], self.in_call(run.turn, run.call, "command", start, start))
        for turn, index, call, _ in self.calls():
            name = {"write_file": "content", "edit_file": "new_string"}.get(call.name)
            if name and is_python(path := _argument(call, "path")):
                yield Code(relative(path), _argument(call, name), self.in_call(turn, index, name, 0, 0))

    @cached_property
    def reads(self) -> tuple[Touch, ...]:
        """Paths that calls looked at."""
        return tuple(self._reads())

    def _reads(self) -> Iterator[Touch]:
        for turn, index, call, _ in self.calls():
            if call.name in ("read_file", "list_dir", "grep") and (path := _argument(call, "path")):
                yield Touch(relative(path), self.in_call(turn, index, "path", 0, len(path)))
        for run in self.runs:
            command = run.command
            operands = command.operands
            if command.program in SEARCHERS:
                operands = operands[1:]
            elif command.program == "find":  # what follows the first option are conditions
                operands = list(takewhile(lambda word: not word.startswith(("-", "(", "!")), command.arguments))
            elif PYTHON.match(command.program) and "-m" in command.arguments[:-2]:
                operands = operands[1:]  # `python3 -m json.tool FILE`
            elif command.program not in READERS:
                operands = []
            for path in (*operands, *command.inputs):
                yield Touch(relative(path), self.in_run(run, path))

    @cached_property
    def writes(self) -> tuple[Touch, ...]:
        """Paths that calls created or changed."""
        return tuple(self._writes())

    def _writes(self) -> Iterator[Touch]:
        for turn, index, call, _ in self.calls():
            if call.name in ("write_file", "edit_file") and (path := _argument(call, "path")):
                yield Touch(relative(path), self.in_call(turn, index, "path", 0, len(path)))
        for run in self.runs:
            command = run.command
            paths = [target for target in command.targets if target not in ("/dev/null", "&1", "&2")]
            operands = command.operands
            match command.program:
                case "tee" | "touch" | "truncate":
                    paths += operands
                case "cp" | "mv" | "ln" | "install" | "rsync":
                    paths += operands[-1:] if len(operands) > 1 else []
                case "sed" | "perl" if any(a.startswith(("-i", "--in-place", "-pi")) for a in command.arguments):
                    paths += operands[-1:]
                case "dd":
                    paths += [word[3:] for word in command.arguments if word.startswith("of=")]
            for path in paths:
                yield Touch(relative(path), self.in_run(run, path))

    @cached_property
    def deletes(self) -> tuple[Touch, ...]:
        """Paths that calls removed, in the order in which they did."""
        found = []
        for turn, index, call, _ in self.calls():
            if call.name == "delete_file" and (path := _argument(call, "path")):
                found.append(Touch(relative(path), self.in_call(turn, index, "path", 0, len(path))))
        for run in self.runs:
            command = run.command
            operands = command.operands
            if command.program == "git" and operands[:1] == ["rm"]:
                operands = operands[1:]
            elif command.program not in ("rm", "unlink", "shred"):
                continue
            found += [Touch(relative(path), self.in_run(run, path)) for path in operands]
        return tuple(found)

    @cached_property
    def created(self) -> frozenset[str]:
        """Paths that the attempt made itself, as far as its calls and the patch show."""
        known = self._known
        made = {file.path for file in self.files if file.status == "new"}
        removed = {file.path for file in self.files if file.status == "deleted"}
        written = {touch.path for touch in self.writes}
        return frozenset(made | {path for path in written if path not in known and path not in removed})

    @property
    def _known(self) -> frozenset[str]:
        """Paths that the bundle or the patch shows to have been there before."""
        listed = {file.path for file in self.files if file.status != "new"}
        return frozenset(listed | self.visible.keys())

    # --- what was known -----------------------------------------------------------------------------------------

    @cached_property
    def visible(self) -> dict[str, str]:
        """Files of the checkout as far as the bundle itself holds them."""
        if self.task is None:
            return {}
        environment = self.task.environment
        return environment.files if isinstance(environment, InlineEnvironment) else environment.overrides

    @cached_property
    def hidden_tests(self) -> frozenset[str]:
        verifier = self.task.verifier if self.task else None
        return frozenset(verifier.test_files) if isinstance(verifier, SuiteVerifier) else frozenset()

    @property
    def said(self) -> Iterator[tuple[int, str]]:
        """(turn, text) of what was said to the user: turns without calls, and the summaries of `finish`."""
        for turn, step in enumerate(self.steps):
            if not step.calls and step.text:
                yield turn, step.text
        for turn, _, call, _ in self.calls():
            if call.name == "finish" and (text := _argument(call, "summary")):
                yield turn, text

    # --- places -------------------------------------------------------------------------------------------------

    def in_call(self, turn: int, call: int, name: str, start: int, end: int) -> Evidence:
        text = _argument(self.steps[turn].calls[call], name)
        return Evidence(
            source="call", turn=turn, call=call, field=name, start=start, end=end, excerpt=excerpt(text, start, end)
        )

    def in_run(self, run: Run, part: str = "") -> Evidence:
        """The place of a command, or of a word in it."""
        command = run.command
        start = run.text.find(part, command.start) if part else command.start
        start = command.start if start < 0 else start
        return self.in_call(run.turn, run.call, "command", start, start + len(part) if part else command.end)

    def at(self, code: Code, start: int, end: int) -> Evidence:
        """The place of a span in a piece of code. Added code is also traced to the turn that wrote it."""
        text = excerpt(code.text, start, end)
        if code.place.source != "patch":
            place = code.place
            return place.model_copy(update={"start": place.start + start, "end": place.start + end, "excerpt": text})
        before = code.text.count("\n", 0, start)
        turn, call = self._writer(code.path, code.text[start:end])
        offset = code.place.start + start + before  # each line of a patch has its mark before it
        end = offset + (end - start) + code.text.count("\n", start, end)
        changes = {"line": code.first_line + before, "start": offset, "end": end}
        return code.place.model_copy(update={**changes, "excerpt": text, "turn": turn, "call": call})

    def _writer(self, path: str, text: str) -> tuple[int | None, int | None]:
        """The last call that could have written `text` to `path`."""
        line = text.strip().split("\n", 1)[0]
        found: tuple[int | None, int | None] = (None, None)
        for turn, index, call, _ in self.calls():
            if call.name in ("write_file", "edit_file") and relative(_argument(call, "path")) != path:
                continue
            if call.name in ("write_file", "edit_file", "run_terminal_cmd") and any(
                line in value
                for name, value in call.arguments.items()
                if name != "old_string" and isinstance(value, str)
            ):
                found = (turn, index)
        return found


def _argument(call: ToolCall, name: str) -> str:
    value: Any = call.arguments.get(name, "")
    return value[:MAX_CHARS] if isinstance(value, str) else ""
