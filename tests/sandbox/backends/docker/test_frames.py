"""The engine's framing, however its bytes are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.docker.frames import HEADER, STDERR, STDOUT, Streams


@given(st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=50))), st.lists(st.integers(1, 20)))
def test_any_cut_gives_the_same(written: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(HEADER.pack(stream, len(payload)) + payload for stream, payload in written)
    streams, found = Streams(), []
    for size in cuts:
        found += streams.feed(data[:size])
        data = data[size:]
    assert found + streams.feed(data) == written
