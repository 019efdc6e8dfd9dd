"""The procedural family: small repositories with one planted bug that a small policy can learn to find.

A function's docstring is its specification; one operator or constant of its body disagrees with it.
Every task is a pure function of (seed, split). Training and held-out tasks share no identifier (`vocabulary.py`)
and no semantic combination (skeleton + every phrase of the docstring): a fifth of the combinations, chosen by
hash, is never trained on. Code holds no double quotes, so that edits need no escapes inside JSON.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.grading.entropy import MIN_ENTROPY, calls_entropy
from sandbox.tasks.generators.vocabulary import Split, in_held_out_pool, sample_verb, sample_words
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

Option = tuple[str, str]
"""A phrase of the docstring and the code that means it."""
Arguments = tuple[Any, ...]

COMPARISONS: tuple[Option, ...] = (
    ("above", ">"),
    ("at least", ">="),
    ("below", "<"),
    ("at most", "<="),
    ("equal to", "=="),
    ("not equal to", "!="),
)
ARITHMETIC: tuple[Option, ...] = (("plus", "+"), ("minus", "-"), ("times", "*"))
AGGREGATES: tuple[Option, ...] = (("sum", "+="), ("product", "*="), ("negated sum", "-="))
ORDERS: tuple[Option, ...] = (("ascending", "False"), ("descending", "True"))
EXTREMES: tuple[Option, ...] = (("smallest", "min"), ("largest", "max"), ("sum", "sum"), ("number", "len"))
BOUNDS: tuple[Option, ...] = (("through", " + 1"), ("before", ""))
DIVISIBILITY: tuple[Option, ...] = (("divisible", "=="), ("not divisible", "!="))
CUTS: tuple[Option, ...] = (("without the first", "[1:]"), ("without the last", "[:-1]"))
CONSTANTS: tuple[Option, ...] = tuple((str(value), str(value)) for value in range(2, 10))
STARTS: tuple[Option, ...] = tuple((str(value), str(value)) for value in range(4))


@dataclass(frozen=True, slots=True)
class Skeleton:
    """One structure of function. `{s0}` in a template is the phrase of slot `s`, `{s1}` its code."""

    name: str
    parameters: tuple[str, ...]
    doc: str
    body: tuple[str, ...]
    slots: Mapping[str, tuple[Option, ...]]
    faults: tuple[str, ...]
    """Slots that a planted bug may change: those whose repair a policy of this size learns. None: neighbours only."""
    arguments: Callable[[random.Random], Arguments]


def _numbers(rng: random.Random) -> list[int]:
    return [rng.randint(0, 9) for _ in range(rng.randint(3, 6))]


def _numbers_and_one_of_them(rng: random.Random) -> Arguments:
    numbers = _numbers(rng)
    return numbers, rng.choice(numbers)


def _two_lists(rng: random.Random) -> Arguments:
    numbers = _numbers(rng)
    return numbers, [rng.randint(0, 9) for _ in numbers]


SKELETONS: tuple[Skeleton, ...] = (
    Skeleton(
        "aggregate",
        ("many", "limit"),
        "Return the {g0} of {many} {c0} {limit}, {a0} {k0}.",
        (
            "    {acc} = {initial}",
            "    for {x} in {many}:",
            "        if {x} {c1} {limit}:",
            "            {acc} {g1} {x}",
            "    return {acc} {a1} {k1}",
        ),
        {"g": AGGREGATES, "c": COMPARISONS, "a": ARITHMETIC, "k": CONSTANTS},
        ("a", "k"),
        _numbers_and_one_of_them,
    ),
    Skeleton(
        "select",
        ("many", "limit"),
        "Return {many} {c0} {limit}, each {a0} {k0}, {o0}.",
        (
            "    {acc} = []",
            "    for {x} in {many}:",
            "        if {x} {c1} {limit}:",
            "            {acc}.append({x} {a1} {k1})",
            "    return sorted({acc}, reverse={o1})",
        ),
        {"c": COMPARISONS, "a": ARITHMETIC, "k": CONSTANTS, "o": ORDERS},
        ("a", "k"),
        _numbers_and_one_of_them,
    ),
    Skeleton(
        "index",
        ("many", "limit"),
        "Return a dict of each index to its value {a0} {k0} for values {c0} {limit}.",
        (
            "    {acc} = {{}}",
            "    for {at}, {x} in enumerate({many}):",
            "        if {x} {c1} {limit}:",
            "            {acc}[{at}] = {x} {a1} {k1}",
            "    return {acc}",
        ),
        {"c": COMPARISONS, "a": ARITHMETIC, "k": CONSTANTS},
        ("a", "k"),
        _numbers_and_one_of_them,
    ),
    Skeleton(
        "extreme",
        ("many",),
        "Return the {m0} of {many} {p0}, {a0} {k0}.",
        ("    {x} = {many}{p1}", "    {acc} = {m1}({x})", "    return {acc} {a1} {k1}"),
        {"m": EXTREMES, "p": CUTS, "a": ARITHMETIC, "k": CONSTANTS},
        ("a", "k"),
        lambda rng: (_numbers(rng),),
    ),
    Skeleton(
        "count",
        ("limit",),
        "Return the {g0} of numbers from {s0} {t0} {limit} {d0} by {j0}, {a0} {k0}.",
        (
            "    {acc} = {initial}",
            "    for {x} in range({s1}, {limit}{t1}):",
            "        if {x} % {j1} {d1} 0:",
            "            {acc} {g1} {x}",
            "    return {acc} {a1} {k1}",
        ),
        {
            "g": AGGREGATES,
            "s": STARTS,
            "t": BOUNDS,
            "d": DIVISIBILITY,
            "j": CONSTANTS[:4],
            "a": ARITHMETIC,
            "k": CONSTANTS,
        },
        ("a", "k"),
        lambda rng: (rng.randint(2, 30),),
    ),
    Skeleton(
        "charge",
        ("left", "right"),
        "Return {left} {a0} {right}, {b0} {k0} when {right} is {c0} {j0}.",
        (
            "    {acc} = {left} {a1} {right}",
            "    if {right} {c1} {j1}:",
            "        {acc} = {acc} {b1} {k1}",
            "    return {acc}",
        ),
        {"a": ARITHMETIC, "b": ARITHMETIC, "k": CONSTANTS, "c": COMPARISONS, "j": CONSTANTS},
        (),
        lambda rng: (rng.randint(1, 9), rng.randint(1, 10)),
    ),
    Skeleton(
        "combine",
        ("many", "others"),
        "Return each of {many} {a0} the matching {others}, {b0} {k0}.",
        (
            "    {acc} = []",
            "    for {x}, {at} in zip({many}, {others}):",
            "        {acc}.append({x} {a1} {at} {b1} {k1})",
            "    return {acc}",
        ),
        {"a": ARITHMETIC, "b": ARITHMETIC[:2], "k": CONSTANTS},
        (),
        _two_lists,
    ),
)


@dataclass(frozen=True, slots=True)
class Function:
    """A named function of the family with one option chosen for each slot."""

    skeleton: Skeleton
    choices: Mapping[str, Option]
    names: Mapping[str, str]
    name: str
    initial: str

    @property
    def family(self) -> str:
        """The semantic combination: equal for functions that differ in names only."""
        phrases = [self.choices[slot][0].replace(" ", "_") for slot in sorted(self.choices)]
        return "-".join([self.skeleton.name, *phrases])

    @property
    def head(self) -> list[str]:
        words = {slot + "0": option[0] for slot, option in self.choices.items()}
        parameters = ", ".join(self.names[role] for role in self.skeleton.parameters)
        return [f"def {self.name}({parameters}):", f"    '''{self.skeleton.doc.format(**self.names, **words)}'''"]

    def body(self, choices: Mapping[str, Option] | None = None) -> list[str]:
        """The code, or what it would be with other `choices` under the same docstring."""
        codes = {slot + "1": option[1] for slot, option in (choices or self.choices).items()}
        return [line.format(initial=self.initial, **self.names, **codes) for line in self.skeleton.body]


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


def write_function(rng: random.Random, split: Split) -> Function:
    """A random correct function whose names and semantic combination belong to `split`."""
    while True:
        skeleton = rng.choice(SKELETONS)
        choices = {slot: rng.choice(options) for slot, options in skeleton.slots.items()}
        words = sample_words(rng, split, 8)
        names = {
            "many": words[0] + "s", "others": words[1] + "s", "limit": words[2], "left": words[3], "right": words[4],
            "acc": rng.choice(("out", "res")) if rng.random() < 0.3 else words[5],
            "x": rng.choice(("x", "v")) if rng.random() < 0.3 else words[6],
            "at": rng.choice(("i", "n")) if rng.random() < 0.3 else words[7],
        }  # fmt: skip
        tail = sample_words(rng, split, 2)
        name = "_".join([sample_verb(rng, split), tail[0]] if rng.random() < 0.3 else tail)
        initial = "1" if choices.get("g", ("", ""))[1] == "*=" else "0"
        function = Function(skeleton, choices, names, name, initial)
        if in_held_out_pool(function.family) == (split == "held-out"):
            return function


def source(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


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
