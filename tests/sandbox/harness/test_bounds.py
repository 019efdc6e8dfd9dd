from hypothesis import given
from hypothesis import strategies as st

from sandbox.harness.bounds import bound, cut_notice


def test_short_text_is_left_alone():
    assert bound("a\nb", 10) == ("a\nb", 0)


def test_the_cut_is_announced_between_head_and_tail():
    text = "\n".join(f"line {number}" for number in range(1000))
    shown, cut = bound(text, 200)
    assert shown.startswith("line 0\nline 1\n")
    assert shown.endswith("\nline 998\nline 999")
    assert f"\n{cut_notice(cut)}\n" in shown
    head, tail = shown.split(f"\n{cut_notice(cut)}\n")
    assert cut == len(text) - len(head) - len(tail)


@given(st.text(max_size=400), st.integers(1, 200))
def test_bound_holds_for_any_text(text, limit):
    data = text.encode("utf-8", "replace")
    shown, cut = bound(text, limit)
    if len(data) <= limit:
        assert (shown, cut) == (text, 0)
        return
    head, tail = shown.split(f"\n{cut_notice(cut)}\n", 1)
    assert len(head.encode()) + len(tail.encode()) <= max(limit, 2)
    assert len(head.encode()) + len(tail.encode()) + cut == len(data)
    assert data.startswith(head.encode()) and data.endswith(tail.encode())
