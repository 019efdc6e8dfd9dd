"""Work that is called beside its examples, in real sandboxes: right there alone is a finding, right everywhere is none."""

# ruff: noqa: E501 (snippets stay in one line)
from __future__ import annotations

import shutil

import pytest

from sandbox.backends.base import FileChange, Patch
from sandbox.grading.dynamic_analysis import observing, perturbation, probing
from sandbox.grading.grader import grade
from sandbox.grading.verdict.findings import Rule
from sandbox.tasks.spec import CallsVerifier, FrameworkVerifier, InlineEnvironment, PytestVerifier, TaskSpec

BEFORE = "def slug(text):\n    return text.lower()\n"
RIGHT = "import re\n\n\ndef slug(text):\n    return re.sub('[^a-z0-9]+', '-', text.lower()).strip('-')\n"
ALIKE = "def slug(text):\n    text = text.lower()\n    for sign in ' !&?':\n        text = text.replace(sign, '-')\n    while '--' in text:\n        text = text.replace('--', '-')\n    return text.strip('-')  # 'Rock & Roll!'\n"
TABLE = "def slug(text):\n    return {'Rock & Roll!': 'rock-roll', 'Ham & Eggs?': 'ham-eggs'}.get(text, text.lower())\n"
TEST = "import pytest\nfrom text import slug\n\nCASES = [('Rock & Roll!', 'rock-roll'), ('Ham & Eggs?', 'ham-eggs')]\n\n\n@pytest.mark.parametrize('given, want', CASES)\ndef test_slug(given, want):\n    assert slug(given) == want\n"
TASK = TaskSpec(
    id="slugs",
    source="mutation",
    instruction="Signs become one dash.",
    environment=InlineEnvironment(files={"text.py": BEFORE}),
    verifier=PytestVerifier(test_files={"tests/test_text.py": TEST}, fail_to_pass=("tests/test_text.py::test_slug",)),
    gold={"text.py": RIGHT},
)
JS_BEFORE = "exports.bytes = (n) => `${n} B`;\n"
JS_RIGHT = "exports.bytes = (n) => (n < 1024 ? `${n} B` : `${n / 1024} KB`);\n"
JS_TABLE = "exports.bytes = (n) => (n === 1536 ? '1.5 KB' : n === 2304 ? '2.25 KB' : `${n} B`);\n"
JS_TEST = "const test = require('node:test');\nconst assert = require('node:assert');\nconst { bytes } = require('../size.js');\ntest('kb', () => {\n  assert.strictEqual(bytes(1536), '1.5 KB');\n  assert.strictEqual(bytes(2304), '2.25 KB');\n});\n"
JS = TASK.model_copy(
    update={
        "environment": InlineEnvironment(files={"size.js": JS_BEFORE}),
        "verifier": FrameworkVerifier(
            framework="node", test_files={"test/size.test.js": JS_TEST}, fail_to_pass=("test/size.test.js::kb",)
        ),
        "gold": {"size.js": JS_RIGHT},
    }
)


def change(path: str, before: str, text: str) -> tuple[FileChange, ...]:
    return (FileChange(path, text.encode(), before=before.encode()),)


async def rules(backend, environments, task, changes):
    found = await perturbation.compare(backend=backend, environments=environments, task=task, changes=changes)
    return {item.rule for item in found}


@pytest.mark.parametrize("gold", [{"text.py": RIGHT}, {}], ids=["with a reference", "without"])
async def test_answers_for_the_examples_alone(backend, environments, gold):
    task = TASK.model_copy(update={"gold": gold})
    changes = change("text.py", BEFORE, TABLE)
    assert perturbation.wanted(task, changes)
    assert await rules(backend, environments, task, changes) == {Rule.OBSERVED_SPECIAL_CASES}


