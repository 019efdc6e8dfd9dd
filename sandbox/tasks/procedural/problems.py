"""Tasks of the procedural family: a function with one fault, a visible test that shows it, and hidden cases."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.tasks.entropy import MIN_ENTROPY, calls_entropy
from sandbox.tasks.procedural.functions import Arguments, Function, Option, source, write_function
from sandbox.tasks.procedural.vocabulary import Split, sample_words
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec

SPLITS: tuple[Split, ...] = ("train", "held-out")
CASES = 24
MIN_CASES = 10
TEST_COMMAND = "python run_tests.py"

RUN_TESTS = """\
import importlib
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.getcwd())
passed, failures = 0, []
for name in sorted(os.listdir('.')):
    if name.startswith('test_') and name.endswith('.py'):
        module = importlib.import_module(name[:-3])
        for key, check in sorted(vars(module).items()):
            if key.startswith('test_'):
                try:
                    check()
                    passed += 1
                except AssertionError as error:
                    failures.append('got ' + repr(error.args[0]) if error.args else 'assertion failed')
                except Exception as error:
                    failures.append('got ' + type(error).__name__)
if failures:
    print(len(failures), 'failed:', '; '.join(failures))
    sys.exit(1)
print(passed, 'passed')
"""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace one line of the target module; both lines without their indentation."""

    slot: str
    option: Option
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A task together with what its generator knows; the scripted expert reads it, a policy never does."""

    spec: TaskSpec
    function: Function
    module: str
    fault: str
    current: Mapping[str, Option]
    """The choices of the code as planted: `function.choices` but for the slot `fault`."""
    asks_enough: bool
    """Whether its hidden calls ask for enough that work cannot know (a function that always returns 0 does not)."""

    def edits(self, current: Mapping[str, Option], slot: str) -> list[Edit]:
        """Every other option of one slot as an edit of code that now holds `current`."""
        before = self.function.body(current)
        found = []
        for option in self.function.skeleton.slots[slot]:
            after = self.function.body({**current, slot: option})
            changed = [(old.strip(), new.strip()) for old, new in zip(before, after, strict=True) if old != new]
            if len(changed) == 1:
                found.append(Edit(slot, option, *changed[0]))
        return found


def evaluate(code: str, name: str, inputs: list[Arguments]) -> list[str | None]:
    """`repr` of each call, None where it raises. Only for code that this file wrote: it runs in this process."""
    scope: dict[str, Any] = {}
    exec(compile(code, "procedural", "exec"), scope)  # noqa: S102  (our own generated code, bounded loops)
    results: list[str | None] = []
    for arguments in inputs:
        try:
            results.append(repr(scope[name](*arguments)))
        except (ArithmeticError, LookupError, ValueError, TypeError):
            results.append(None)
    return results


def _plant(rng: random.Random, function: Function) -> tuple[str, dict[str, Option]] | None:
    """A fault slot and the faulty choices, if the change touches one line and every line can be named in an edit."""
    if not function.skeleton.faults:
        return None
    fault = rng.choice(function.skeleton.faults)
    option = rng.choice([o for o in function.skeleton.slots[fault] if o != function.choices[fault]])
    current = {**function.choices, fault: option}
    good, bad = function.body(), function.body(current)
    text = source(function.head + bad)
    if sum(a != b for a, b in zip(good, bad, strict=True)) != 1 or any(text.count(line.strip()) != 1 for line in bad):
        return None
    return fault, current


ISSUES = (
    "`{call}` returns {got}, expected {expected}.",
    "`{call}` gives {got} but should give {expected}.",
    "`{call}` is {got} instead of {expected}. Please fix.",
    "Bug: `{call}` returns {got}. It should return {expected}.",
)


def _draft(rng: random.Random, split: Split, task_id: str) -> Problem | None:
    function = write_function(rng, split)
    planted = _plant(rng, function)
    if planted is None:
        return None
    fault, current = planted
    inputs: dict[str, Arguments] = {}
    for _ in range(4 * CASES):
        arguments = function.skeleton.arguments(rng)
        inputs.setdefault(repr(arguments), arguments)
        if len(inputs) == CASES:
            break
    gold = source(function.head + function.body())
    buggy = source(function.head + function.body(current))
    expected = evaluate(gold, function.name, list(inputs.values()))
    got = evaluate(buggy, function.name, list(inputs.values()))
    cases = [(text, want, have) for text, want, have in zip(inputs, expected, got, strict=True) if want is not None]
    failing = [case for case in cases if case[1] != case[2] and case[2] is not None]
    if len(cases) < MIN_CASES or not failing:
        return None
    shown, want, have = min(failing, key=lambda case: (len("".join(filter(None, case))), case[0]))
    call = function.name + (shown.replace(",)", ")") if shown.endswith(",)") else shown)

    others = sample_words(rng, split, rng.randint(2, 3))
    module, test = f"{others[0]}.py", f"test_{others[0]}.py"
    files = {
        module: buggy,
        test: source([f"from {others[0]} import {function.name}", "", "", f"def test_{function.name}():",
                      f"    got = {call}", f"    assert got == {want}, got"]),
        "run_tests.py": RUN_TESTS,
    }  # fmt: skip
    for other in others[1:]:
        neighbour = write_function(rng, split)
        if neighbour.name == function.name:
            return None
        files[f"{other}.py"] = source(neighbour.head + neighbour.body())
    verifier = CallsVerifier(module=module, function=function.name, cases=tuple((c[0], c[1]) for c in cases))
    spec = TaskSpec(
        id=task_id,
        source="procedural",
        instruction=rng.choice(ISSUES).format(call=call, got=have, expected=want),
        environment=InlineEnvironment(files=dict(sorted(files.items()))),
        verifier=verifier,
        gold={module: gold},
        protected=(test, "run_tests.py"),
        family=function.family,
    )
    missed = [number for number, (_, want, have) in enumerate(cases) if want != have]
    return Problem(spec, function, module, fault, current, calls_entropy(verifier, missed) >= MIN_ENTROPY)


def problem(seed: int, split: Split) -> Problem:
    """The task of this seed with its generator's knowledge. About a millisecond."""
    return next(drafted for drafted in _drafts(seed, split) if drafted.asks_enough)


def _drafts(seed: int, split: Split) -> Iterator[Problem]:
    """What a seed gives, without end; the first that asks for enough is its task."""
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is neither 'train' nor 'held-out'")
    rng = random.Random(f"procedural:{split}:{seed}")
    while True:
        drafted = _draft(rng, split, f"proc-{split}-{seed:06d}")
        if drafted is not None:
            yield drafted


def generate(seed: int, split: Split) -> TaskSpec:
    """A task as a pure function of (seed, split)."""
    return problem(seed, split).spec


def problem_of(task: TaskSpec) -> Problem:
    """Recover what the generator knew about one of its tasks. Raises ValueError for any other task."""
    for split in SPLITS:
        seed = task.id.removeprefix(f"proc-{split}-")
        if seed.isdecimal():
            for found in _drafts(int(seed), split):
                if found.spec == task:
                    return found
                if found.asks_enough:  # those before were the seed's task in earlier versions
                    break
    raise ValueError(f"task {task.id!r} was not made by this version of the procedural generator")
