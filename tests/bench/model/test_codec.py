"""`make bench NAME=codec` with tiny sizes: its peers give back what they were given, and its line has what the real one has."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.model import codec, codec_peers
from tests.bench.model.trainer import REPOSITORY

TENSORS = st.lists(
    st.tuples(st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1) | st.none()), min_size=1, max_size=300
)
"""Old words, and the new one where it changed."""


@given(TENSORS)
@pytest.mark.parametrize("peer", codec_peers.PLAIN, ids=lambda peer: type(peer).__name__)
def test_peers_give_back_what_they_were_given(peer: codec_peers.Peer, words: list[tuple[int, int | None]]) -> None:
    old = np.array([word for word, _ in words], np.uint16)
    new = np.array([word if to is None else to for word, to in words], np.uint16)
    out = np.zeros_like(new)
    payload = peer.encode(old, new)
    peer.decode(old, payload, out)
    assert np.array_equal(out, new)
    if isinstance(peer, codec_peers.Coo):
        assert len(payload) == 6 * int((old != new).sum())


def test_a_peer_that_decodes_wrongly_is_found() -> None:
    class Lossy(codec_peers.Coo):
        def encode(self, old: np.ndarray, new: np.ndarray) -> bytes:
            return super().encode(old, new & 0xFFFE)

    before = {"w": torch.zeros(64, dtype=torch.bfloat16)}
    after = {"w": torch.ones(64, dtype=torch.bfloat16).view(torch.int16).add(1).view(torch.bfloat16)}
    assert codec_peers.measure(codec_peers.Coo(), before, after, 1).bytes == 6 * 64
    with pytest.raises(AssertionError):
        codec_peers.measure(Lossy(), before, after, 1)


@pytest.mark.integration
def test_a_tiny_run_has_all_figures() -> None:
    sizes = ("--width", "64", "--depth", "1", "--warm", "2", "--repeats", "1", "--large", "8192")
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.model.codec", *sizes],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    line = json.loads(done.stdout.splitlines()[-1])
    peers = line["peers"]
    for rate in codec.RATES:
        assert peers[f"coo_bytes_per_change_{rate}"] == 6.0
        for peer in ("coo", "xor_zstd"):
            assert peers[f"{peer}_encode_mb_s_{rate}"] > 0 and peers[f"{peer}_decode_mb_s_{rate}"] > 0
        for mode in codec.MODES:
            assert line["metrics"][f"ratio_to_xor_zstd_{mode}_{rate}"] > 0
    assert set(line["goals"]) <= set(codec.GOALS) and "apply_share" in line["goals"]
