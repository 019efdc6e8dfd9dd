"""Tests that must start to pass and that any trick buys: they ask for nothing themselves, and no canary stands beside them."""

from __future__ import annotations

import random

import pytest

from sandbox.generators.building import builder as building
from sandbox.generators.building.yields import Yield
from sandbox.grading.adapters.base import Hit, TestRun
from sandbox.grading.canaries.base import SiblingTest
from sandbox.grading.canaries.go import GoTests
from sandbox.grading.canaries.rust import RustTests
from sandbox.grading.controls import Controls, run_controls
from sandbox.grading.observations.plan import Plan, missed
from sandbox.grading.observations.reports.base import Expected, Leaf, Site
from sandbox.grading.verifiers.canary_pool import candidate_siblings, without_sibling
from sandbox.grading.verifiers.entropy import unasked
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import FrameworkVerifier
from tests.sandbox.grading import greetings
from tests.sandbox.grading.verifiers.test_toolchains import in_sandbox

PARTS = (".::TestTable", ".::TestTable/one", ".::TestOther", ".::TestSilent")


def suite(framework: str, text: str, *tests: str) -> FrameworkVerifier:
    path = {"go": "a_test.go", "cargo": "tests/a.rs"}[framework]
    return FrameworkVerifier(framework=framework, test_files={path: text}, fail_to_pass=tests)  # type: ignore[arg-type]


def plan_of(*ids: str, expected: dict[str, int]) -> Plan:
    """A plan in which each of some tests, or parts of them, reports at one site."""
    sites = tuple(
        Site(
            number=number, path="a_test.go", test=(), condition="v0 == '5'", leaves=(Leaf(observed=True, source="f()"),)
        )
        for number in expected.values()
    )
    reports = {name: (Expected(site=number),) for name, number in expected.items()}
    return Plan(files={}, ids={test_id: test_id for test_id in ids}, sites=sites, expected=reports)


def test_reports_of_parts_are_missed_beside_those_of_tests():
    plan = plan_of(
        ".::TestTable", ".::TestOther", expected={".::TestTable/one": 0, ".::TestOther": 1, ".::TestGone": 2}
    )
    run = TestRun(observed={".::Xy": [Hit(1, ("5",))], ".::Ab/one": [Hit(0, ("4",))]})
    assert missed(plan, {".::TestTable": ".::Ab", ".::TestOther": ".::Xy"}, run) == {".::TestTable/one": {0}}


def test_tests_that_ask_for_nothing_themselves():
    verifier = suite("go", "", *PARTS)
    plan = plan_of(*PARTS, expected={})
    assert unasked(verifier, plan, {}) == PARTS
    assert unasked(verifier, plan, {".::TestTable/one": {0}, ".::TestOther": set()}) == (
        ".::TestOther",
        ".::TestSilent",
    )
    assert unasked(verifier, plan, {".::TestTable": {0}}) == PARTS[1:], "what a test reports is nothing of its parts"


def test_a_sibling_guards_the_tests_of_its_place():
    beside = [SiblingTest(path="a_test.go", names=("TestTable",), start=0, end=1, text="2")]
    assert without_sibling(GoTests(), PARTS, beside) == {".::TestOther", ".::TestSilent"}
    assert without_sibling(GoTests(), PARTS, []) == set(PARTS)


@pytest.mark.parametrize("seed", range(4))
def test_siblings_are_looked_for_first_of_what_nothing_else_guards(seed):
    text = "".join(f"#[test]\nfn t{n}() {{\n    assert_eq!(f({n}), {n + 1}00);\n}}\n\n" for n in range(40))
    verifier = suite("cargo", text, *(f"tests/a.rs::t{n}" for n in range(40)))
    alone = [f"tests/a.rs::t{n}" for n in range(30, 38)]
    found = candidate_siblings(RustTests(), verifier, random.Random(seed), alone)
    assert {one.names for one in found} == {(f"t{n}",) for n in range(30, 38)}
    assert len({one.names for one in candidate_siblings(RustTests(), verifier, random.Random(seed))}) == 6


async def test_a_generator_leaves_them_out(tmp_path, monkeypatch):
    task, asked = greetings.GO, []
    alone = task.verifier.fail_to_pass[:1]

    async def control(*, task, **_):
        asked.append(task.verifier.fail_to_pass)
        bad = tuple(sorted(set(alone) & set(task.verifier.fail_to_pass)))
        return Controls(bundle_hash=task.bundle_hash, unguarded=bad, ok=not bad, reason="bought" if bad else "")

    monkeypatch.setattr(building, "run_controls", control)
    found = Yield(generator="mutation", package="greet")
    builder = building.TaskBuilder(EnvironmentStore(tmp_path), None, None, found)  # type: ignore[arg-type]
    made = await building.controlled(builder, task)
    assert made.verifier.fail_to_pass == task.verifier.fail_to_pass[1:] == asked[-1] and len(asked) == 2
    alone = task.verifier.fail_to_pass
    assert (await building.controlled(builder, task)).detail == "bought"


@pytest.mark.integration
@pytest.mark.toolchains
async def test_controls_refuse_a_task_of_which_a_test_is_bought(backend, tmp_path):
    """`assert.ok(….startsWith(…))` has no value to compare and no literal to change: the bits of the other test are not its."""
    if not in_sandbox("node"):
        pytest.skip("no node below /usr: apt install nodejs")
    store = EnvironmentStore(tmp_path)
    controls = await run_controls(backend=backend, environments=store, task=greetings.JS, k=1)
    assert controls.graded and not controls.ok and not controls.oracle[1:] and not controls.noop
    assert controls.unguarded == ("greet.test.js::begins politely",) and (controls.entropy or 0) > 4
    assert "greet.test.js::begins politely. Leave them out of verifier.fail_to_pass" in controls.reason
    verifier = greetings.JS.verifier.model_copy(update={"fail_to_pass": ("greet.test.js::greets bob",)})
    task = greetings.JS.model_copy(update={"verifier": verifier})
    assert (await run_controls(backend=backend, environments=store, task=task, k=1)).ok
