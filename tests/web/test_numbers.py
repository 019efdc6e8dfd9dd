"""Numbers given as text: what is one, and that nothing else breaks a page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_web.core.numbers import ROW_ID, row_ids, whole


@pytest.mark.parametrize("text", ["", " 7", "-1", "+1", "1.0", "1e3", "0x1", "²", "Ⅷ", "1_000", "1" * 10, "NaN"])
def test_anything_else_is_none(text: str) -> None:
    assert whole(text) is None


@given(st.text(max_size=30))
def test_no_text_is_an_error(text: str) -> None:
    found = whole(text, digits=ROW_ID)
    assert found is None or 0 <= found < 10**ROW_ID < 2**63


@given(st.integers(0, 10**9 - 1))
def test_a_number_is_itself(number: int) -> None:
    assert whole(str(number)) == number


def test_ids_are_kept_once_in_order() -> None:
    assert row_ids(["7", "3", "x", "7", "²", "9" * 18, ""]) == [7, 3]
