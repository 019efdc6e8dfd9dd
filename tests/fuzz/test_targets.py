"""Every target takes its seeds, what once broke it, and torn copies of both; `make fuzz` goes on from there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.__main__ import FOUND
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_what_once_broke_it(name: str) -> None:
    found = sorted((FOUND / name).iterdir()) if (FOUND / name).is_dir() else []
    for data in (*TARGETS[name].seeds, *(file.read_bytes() for file in found)):
        TARGETS[name].run(data)


@pytest.mark.parametrize("name", TARGETS)
@given(random=st.randoms(use_true_random=False), extra=st.binary(max_size=40))
def test_torn_copies(name: str, random: object, extra: bytes) -> None:
    for seed in TARGETS[name].seeds:
        at = random.randrange(len(seed) + 1)  # type: ignore[attr-defined]
        until = random.randrange(at, len(seed) + 1)  # type: ignore[attr-defined]
        TARGETS[name].run(seed[:at] + extra + seed[until:])


def test_everything_found_belongs_to_a_target() -> None:
    assert {folder.name for folder in FOUND.iterdir() if folder.is_dir()} <= set(TARGETS)
