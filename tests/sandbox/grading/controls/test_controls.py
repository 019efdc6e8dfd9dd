"""Controls on real sandboxes: what may train, what may not, and why."""

from __future__ import annotations

import pytest

from sandbox.backends.base import SandboxError
from sandbox.errors import TaskInvalid
from sandbox.grading.cheats import catalogue
from sandbox.grading.controls import (
    Attempt,
    Controls,
    require_controls,
    run_controls,
    strength_of,
    withholds,
)
from sandbox.grading.controls.flaky import unsteady, without_tests
from sandbox.grading.controls.mutants import gutted, mutants
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.grading.verifiers.canary_pool import PoolStore
from sandbox.grading.version import GRADER
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import BuiltEnvironment, CallsVerifier, FrameworkVerifier, InlineEnvironment, PytestVerifier
from tests.sandbox.grading.make import (
    BUGGY,
    CALLS_TASK,
    FIXED,
    LEDGER_BUG,
    LEDGER_SOURCE,
    LEDGER_TEST_FILE,
    LEDGER_TESTS,
)


@pytest.fixture
def control(backend, environments):
    async def run(task, **options) -> Controls:
        return await run_controls(backend=backend, environments=environments, task=task, **options)

    return run


async def test_controls_of_calls(control):
    controls = await control(CALLS_TASK)
    assert controls.ok and controls.graded and controls.reason == ""
    assert controls.oracle == (Verdict.PASSED,) * 3 and controls.noop == (Verdict.FAILED,) * 3
    assert controls.bundle_hash == CALLS_TASK.bundle_hash and controls.grader == GRADER
    assert len(controls.wrong) == 1 and not controls.full and controls.strength is None


async def check_full(control, task) -> Controls:
    controls = await control(task, k=1, full=True)
    assert controls.ok and controls.full, controls.reason
    applicable = [exploit.id for exploit in catalogue() if exploit.applies(task)]
    assert [attempt.id for attempt in controls.cheats] == applicable
    assert all(attempt.verdict is Verdict.FAILED for attempt in (*controls.cheats, *controls.wrong))
    assert controls.mutants and controls.strength is not None and 0.0 < controls.strength <= 1.0
    return controls


async def test_full_controls_try_every_exploit_that_applies(control):
    await check_full(control, CALLS_TASK)


@pytest.mark.slow
async def test_full_controls_of_a_suite(control, ledger):
    controls = await check_full(control, ledger)
    assert controls.canaries > 4 and "canary-passed" in {rule for attempt in controls.cheats for rule in attempt.rules}


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        ({"gold": {"totals.py": BUGGY.replace("1", "2")}}, "the oracle is failed (24 of 24 cases failed)"),
        ({"environment": InlineEnvironment(files={"totals.py": FIXED})}, "doing nothing is passed"),
        ({"environment": InlineEnvironment(files={"totals.py": BUGGY, ".mypy_cache/x.json": "{}"})}, "the image gives"),
    ],
)
async def test_a_task_that_must_not_train(backend, environments, control, update, reason):
    task = CALLS_TASK.model_copy(update=update)
    controls = await control(task)
    assert not controls.ok and controls.graded and controls.reason.startswith(reason)
    with pytest.raises(TaskInvalid, match="fails validation"):
        await require_controls(backend=backend, environments=environments, task=task)


async def test_a_task_whose_tests_accept_gutted_work(control):
    """The hidden case does not look at what the oracle repairs: raising instead of it passes as well."""
    lenient = CALLS_TASK.model_copy(
        update={
            "environment": InlineEnvironment(files={"totals.py": "def total(items): return 1\ndef other(x):\n    return 1\n"}),
            "gold": {"totals.py": "def total(items): return 200\ndef other(x):\n    return 2\n"},
            "verifier": CallsVerifier(module="totals.py", function="total", cases=(("([],)", "200"),)),
        }
    )  # fmt: skip
    controls = await control(lenient, full=True, k=1)
    assert not controls.ok and controls.reason == "a wrong patch is passed: totals.py: other raises NotImplementedError"


@pytest.mark.slow
async def test_a_task_whose_tests_ask_for_too_little(control, ledger):
    """A test that an object which is equal to everything answers: one bit, and a guess is right every other time."""
    controls = await control(asking(ledger, "self.assertIsNotNone(ledger.balance([]))", WEAK), k=1)
    assert not controls.ok and controls.graded and controls.entropy == 1.0
    assert "verifier.fail_to_pass ask for 1.0 bits" in controls.reason and "Add hidden tests" in controls.reason


