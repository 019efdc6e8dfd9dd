"""`make bench NAME=…` finds a bench by its name alone, in whichever folder it lies."""

import pkgutil
from collections import Counter

import pytest

import tests.bench
from tests.bench.__main__ import module_of


def test_a_bench_is_found_in_its_folder_and_a_dash_is_an_underscore() -> None:
    assert module_of("house") == "tests.bench.house"
    assert module_of("sandbox-docker") == "tests.bench.sandbox.sandbox_docker"


def test_a_name_that_is_none_lists_those_that_are() -> None:
    with pytest.raises(SystemExit, match=r"no bench 'nothing'; there are .*engine.*taskgen"):
        module_of("nothing")


def test_no_two_benches_have_one_name() -> None:
    found = pkgutil.walk_packages(tests.bench.__path__, "tests.bench.")
    names = Counter(module.name.rpartition(".")[2] for module in found if not module.ispkg)
    assert [name for name, count in names.items() if count > 1] == []
