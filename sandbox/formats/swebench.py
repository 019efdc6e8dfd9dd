"""SWE-bench's rows, and those of its relatives: lists as JSON strings, a patch that is the bug, other names of columns.

A row names a repository and a commit; what lies there comes from outside as a checkout. Patches are parsed strictly and
applied exactly; no tool is run.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from sandbox.backends.base import FileChange, Patch
from sandbox.formats.base import FormatRefused, Losses, json_object
from sandbox.formats.diffs import PatchRefused, parse_diff
from sandbox.grading.patches.patch import render
from sandbox.repositories.history import TreeFile
from sandbox.tasks.spec import Environment, InlineEnvironment, PytestVerifier, TaskSpec

Variant = Literal["swe-bench", "swe-smith", "swe-bench-pro"]
Read = Callable[[str], TreeFile | None]
LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS", "selected_test_files_to_run")
KNOWN = (
    "repo", "instance_id", "base_commit", "patch", "test_patch", "problem_statement", "hints_text", "created_at",
    "version", "environment_setup_commit", *LISTS,
)  # fmt: skip


@dataclass(slots=True)
class Row:
    """One instance, with its lists as lists; `extra` keeps every column that has no place here."""

    repo: str
    instance_id: str
    base_commit: str
    patch: str
    problem_statement: str
    variant: Variant
    test_patch: str = ""
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    """Column → its name in the row it was read from, where that differs."""

    def dump(self) -> dict[str, Any]:
        """The row as it is published: lists are JSON strings."""
        made: dict[str, Any] = {
            "repo": self.repo, "instance_id": self.instance_id, "base_commit": self.base_commit, "patch": self.patch,
            "test_patch": self.test_patch, "problem_statement": self.problem_statement,
            "FAIL_TO_PASS": json.dumps(self.fail_to_pass), "PASS_TO_PASS": json.dumps(self.pass_to_pass), **self.extra,
        }  # fmt: skip
        return {self.spelled.get(name, name): value for name, value in made.items()}


def load(text: str) -> list[Row]:
    """Rows of a JSONL document. Raises FormatRefused with the line and the column."""
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            rows.append(row_of(json_object(line, f"line {number}"), f"line {number}"))
    if not rows:
        raise FormatRefused("the document holds no row")
    seen: set[str] = set()
    for row in rows:
        if row.instance_id in seen:
            raise FormatRefused(f"instance {row.instance_id!r} is there twice")
        seen.add(row.instance_id)
    return rows


def row_of(value: Mapping[str, Any], where: str = "row") -> Row:
    """One row of any variant. Raises FormatRefused with the column."""
    canonical = {name.lower(): name for name in KNOWN}
    spelled = {canonical[name.lower()]: name for name in value if name.lower() in canonical and name not in KNOWN}
    columns = {canonical.get(name.lower(), name): content for name, content in value.items()}
    variant = _variant(columns)
    wanted = ["instance_id", "patch", "FAIL_TO_PASS", "problem_statement", "repo"]
    if missing := [name for name in wanted if name not in columns]:
        raise FormatRefused(f"{where} has no column {missing[0]}", remedy=f"Its columns are {', '.join(sorted(value))}")
    for name in (*wanted, "base_commit", "test_patch"):
        if name not in LISTS and not isinstance(columns.get(name, ""), str | None):
            raise FormatRefused(f"{where}: {name} is a {type(columns[name]).__name__}, not text")
    used = {*wanted, "base_commit", "test_patch", "PASS_TO_PASS"}
    return Row(
        repo=columns["repo"], instance_id=columns["instance_id"], base_commit=columns.get("base_commit") or "",
        patch=columns["patch"], test_patch=columns.get("test_patch") or "", variant=variant,
        problem_statement=columns["problem_statement"], spelled=spelled,
        fail_to_pass=names(columns["FAIL_TO_PASS"], f"{where}: FAIL_TO_PASS"),
        pass_to_pass=names(columns.get("PASS_TO_PASS", "[]"), f"{where}: PASS_TO_PASS"),
        extra={name: content for name, content in columns.items() if name not in used},
    )  # fmt: skip


def _variant(columns: Mapping[str, Any]) -> Variant:
    if "selected_test_files_to_run" in columns or "before_repo_set_cmd" in columns:
        return "swe-bench-pro"
    # SWE-smith: the patch is the bug, and no test patch exists.
    return "swe-smith" if "image_name" in columns and "test_patch" not in columns else "swe-bench"


def names(value: Any, where: str) -> tuple[str, ...]:
    """Test ids: a list, a list as a JSON string, or as Python's (SWE-bench Pro). Ids are kept whole, spaces and all."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                raise FormatRefused(f"{where} is neither a list nor a list as a string: {value[:60]!r}") from None
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise FormatRefused(f"{where} is not a list of names")
    return tuple(value)


