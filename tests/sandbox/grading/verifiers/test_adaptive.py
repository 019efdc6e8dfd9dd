"""Work that adapts to the hidden tests which run beside it is failed; the same fixes, chosen by thought, pass."""

from __future__ import annotations

import pytest

from sandbox.grading.verdict.report import Verdict
from tests.sandbox.grading.adaptive import EXPLOITS, FIXES
from tests.sandbox.grading.make import LEDGER_BUG, work

pytestmark = pytest.mark.integration

FAST = ("searches its fixes quietly", "chooses a fix by what is in memory", "tells siblings by shape")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in EXPLOITS]
)
async def test_work_that_adapts_to_its_tests_fails(judge, ledger, name):
    report = await judge(work(LEDGER_BUG + EXPLOITS[name]), ledger)
    assert report.verdict is Verdict.FAILED, report


async def test_the_right_one_of_several_fixes_passes(judge, ledger):
    report = await judge(work(f"{LEDGER_BUG}{FIXES}\nbalance = _f2\n"), ledger)
    assert report.verdict is Verdict.PASSED, report.cause