@pytest.mark.parametrize("answers", [["[]"], ["[]", "()"]])
async def test_hidden_calls_that_ask_for_too_little(control, answers):
    """One answer to every call, and one of two: a bit each."""
    right = f"def total(items):\n    return ({', '.join(answers)},)[items[0] % {len(answers)}]\n"
    cases = tuple((repr(([n],)), answers[n % len(answers)]) for n in range(6))
    task = CALLS_TASK.model_copy(
        update={
            "environment": InlineEnvironment(files={"totals.py": "def total(items):\n    return None\n"}),
            "gold": {"totals.py": right},
            "verifier": CALLS_TASK.verifier.model_copy(update={"cases": cases}),
        }
    )
    for full in (False, True):
        controls = await control(task, k=1, full=full)
        assert not controls.ok and controls.graded, controls.reason
        assert controls.entropy == len(answers)
        assert f"that doing nothing fails ask for {controls.entropy:.1f} bits" in controls.reason
        assert "Add hidden calls with other right answers" in controls.reason


async def test_what_the_machine_prevents_is_no_answer(backend, environments, control):
    task = CALLS_TASK.model_copy(update={"environment": BuiltEnvironment(digest="f" * 64)})
    controls = await control(task)
    assert not controls.ok and not controls.graded and "is not in" in controls.reason
    with pytest.raises(SandboxError, match="could not be run"):
        await require_controls(backend=backend, environments=environments, task=task)


FLAKY = (
    LEDGER_TESTS
    + """

def test_of_the_moment():
    import os, time
    assert os.urandom(1)[0] < 128
"""
)


@pytest.mark.slow
async def test_flaky_tests_are_found_and_taken_out(control, ledger, environments):
    flaky_id = f"{LEDGER_TEST_FILE}::test_of_the_moment"
    verifier = ledger.verifier.model_copy(
        update={
            "test_files": {LEDGER_TEST_FILE: FLAKY},
            "pass_to_pass": (*ledger.verifier.pass_to_pass, *(f"{flaky_id}_{n}" for n in range(8)), flaky_id),
        }
    )
    # Eight of one kind: that all of them agree in every run is less likely than a broken machine.
    copies = "".join(f"\n\ntest_of_the_moment_{n} = test_of_the_moment\n" for n in range(8))
    verifier = verifier.model_copy(update={"test_files": {LEDGER_TEST_FILE: FLAKY + copies}})
    task = ledger.model_copy(update={"verifier": verifier})
    controls = await control(task, k=3)
    assert not controls.ok and controls.graded
    assert controls.flaky and set(controls.flaky) <= set(verifier.pass_to_pass) - set(ledger.verifier.pass_to_pass)
    steady = without_tests(task, [i for i in verifier.pass_to_pass if "of_the_moment" in i])
    assert steady is not None and steady.bundle_hash != task.bundle_hash
    assert (await control(steady, k=2)).ok
    assert PoolStore(environments.root).load(task.bundle_hash) is None


def test_unsteady_tests():
    from sandbox.grading.adapters.base import Case, TestRun

    def run(finished=True, **statuses):
        return TestRun(cases={name: Case(status) for name, status in statuses.items()}, finished=finished)

    runs = [run(a="passed", b="passed", c="failed"), run(a="passed", b="failed", c="failed")]
    assert unsteady(["a", "b", "c"], runs) == ("b",)
    assert unsteady(["a", "b", "c"], [*runs, run(finished=False, a="passed")]) == ("a", "b")
    assert unsteady(["a"], []) == ()


def test_without_tests_keeps_something_to_decide_by(ledger):
    assert without_tests(ledger, ledger.verifier.fail_to_pass) is None
    assert without_tests(CALLS_TASK, ["case-000"]) is None


def test_mutants_of_the_oracle(tmp_path):
    store = EnvironmentStore(tmp_path)
    task = CALLS_TASK.model_copy(
        update={"environment": InlineEnvironment(files={"ledger.py": LEDGER_BUG}), "gold": {"ledger.py": LEDGER_SOURCE}}
    )
    (wrong,) = gutted(task, store)
    assert wrong.what == "ledger.py: balance raises NotImplementedError"
    assert "raise NotImplementedError" in wrong.files["ledger.py"] and "dict.fromkeys" in wrong.files["ledger.py"]
    found = mutants(task, store)
    texts = [mutant.files["ledger.py"] for mutant in found]
    assert found == mutants(task, store) and 2 <= len(set(texts)) == len(texts)
    assert not {LEDGER_BUG, LEDGER_SOURCE} & set(texts)
    for text in texts:
        compile(text, "mutant", "exec")