def to_task(row: Row, environment: Environment, read: Read) -> tuple[TaskSpec, Losses]:
    """The row over a checkout of its commit, which `read` gives file by file. Raises FormatRefused.

    In SWE-smith's rows the checkout is whole and the patch breaks it: the task begins with the patch applied.
    """
    losses = Losses()
    for name in row.extra:
        losses.add(name, "a task has no place for this column")
    patch = _texts(_parsed(row.patch, read, row, "patch"), row)
    tests = _texts(_parsed(row.test_patch, read, row, "test_patch"), row) if row.test_patch else {}
    files = {test_id.split("::", 1)[0] for test_id in (*row.fail_to_pass, *row.pass_to_pass) if "::" in test_id}
    for path in sorted(files - tests.keys()):
        file = read(path)
        if file is not None:
            tests[path] = file.content.decode("utf-8", "replace")
    if not files or files - tests.keys():
        lost = sorted(files - tests.keys())[0] if files else row.fail_to_pass[0] if row.fail_to_pass else "none"
        raise FormatRefused(
            f"{row.instance_id}: its tests are not named as pytest does, or their file is missing: {lost}",
            remedy="Rows whose tests are named `path::test` can be imported",
        )
    start = dict(environment.files if isinstance(environment, InlineEnvironment) else environment.overrides)
    if row.variant == "swe-smith":
        gold = {}
        for path in patch:
            whole = read(path)
            if whole is None:
                raise FormatRefused(
                    f"{row.instance_id}: the bug adds {path}", remedy="An oracle here cannot remove files"
                )
            gold[path] = whole.content.decode("utf-8", "replace")
        start |= patch
    else:
        gold = patch
    field_name = "files" if isinstance(environment, InlineEnvironment) else "overrides"
    try:
        return TaskSpec(
            id=f"swe-{row.instance_id}".lower().replace("__", "-").replace("/", "-")[:128],
            source="swe-bench", category="debug", instruction=row.problem_statement,
            environment=environment.model_copy(update={field_name: start}),
            verifier=PytestVerifier(
                test_files=tests, fail_to_pass=row.fail_to_pass, pass_to_pass=row.pass_to_pass, timeout_seconds=1800.0
            ),
            gold=gold, protected=tuple(sorted(tests)), family=f"{row.repo}@{row.base_commit}"[:200],
        ), losses  # fmt: skip
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        raise FormatRefused(f"{row.instance_id}: {'.'.join(map(str, found['loc']))}: {found['msg']}") from error


def _parsed(diff: str, read: Read, row: Row, column: str) -> Patch:
    try:
        return parse_diff(diff.encode(), read)
    except PatchRefused as error:
        raise FormatRefused(f"{row.instance_id}: {column}: {error}") from error


def _texts(patch: Patch, row: Row) -> dict[str, str]:
    made = {}
    for change in patch.changes:
        if change.content is None:
            raise FormatRefused(
                f"{row.instance_id}: {change.path} is deleted", remedy="An oracle here cannot remove files"
            )
        try:
            made[change.path] = change.content.decode()
        except UnicodeDecodeError:
            raise FormatRefused(f"{row.instance_id}: {change.path} is not UTF-8") from None
    return made


def export(task: TaskSpec, read: Read) -> tuple[Row, Losses]:
    """A task as a row; `read` gives the checkout as the task begins. Raises FormatRefused for other verifiers."""
    losses = Losses()
    losses.add("environment", "a row names a repository and a commit; the checkout itself is not carried")
    verifier = task.verifier
    if not isinstance(verifier, PytestVerifier):
        raise FormatRefused(f"task {task.id} is verified by {verifier.kind}", remedy="SWE-bench's rows name tests")
    for name in ("protected", "family", "category"):
        if getattr(task, name):
            losses.add(name, "a row has no column for it")
    if verifier.pytest_args:
        losses.add("pytest_args", "a row has no column for it")
    name = task.family.partition(":")[0]
    commit = task.bundle_hash[:40]
    return Row(
        repo=f"opencomposer/{name or task.source}", instance_id=task.id, base_commit=commit, variant="swe-bench",
        patch=render(_patch(task.gold, read)), test_patch=render(_patch(verifier.test_files, read)),
        problem_statement=task.instruction, fail_to_pass=verifier.fail_to_pass, pass_to_pass=verifier.pass_to_pass,
        extra={"hints_text": "", "created_at": "", "version": "", "environment_setup_commit": commit},
    ), losses  # fmt: skip


def _patch(files: Mapping[str, str], read: Read) -> Patch:
    changes = []
    for path, text in sorted(files.items()):
        before = read(path)
        if "\0" in text or (before is not None and b"\0" in before.content):
            raise FormatRefused(f"{path} holds a NUL, which no patch of text can show", remedy="Export it for Harbor")
        if before is None or before.content != text.encode():
            changes.append(FileChange(path, text.encode(), before=None if before is None else before.content))
    return Patch(changes=tuple(changes))


def lines(rows: list[Row]) -> Iterator[str]:
    """A JSONL document, line by line."""
    for row in rows:
        yield json.dumps(row.dump()) + "\n"