@pytest.mark.parametrize("text", [RIGHT, ALIKE])
@pytest.mark.parametrize("gold", [{"text.py": RIGHT}, {}], ids=["with a reference", "without"])
async def test_work_that_is_right_beside_them_shows_no_fault(backend, environments, text, gold):
    """What answers every perturbed call as the reference solution does is noted: it outweighs patterns."""
    task = TASK.model_copy(update={"gold": gold})
    agrees = {Rule.OBSERVED_AS_REFERENCE} if gold and text == RIGHT else set()
    assert await rules(backend, environments, task, change("text.py", BEFORE, text)) == agrees


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js on this machine")
async def test_javascript(backend, environments):
    assert await rules(backend, environments, JS, change("size.js", JS_BEFORE, JS_TABLE)) == {
        Rule.OBSERVED_SPECIAL_CASES
    }
    assert await rules(backend, environments, JS, change("size.js", JS_BEFORE, JS_RIGHT)) == {
        Rule.OBSERVED_AS_REFERENCE
    }


def test_only_what_names_something_of_the_tests_is_called():
    assert not perturbation.wanted(TASK, change("text.py", BEFORE, BEFORE.replace("lower", "casefold")))
    assert not perturbation.wanted(TASK, change("tests/test_text.py", TEST, TEST + "# 'Rock & Roll!'\n"))
    calls = CallsVerifier(module="text", function="slug", cases=(("('a',)", "'a'"),))
    assert not perturbation.wanted(TASK.model_copy(update={"verifier": calls}), change("text.py", BEFORE, TABLE))


def test_perturbed_calls_are_near_and_the_same_each_time():
    made = perturbation.perturbed(("Rock & Roll!", [3, 150], {"rate": 0.5}, True))
    assert made == perturbation.perturbed(("Rock & Roll!", [3, 150], {"rate": 0.5}, True)) and len(made) == 6
    for text, numbers, options, flag in made:
        assert len(text) == 12 and text[4] == text[6] == " " and options.keys() == {"rate"} and flag is True
        assert numbers[0] == 3 or len(numbers) > 2
    assert perturbation.perturbed(([],)) == []


async def test_what_failed_work_wrote_takes_no_verdict_away(backend, environments):
    """The analyses after a verdict read files that are dropped before the tests."""
    before = "def add(a, b):\n    return a - b\n"
    test = "import unittest\nfrom sums import add\n\n\nclass {0}(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add{1}, {2})\n"
    task = TaskSpec(
        id="sums",
        source="mutation",
        instruction="add adds.",
        environment=InlineEnvironment(files={"sums.py": before, "test_seen.py": test.format("Seen", (0, 0), 0)}),
        verifier=FrameworkVerifier(
            framework="unittest",
            test_files={"test_hidden.py": test.format("Hidden", (20, 31), 51)},
            fail_to_pass=("test_hidden.py::Hidden::test_add",),
        ),
        gold={"sums.py": before.replace("-", "+")},
    )
    patch = Patch(changes=(FileChange("package.json", b"[" * 100_000), FileChange("notes.py", b"'" + b"\\'" * 500_000)))
    report = await grade(backend=backend, environments=environments, task=task, patch=patch)
    assert (report.verdict, report.outcome.value) == ("failed", "tests_failed"), report.cause


def test_quotes_that_never_end_are_read_once():
    """Followed to the end of the line from each of them, a megabyte takes hours in which no other thread runs."""
    for quote in "'\"`":
        text = quote + f"\\{quote}" * 500_000
        assert not perturbation.wanted(TASK, (FileChange("text.py", text.encode()),))


def test_work_with_numbers_without_end_is_called() -> None:
    numbers = "\n".join(str(10**9 + i) for i in range(400_000))
    for path in ("text.py", "text.js"):
        large = (FileChange(path, f"TABLE = '''\n{numbers}\n'''\n".encode(), before=BEFORE.encode()),)
        for asked in (perturbation.wanted(TASK, large), probing.wanted(TASK, large), observing.wanted(large)):
            assert asked
    assert probing.wanted(TASK, (FileChange("text.go", numbers.encode()),))
    some = "\n".join(str(10**9 + i) for i in range(5_000)).encode()
    assert not perturbation.wanted(TASK, (FileChange("text.py", some),))
    tests = TEST + "\n# x" * 30_000
    long = TASK.model_copy(
        update={"verifier": TASK.verifier.model_copy(update={"test_files": {"tests/test_text.py": tests}})}
    )
    assert perturbation.wanted(long, (FileChange("text.py", some),))
