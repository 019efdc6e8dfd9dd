"""Functions of the procedural family: templates with slots, filled at random for one of the splits."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.tasks.procedural.vocabulary import Split, in_held_out_pool, sample_verb, sample_words

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
