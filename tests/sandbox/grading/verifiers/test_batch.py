"""Several runs from one loaded interpreter: each sees its own files, and none what another did to the code."""

from __future__ import annotations

import shlex

import pytest

from sandbox.grading.adapters.base import Order
from sandbox.grading.verifiers.batch import Run, collect_all
from sandbox.packages.build import BUILD_LIMITS
from tests.sandbox.shelf import PRODUCT

pytestmark = pytest.mark.integration

PATH = "shelf/__init__.py"
TESTS = ("tests/test_shelf.py::TestShelf::test_put", "tests/test_shelf.py::TestShelf::test_left")


async def statuses(built, environments, backend, texts, seconds=20.0, before=""):
    python = environments.manifest(built.environment.digest).python
    order = Order(files=("tests/test_shelf.py",), ids=TESTS, python=python, seconds=seconds)
    runs = [Run({PATH: text} if text != PRODUCT else {}, order) for text in texts]
    async with await backend.start(environments.spec(built.environment), limits=BUILD_LIMITS) as sandbox:
        if before:
            done = await sandbox.exec(f"{python} -c {shlex.quote(before)}")
            assert done.exit_code == 0, done.output
        found = await collect_all(sandbox, runs, {PATH: PRODUCT})
    return [([run.status(test) for test in TESTS], run.finished, run.timed_out) for run in found]


async def test_each_run_sees_its_own_files_and_the_next_the_pristine_ones(built, environments, backend):
    wrong = PRODUCT.replace("return len(self.items)", "return 7")
    broken = PRODUCT.replace("class Shelf:", "class Shelf(")
    found = await statuses(built, environments, backend, [PRODUCT, wrong, broken, PRODUCT])
    right = (["passed", "passed"], True, False)
    assert found[0] == found[3] == right
    assert found[1] == (["failed", "passed"], True, False)
    assert found[2][0] == ["missing", "missing"], "a file that does not load hides no other run"


async def test_a_run_that_ends_early_or_never_is_its_own_affair(built, environments, backend):
    leaves = PRODUCT.replace("return len(self.items)", "import os; os._exit(0)")
    loops = PRODUCT.replace("return len(self.items)", "while True: pass")
    found = await statuses(built, environments, backend, [leaves, loops, PRODUCT], seconds=1.0)
    assert not found[0][1] and found[0][0] != ["passed", "passed"]
    assert found[1][2], "out of processor time"
    assert found[2] == (["passed", "passed"], True, False)


@pytest.mark.slow
async def test_what_pytest_already_loads_of_the_checkout_is_loaded_anew(built, environments, backend):
    wrong = PRODUCT.replace("return len(self.items)", "return 7")
    always = "import sysconfig; open(sysconfig.get_path('purelib') + '/zz.pth', 'w').write('import shelf\\n')"
    found = await statuses(built, environments, backend, [PRODUCT, wrong, PRODUCT], before=always)
    assert found[0] == found[2] == (["passed", "passed"], True, False)
    assert found[1] == (["failed", "passed"], True, False)
