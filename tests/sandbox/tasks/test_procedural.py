"""The procedural family: determinism, correctness of its cases, and the wall between the splits."""

from __future__ import annotations

import ast
import asyncio
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.entropy import MIN_ENTROPY, calls_entropy
from sandbox.tasks.procedural import generate, problem, problem_of
from sandbox.tasks.procedural.expert import Habits, run_expert
from sandbox.tasks.procedural.functions import SKELETONS
from sandbox.tasks.procedural.problems import CASES, MIN_CASES, RUN_TESTS, SPLITS, evaluate
from sandbox.tasks.procedural.vocabulary import COMMON, HELD_OUT_WORDS, TAKEN, TRAIN_WORDS, Split
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec

SEEDS = range(120)


def files(task: TaskSpec) -> dict[str, str]:
    assert isinstance(task.environment, InlineEnvironment)
    return task.environment.files


def outcomes(task: TaskSpec, code: str) -> list[bool]:
    assert isinstance(task.verifier, CallsVerifier)
    inputs = [ast.literal_eval(arguments) for arguments, _ in task.verifier.cases]
    got = evaluate(code, task.verifier.function, inputs)
    return [value == expected for value, (_, expected) in zip(got, task.verifier.cases, strict=True)]


def identifiers(task: TaskSpec) -> set[str]:
    """Every name that a task's own modules define or use, and its parts; builtins and shared names left out."""
    names: set[str] = set()
    for path, text in files(task).items():
        if path == "run_tests.py" or path.startswith("test_"):
            continue
        names.add(path.removesuffix(".py"))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                names |= set(node.name.split("_"))
            elif isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
    return {name for name in names if name not in COMMON and name not in TAKEN}


@pytest.mark.parametrize("split", ["train", "held-out"])
def test_gold_passes_and_the_planted_bug_fails(split: Split) -> None:
    for seed in SEEDS:
        task = generate(seed, split)
        (module, gold), *others = task.gold.items()
        assert not others
        assert all(outcomes(task, gold))
        assert not all(outcomes(task, files(task)[module]))
        before, after = files(task)[module].splitlines(), gold.splitlines()
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_a_task_is_a_pure_function_of_seed_and_split() -> None:
    assert generate(7, "train") == generate(7, "train")
    assert generate(7, "train").bundle_hash != generate(8, "train").bundle_hash
    assert generate(7, "train").environment != generate(7, "held-out").environment
    code = "from sandbox.tasks.procedural import generate; print(generate(7, 'train').bundle_hash)"
    root = Path(__file__).resolve().parents[3]
    other = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert other.stdout.strip() == generate(7, "train").bundle_hash


@pytest.mark.integration
def test_the_splits_share_no_family_and_no_identifier() -> None:
    train = [generate(seed, "train") for seed in range(250)]
    held_out = [generate(seed, "held-out") for seed in range(250)]
    assert not {task.family for task in train} & {task.family for task in held_out}
    names = [set().union(*(identifiers(task) for task in tasks)) for tasks in (train, held_out)]
    assert len(names[0]) > 200
    assert len(names[1]) > 200
    assert names[0] & names[1] == set()
    assert not set(TRAIN_WORDS) & set(HELD_OUT_WORDS)


@pytest.mark.integration
def test_every_skeleton_and_fault_appears_in_both_splits() -> None:
    for split in ("train", "held-out"):
        seen = {(p.function.skeleton.name, p.fault) for p in (problem(seed, split) for seed in range(250))}
        assert seen == {(skeleton.name, fault) for skeleton in SKELETONS for fault in skeleton.faults}


def test_shape_of_a_task() -> None:
    for seed in SEEDS:
        task = generate(seed, "train")
        assert isinstance(task.verifier, CallsVerifier)
        assert task.verifier.module in task.gold
        assert MIN_CASES <= len(task.verifier.cases) <= CASES
        assert len({arguments for arguments, _ in task.verifier.cases}) == len(task.verifier.cases)
        assert set(task.protected) == {f"test_{task.verifier.module}", "run_tests.py"}
        assert 4 <= len(files(task)) <= 5
        code = files(task)[task.verifier.module]
        assert '"' not in code
        for line in code.splitlines()[2:]:
            assert code.count(line.strip()) == 1, "an edit of this line would be ambiguous"
        expected = re.search(r"assert got == (.*), got", files(task)[f"test_{task.verifier.module}"])
        assert expected is not None
        assert expected.group(1).rstrip(".") in task.instruction
        assert task.gold[task.verifier.module] not in files(task).values()


