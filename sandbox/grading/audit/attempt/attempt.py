"""An attempt as rules see it: what was asked, what was done turn by turn, and what was left behind.

Everything here was written by a policy or a repository. It is read as text, bounded, and never executed.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

from sandbox.grading.audit.attempt import diff, shell
from sandbox.grading.audit.attempt.diff import Block, FileDiff
from sandbox.grading.audit.attempt.evidence import Evidence, excerpt
from sandbox.grading.audit.attempt.examples import Known, known
from sandbox.grading.audit.attempt.paths import is_code, is_program_aside, is_python, is_test, relative
from sandbox.grading.audit.flow import Flow, flows_of
from sandbox.grading.audit.flow.braces import mask as mask_braces
from sandbox.grading.audit.flow.languages import language_of
from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.spec import InlineEnvironment, SuiteVerifier, TaskSpec

MAX_CHARS = 400_000
"""Most characters that are read of one text."""
READERS = frozenset({"cat", "head", "tail", "less", "more", "nl", "strings", "xxd", "od", "hexdump", "sed", "awk", "ls",
                     "tree", "cp", "mv", "diff", "zcat", "unzip", "zipinfo", "tar", "find", "file", "stat", "cd", "bat",
                     "base64", "source", ".", "readlink", "realpath", "rsync", "vim", "nano", "jq", "wc", "sort"})  # fmt: skip
SEARCHERS = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "ack", "zgrep"})
PYTHON = re.compile(r"^(python|python3|pypy3?)(\.\d+)?$")
NUMBERED = re.compile(r"^[ \t]*\d+\|", re.M)
"""What `read_file` puts before each line."""
IMPORTED = re.compile(
    r"^[ \t]*(?:from\s+[\w.]+\s+import\s+[^\n]{1,300}|import\s+[\w., ]{1,300})"
    r"|\b(?:require|import)\s*\(\s*['\"][^'\"\n]{1,200}|\bfrom\s+['\"][^'\"\n]{1,200}",
    re.M,
)
INLINE_TESTS = re.compile(r"^#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\s+)?mod\s", re.M)
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
        return mask_of(self.path, self.text)


@dataclass(frozen=True, slots=True)
class Left:
    """A file as the attempt leaves it: whole where the bundle holds what was there, else its added blocks."""

    path: str
    text: str
    before: str
    """The pristine text; empty for a new file and where it is not known."""
    numbers: tuple[int, ...]
    """The number in the new file of each line of `text`."""
    added: frozenset[int]
    """Numbers of the lines that the attempt added."""


def mask(text: str) -> str:
    """Blank comments and the inside of strings, keeping every offset and line."""
    return STRINGS.sub(_blank, text)


@functools.lru_cache(maxsize=128)
def mask_of(path: str, text: str) -> str:
    """`mask` by the language of the file."""
    language = language_of(path)
    return mask(text) if language is None else mask_braces(text, language)[0]


def _blank(found: re.Match[str]) -> str:
    text = found.group()
    inner = "".join(c if c == "\n" else " " for c in text[1:-1])
    return f"{text[0]}{inner}{text[-1]}" if len(text) > 1 and text[0] in "\"'" else " " * len(text)


MAX_INSTRUCTION = 20_000
"""Characters of an instruction that rules read."""
MAX_WORD = 400
"""Characters of a word of an instruction beyond which it is data; rules do not read it."""


def readable(instruction: str) -> str:
    """What rules read of an instruction: bounded, so that no pattern takes long on one."""
    return re.sub(rf"\S{{{MAX_WORD},}}", " ", instruction[:MAX_INSTRUCTION])


@dataclass(frozen=True)
class Attempt:
    instruction: str
    """Bounded by `readable`."""
    steps: tuple[Step, ...]
    patch: str = ""
    """As `sandbox.grading.patches.patch.render` writes it."""
    skipped: tuple[str, ...] = ()
    """`path: reason` of changes that a patch cannot hold."""
    task: TaskSpec | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "instruction", readable(self.instruction))

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
        return tuple(
            code
            for code in self.added
            if self.is_product(code.path) and code.first_line < self._inline_tests.get(code.path, 10**9)
        )

    @cached_property
    def _inline_tests(self) -> dict[str, int]:
        """Rust files of the attempt → the line where their `#[cfg(test)] mod` begins."""
        found = {}
        for left in self.left:
            if left.path.endswith(".rs") and (head := INLINE_TESTS.search(left.text)):
                index = left.text.count("\n", 0, head.start())
                found[left.path] = left.numbers[index] if index < len(left.numbers) else index + 1
        return found

    @cached_property
    def left(self) -> tuple[Left, ...]:
        """Every file that is code and no test, as the attempt leaves it; deleted and unreadable ones are left out."""
        return tuple(self._left(file) for file in self.files if file.added and self.is_product(file.path))

    def _left(self, file: FileDiff) -> Left:
        added = frozenset(line.number for line in file.added)
        before = "" if file.status == "new" else self.visible.get(file.path)
        if before is not None:
            text = diff.rebuild(before, file) if before else "\n".join(line.text for line in file.added)
            return Left(file.path, text, before, tuple(range(1, text.count("\n") + 2)), added)
        text = "\n".join(textwrap.dedent(block.text) for block in file.blocks if _parses(file.path, block.text))
        numbers = tuple(
            number
            for block in file.blocks
            if _parses(file.path, block.text)
            for number in range(block.first.number, block.first.number + block.text.count("\n") + 1)
        )
        return Left(file.path, text, "", numbers, added)

    def is_product(self, path: str) -> bool:
        """Code that is no test. A file below a folder of tests is product when other product code of the patch imports it."""
        aside = is_test(path) or (is_program_aside(path) and not self._included(path))
        return is_code(path) and (not aside or PurePosixPath(path).stem in self._imported)

    def _included(self, path: str) -> bool:
        """Another file of the patch names this file."""
        name = PurePosixPath(path).name
        return any(name in block.text for file in self.files if file.path != path for block in file.blocks)

    @cached_property
    def _imported(self) -> frozenset[str]:
        """Last parts of the module names that added product code imports."""
        text = "\n".join(
            mask(block.text) if is_python(file.path) else block.text
            for file in self.files
            if is_code(file.path) and not is_test(file.path)
            for block in file.blocks
        )
        names: set[str] = set()
        for found in IMPORTED.finditer(text[:MAX_CHARS]):
            names.update(re.findall(r"\w+", found.group()))
        return frozenset(names)

    @cached_property
    def flows(self) -> tuple[tuple[Left, Flow, bool], ...]:
        """Facts about the files that are left: (file, fact, whether the pristine file has one of the same kind).

        Only what touches an added line, or what the pristine file does not have.
        """
        return tuple(self._flows())

    def _flows(self) -> Iterator[tuple[Left, Flow, bool]]:
        for left in self.left:
            known = Counter(flow.kind for flow in flows_of(left.path, left.before)) if left.before else Counter[str]()
            found = flows_of(left.path, left.text)
            now = Counter(flow.kind for flow in found)
            for flow in found:
                first = left.text.count("\n", 0, flow.start)
                last = left.text.count("\n", 0, max(flow.start, flow.end - 1))
                touched = {left.numbers[i] for i in range(first, last + 1) if i < len(left.numbers)} & left.added
                if touched or now[flow.kind] > known[flow.kind]:
                    yield left, flow, known[flow.kind] > 0

    def at_left(self, left: Left, start: int, end: int) -> Evidence:
        """The place of a span of a file that is left, in the patch where the line was added."""
        index = left.text.count("\n", 0, start)
        number = left.numbers[index] if index < len(left.numbers) else 1
        turn, call = self._writer(left.path, left.text[start:end])
        lines = (line for file in self.files if file.path == left.path for line in file.added)
        offset = next((line.offset for line in lines if line.number == number), 0)
        return Evidence(
            source="patch", field=left.path, line=number, start=offset, end=offset, turn=turn, call=call,
            excerpt=excerpt(left.text, start, end),
        )  # fmt: skip

    def in_patch(self, file: FileDiff, block: Block) -> Evidence:
        start = block.first.offset
        return Evidence(source="patch", field=file.path, line=block.first.number, start=start, end=start)

    # --- what was done ------------------------------------------------------------------------------------------

    def calls(self) -> tuple[tuple[int, int, ToolCall, ToolResult | None], ...]:
        """(turn, index in the turn, call, result) of every call."""
        return self._calls

    @cached_property
    def _calls(self) -> tuple[tuple[int, int, ToolCall, ToolResult | None], ...]:
        return tuple(self._each_call())

    def _each_call(self) -> Iterator[tuple[int, int, ToolCall, ToolResult | None]]:
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
    def examples(self) -> Known:
        """What the task names: values of its examples, tests and reference solution."""
        return known(self.task, self.instruction, self.visible)

    def before(self, path: str) -> str:
        """Code of a file as it was, without strings and comments: from the bundle, else what was read of it before a write."""
        if path in self.visible:
            return mask_of(path, self.visible[path])
        texts = []
        for _, _, call, result in self.calls():
            if call.name in ("write_file", "edit_file", "run_terminal_cmd"):
                text = _argument(call, "path") or _argument(call, "command")
                if PurePosixPath(path).name in text:
                    break
            elif call.name == "read_file" and result is not None and relative(_argument(call, "path")) == path:
                texts.append(mask_of(path, NUMBERED.sub("", result.output[:MAX_CHARS])))
        return "\n".join(texts)

    @cached_property
    def hidden_tests(self) -> frozenset[str]:
        verifier = self.task.verifier if self.task else None
        return frozenset(verifier.test_files) if isinstance(verifier, SuiteVerifier) else frozenset()

    @property
    def said(self) -> Iterator[tuple[int, str]]:
        """(turn, text) of what was said to the user: the last turn, turns without work, and the words of `finish`."""
        for turn, step in enumerate(self.steps):
            if step.text and (
                turn == len(self.steps) - 1 or all(call.name in ("finish", "todo_write") for call in step.calls)
            ):
                yield turn, step.text
        for turn, _, call, _ in self.calls():
            if call.name == "finish":
                for name in call.arguments:
                    if text := _argument(call, name):
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


def _parses(path: str, block: str) -> bool:
    """Whether a block of added lines can be read alone. Only Python needs it."""
    if not is_python(path):
        return True
    try:
        ast.parse(textwrap.dedent(block))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _argument(call: ToolCall, name: str) -> str:
    value: Any = call.arguments.get(name, "")
    return value[:MAX_CHARS] if isinstance(value, str) else ""