def test_mutants_of_other_languages(tmp_path):
    store = EnvironmentStore(tmp_path)
    before, gold = "func Add(a, b int) int {\n\treturn a - b\n}\n", "func Add(a, b int) int {\n\treturn a + b*2\n}\n"
    task = CALLS_TASK.model_copy(
        update={"environment": InlineEnvironment(files={"sums.go": before}), "gold": {"sums.go": gold}}
    )
    assert [m.files["sums.go"] for m in gutted(task, store)] == ["func Add(a, b int) int {\n}\n"]
    assert sorted(m.what for m in mutants(task, store)) == ["sums.go:2: + becomes -", "sums.go:2: 2 becomes 0"]


def test_strength_is_the_share_that_tests_reject():
    tried = tuple(Attempt(what="m", verdict=verdict) for verdict in (Verdict.FAILED, Verdict.PASSED, Verdict.FAILED))
    assert strength_of(tried) == pytest.approx(2 / 3)
    assert strength_of(()) is None


JUNIT = FrameworkVerifier(
    framework="junit", arguments=("sh", "run.sh"), report="out.xml", test_files={"run.sh": "true\n"},
    fail_to_pass=("a::b",),
)  # fmt: skip


async def test_a_report_that_the_work_can_write_is_refused_before_anything_runs(control, judge):
    task = CALLS_TASK.model_copy(update={"verifier": JUNIT})
    for full in (False, True):
        controls = await control(task, full=full)
        assert not controls.ok and controls.graded and controls.oracle == ()
        assert controls.reason.startswith("verifier.framework: ") and "own adapter" in controls.reason
    report = await judge(from_files(task, task.gold), task)
    assert report.verdict is Verdict.INFRA_ERROR and report.outcome is Cause.TASK_INVALID
    assert "verifier.framework" in report.cause and "own adapter" in report.cause


def asking(ledger, test: str, bug: str = LEDGER_BUG):
    """The ledger's task with one hidden test."""
    text = f"import unittest\n\nimport ledger\n\n\nclass TestIt(unittest.TestCase):\n    def test_it(self):\n        {test}\n"
    verifier = PytestVerifier(
        test_files={"tests/test_it.py": text}, fail_to_pass=("tests/test_it.py::TestIt::test_it",)
    )
    environment = ledger.environment.model_copy(update={"overrides": {"ledger/__init__.py": bug}})
    return ledger.model_copy(update={"verifier": verifier, "environment": environment})


def answering(cases: int, answers: int):
    """The task of hidden calls whose right answers are so many different ones."""
    verifier = CALLS_TASK.verifier.model_copy(
        update={"cases": tuple((repr(([n % answers - 2, 2],)), repr(n % answers)) for n in range(cases))}
    )
    return CALLS_TASK.model_copy(update={"verifier": verifier})


WEAK = LEDGER_SOURCE.replace("return start + sum(amount for _, amount in entries)", "pass")
TASKS = {
    "a truth": lambda ledger: asking(ledger, "self.assertTrue(ledger.balance([('a', 1)]))", WEAK),
    "a member": lambda ledger: asking(ledger, "self.assertIn(0, [ledger.balance([])])", WEAK),
    "a value": lambda ledger: asking(ledger, "self.assertEqual(ledger.balance([('a', 7), ('b', 5)]), 12)"),
    "one answer": lambda ledger: answering(6, 1),
    "four answers": lambda ledger: answering(24, 4),
    "a gutted second function": lambda ledger: CALLS_TASK.model_copy(
        update={
            "environment": InlineEnvironment(files={"totals.py": "def total(items): return 1\ndef other(x):\n    return 1\n"}),
            "gold": {"totals.py": "def total(items): return 200\ndef other(x):\n    return 2\n"},
            "verifier": CallsVerifier(module="totals.py", function="total", cases=(("([],)", "200"),)),
        }
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
async def test_quick_controls_refuse_whatever_full_ones_refuse(control, ledger, name):
    task = TASKS[name](ledger)
    quick, full = await control(task, k=1), await control(task, k=1, full=True)
    assert quick.ok == full.ok, (quick.reason, full.reason)


@pytest.mark.parametrize(("answers", "enough"), [(1, False), (4, True)])
def test_hidden_calls_that_a_constant_answers_withhold_nothing(answers, enough):
    assert withholds(answering(24, answers), None) is enough
