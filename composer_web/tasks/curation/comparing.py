"""Comparison of two versions of a task, by part."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from composer_web.tasks.models import TaskVersion
from sandbox.tasks.spec import BuiltEnvironment, SuiteVerifier, TaskSpec


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the bundle that differs, as a unified diff. `secret` parts are for reviewers."""

    name: str
    diff: str
    secret: bool


def compare(before: TaskVersion, after: TaskVersion) -> list[Part]:
    """What differs from one version to another; empty when only the id's number does."""
    old, new = before.bundle, after.bundle
    parts = [
        Part("Instruction", unified({"instruction": old.instruction}, {"instruction": new.instruction}), False),
        Part("Environment", unified(environment_files(old), environment_files(new)), False),
        Part("Settings", unified({"settings": _settings(old)}, {"settings": _settings(new)}), False),
        Part("Hidden tests", unified(hidden_files(old), hidden_files(new)), True),
        Part("Gold patch", unified(old.gold, new.gold), True),
    ]
    return [part for part in parts if part.diff]


def environment_files(spec: TaskSpec) -> Mapping[str, str]:
    """Files that the bundle carries: a whole inline repository, or what is laid over a built environment."""
    environment = spec.environment
    return environment.overrides if isinstance(environment, BuiltEnvironment) else environment.files


def hidden_files(spec: TaskSpec) -> dict[str, str]:
    """The hidden verifier as texts by name: test files and the ids that must pass, or calls with expected values."""
    verifier = spec.verifier
    if isinstance(verifier, SuiteVerifier):
        ids = {"must begin to pass": verifier.fail_to_pass, "must go on passing": verifier.pass_to_pass}
        return {**verifier.test_files, **{name: "\n".join(found) for name, found in ids.items() if found}}
    calls = [f"{verifier.function}{arguments} == {expected}" for arguments, expected in verifier.cases]
    return {f"calls of {verifier.module}": "\n".join(calls)}


def gold_diff(spec: TaskSpec) -> str:
    """The oracle's change as a unified diff against the bundle's files."""
    before = environment_files(spec)
    return unified({path: before.get(path, "") for path in spec.gold}, spec.gold)


def unified(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """A unified diff over all files of both sides, in path order."""
    lines: list[str] = []
    for path in sorted({*before, *after}):
        old, new = before.get(path, ""), after.get(path, "")
        if old != new:
            lines += difflib.unified_diff(
                old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}"
            )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _settings(spec: TaskSpec) -> str:
    known = spec.model_dump(mode="json", exclude={"id", "instruction", "gold"})
    for name in ("files", "overrides"):
        known["environment"].pop(name, None)
    for name in ("test_files", "fail_to_pass", "pass_to_pass", "cases"):
        known["verifier"].pop(name, None)
    return json.dumps(known, indent=2, sort_keys=True)