def test_the_visible_test_command(tmp_path: Path) -> None:
    task = generate(11, "train")
    (module, gold), *_ = task.gold.items()
    for path, text in files(task).items():
        (tmp_path / path).write_text(text)

    def run() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "run_tests.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout

    assert files(task)["run_tests.py"] == RUN_TESTS
    code, output = run()
    assert code == 1
    assert re.fullmatch(r"1 failed: got .+\n", output)
    (tmp_path / module).write_text(gold)
    assert run() == (0, "1 passed\n")
    (tmp_path / module).write_text("def other():\n    pass\n")
    assert run()[0] != 0
    assert not list(tmp_path.rglob("__pycache__"))


def test_problem_of_recovers_the_choices_and_refuses_other_tasks() -> None:
    task = generate(5, "held-out")
    found = problem_of(task)
    assert found.function.family == task.family
    assert found.current[found.fault] != found.function.choices[found.fault]
    with pytest.raises(ValueError, match="was not made"):
        problem_of(task.model_copy(update={"id": "proc-held-out-000006"}))
    with pytest.raises(ValueError, match="was not made"):
        problem_of(task.model_copy(update={"id": "mutation-1"}))
    with pytest.raises(ValueError, match="neither"):
        generate(0, "test")  # type: ignore[arg-type]


@pytest.mark.integration
@pytest.mark.parametrize("split", SPLITS)
def test_hidden_calls_ask_for_what_work_cannot_know(split: Split) -> None:
    """Seeds 925 and 2205 first give a function that always returns 0."""
    for seed in (*SEEDS, 925, 2205):
        task = generate(seed, split)
        assert isinstance(task.verifier, CallsVerifier)
        met = outcomes(task, files(task)[task.verifier.module])
        missed = [number for number, right in enumerate(met) if not right]
        assert calls_entropy(task.verifier, missed) >= MIN_ENTROPY, task.id


class FileTools:
    """Edits applied to a dict of files: enough of a session to see what the expert asks for."""

    def __init__(self, task: TaskSpec) -> None:
        self.files = dict(files(task))
        self.task = task
        self.calls: list[ToolCall] = []
        self.slips = 0

    async def run(self, calls: list[ToolCall]) -> list[ToolResult]:
        (call,) = calls
        self.calls.append(call)
        output = ""
        if call.name == "edit_file":
            path, old, new = (call.arguments[key] for key in ("path", "old_string", "new_string"))
            if old == new or old not in self.files[path]:
                self.slips += 1
                return [ToolResult(call_id=call.id, output="error: slip")]
            assert self.files[path].count(old) == 1
            self.files[path] = self.files[path].replace(old, new)
        elif call.name == "run_terminal_cmd":
            output = "1 passed" if self.solved else "1 failed: got 1"
        return [ToolResult(call_id=call.id, output=output)]

    @property
    def solved(self) -> bool:
        assert isinstance(self.task.verifier, CallsVerifier)
        return all(outcomes(self.task, self.files[self.task.verifier.module]))


def episodes(habits: Habits, count: int = 150) -> list[FileTools]:
    sessions = []
    for seed in range(count):
        session = FileTools(generate(seed, "train"))
        asyncio.run(run_expert(session, session.task, random.Random(seed), habits))
        sessions.append(session)
    return sessions


def test_a_perfect_expert_solves_everything_in_four_calls() -> None:
    for session in episodes(Habits(right=1.0, check=0.0, slip=0.0, tamper=0.0), 60):
        assert session.solved
        assert [call.name for call in session.calls] == ["grep", "read_file", "edit_file", "finish"]


def test_the_usual_expert_is_imperfect() -> None:
    sessions = episodes(Habits())
    assert 0.15 < sum(session.solved for session in sessions) / len(sessions) < 0.6
    assert all(session.calls[-1].name == "finish" for session in sessions)
    assert 0 < sum(session.slips for session in sessions) < len(sessions) / 4
    assert any(call.name == "run_terminal_cmd" for session in sessions for call in session.calls)


def test_tampering_changes_protected_files_only() -> None:
    for session in episodes(Habits(tamper=1.0), 20):
        changed = {path for path, text in files(session.task).items() if session.files[path] != text}
        assert changed
        assert changed <= set(session.task.protected)
        assert not session.solved
