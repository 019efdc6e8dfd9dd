"""Packages whose files are not all UTF-8: what a bundle cannot carry is left alone, and the rest gives tasks."""

import asyncio

import pytest

from sandbox.generators.analysis.targets import find_targets, readable
from sandbox.generators.building.yields import Yield
from sandbox.generators.registry import generate_tasks
from sandbox.repositories import pins

# dozens of sandboxed test runs: a minute on a quiet machine
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LATIN = b"# -*- coding: latin-1 -*-\n"
ODD = (
    LATIN
    + b"""def menu(guests):
    names = []
    for guest in range(guests):
        names.append('caf\xe9')
    return names
"""
)
PLAIN = """def bill(prices, most=100):
    total = 0
    for price in prices:
        if price < most:
            total += price
    return total
"""
PLAIN_TESTS = """import pytest

from inn import bill, menu


@pytest.mark.parametrize("prices, expected", [([1, 2], 3), ([], 0), ([100, 7], 7), ([99, 99], 198)])
def test_bill(prices, expected):
    assert bill(prices) == expected


def test_menu():
    assert len(menu(2)) == 2
"""
ODD_TESTS = (
    LATIN
    + b"""from inn import bill, menu


def test_menu_of_one():
    assert menu(1) == ['caf\xe9']


def test_bill_of_one():
    assert bill([5]) == 5
"""
)
FILES = {
    "inn/__init__.py": "from inn.bills import bill\nfrom inn.menus import menu\n", "inn/bills.py": PLAIN, "inn/menus.py": ODD,
    "tests/test_bills.py": PLAIN_TESTS, "tests/test_menus.py": ODD_TESTS, "conftest.py": LATIN + b"# caf\xe9\n",
    "README.md": b"caf\xe9\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def inn(build):
    return asyncio.run(build(FILES, pins.Pin("inn", "1.0", ("0" * 64,))))


def test_functions_and_tests_in_other_encodings_are_left_alone(inn, environments):
    assert "tests/test_menus.py::test_menu_of_one" in inn.tests
    assert any(place.startswith("inn/menus.py:") for place in inn.covered)
    rest = readable(environments, inn)
    assert {test.split("::")[0] for test in rest.tests} == {"tests/test_bills.py"}
    (target,) = find_targets(environments, rest)
    assert (target.path, target.name) == ("inn/bills.py", "bill")
    assert target.tests and {test.split("::")[0] for test in target.tests} == {"tests/test_bills.py"}
    assert readable(environments, rest) is rest


@pytest.mark.parametrize("generator", ["mutation", "rename"])
async def test_the_rest_gives_tasks(inn, environments, backend, generator):
    found = Yield(generator=generator, package="inn")
    tasks = [
        task
        for split in ("train", "held-out")
        async for task in generate_tasks(
            environments, inn, backend=backend, generator=generator, split=split, count=1, k=1, found=found
        )
    ]
    assert len(tasks) == 1 and tasks[0].gold.keys() <= {"inn/bills.py", "inn/__init__.py"}, found.rejected
    assert "conftest.py" in tasks[0].protected and "conftest.py" not in tasks[0].verifier.test_files
