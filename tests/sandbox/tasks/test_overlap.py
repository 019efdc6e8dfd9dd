"""Near-duplicates and overlap, by content."""

import random

import pytest

from sandbox.errors import TaskInvalid
from sandbox.tasks.overlap import THRESHOLD, TasksOverlap, built_pristine, duplicates, overlap, print_of, refuse
from sandbox.tasks.procedural import generate
from sandbox.tasks.spec import BuiltEnvironment, PytestVerifier, TaskSpec

BEGIN = built_pristine(lambda digest, path: "")
BODY = [f"    value_{n} = step_{n}(value_{n - 1}) + {n}" for n in range(1, 13)]


def task(name: str, lines: list[str], *, family: str = "", wrong: int = 6, test: str = "t.py::test_a") -> TaskSpec:
    good = "\n".join(["def work(value_0):", *lines, "    return value_12", ""])
    bad = "\n".join(["def work(value_0):", *lines[:wrong], lines[wrong].replace("+", "-"), *lines[wrong + 1 :], ""])
    return TaskSpec(
        id=name, source="mutation", instruction="It behaves wrongly.",
        environment=BuiltEnvironment(digest="0" * 64, overrides={"work.py": bad}),
        verifier=PytestVerifier(test_files={"t.py": ""}, fail_to_pass=(test,)), gold={"work.py": good}, family=family,
    )  # fmt: skip


def renamed(lines: list[str], share: float) -> list[str]:
    draw = random.Random(1)
    return [line.replace("step", "jump").replace("value", "thing") if draw.random() < share else line for line in lines]


def test_the_same_change_under_another_name_is_found():
    one, other = print_of(task("a", BODY), BEGIN), print_of(task("b", BODY), BEGIN)
    (pair,) = duplicates([one, other])
    assert (pair.first, pair.second, pair.share) == ("b", "a", 1.0)


def test_nearly_the_same_code_is_found_and_other_code_is_not():
    one = print_of(task("a", BODY), BEGIN)
    near = print_of(task("b", [*BODY[:11], BODY[11].replace("12", "13")], test="t.py::test_b"), BEGIN)
    far = print_of(task("c", renamed(BODY, 0.9), test="t.py::test_c"), BEGIN)
    (pair,) = duplicates([one, near, far])
    assert pair.first == "b" and THRESHOLD <= pair.share < 1.0
    assert duplicates([one, far]) == []


def test_one_place_belongs_to_one_side():
    train = print_of(task("a", BODY, family="p:x.py:f+p:y.py:g"), BEGIN)
    held = print_of(task("b", renamed(BODY, 1.0), family="p:y.py:g", test="t.py::test_b"), BEGIN)
    (pair,) = overlap([train], [held])
    assert pair.why == "both are about p:y.py:g"
    assert duplicates([train, held]) == [], "within a suite that is no fault"


def test_overlap_is_refused_by_name():
    pairs = overlap([print_of(task(f"a{n}", BODY), BEGIN) for n in range(5)], [print_of(task("h", BODY), BEGIN)])
    with pytest.raises(TasksOverlap, match=r"train and held-out: a0 and h: the same change.*\(and 2 more\)\. Leave"):
        refuse(pairs, "train and held-out")
    assert issubclass(TasksOverlap, TaskInvalid)
    refuse([], "nothing")


def test_tasks_of_the_procedural_family_are_apart():
    train = [print_of(generate(seed, "train"), BEGIN) for seed in range(60)]
    held = [print_of(generate(seed, "held-out"), BEGIN) for seed in range(60)]
    assert overlap(train, held) == []
    assert all(pair.share < 1.0 for pair in duplicates(train))
