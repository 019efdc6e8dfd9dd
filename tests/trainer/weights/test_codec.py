"""The codec is exact on bit patterns: what goes in comes out, whatever the bits mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.weights import CorruptPayload, codec
from trainer.weights.tensors import DTYPES, RawTensor, freeze, thaw

WORDS = {"bfloat16": 2, "float16": 2, "float32": 4}
SPECIAL = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 1e-45, 6e-8]


@st.composite
def versions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    word = draw(st.sampled_from([1, 2, 4, 8]))
    count = draw(st.integers(0, 200))
    base = np.frombuffer(draw(st.binary(min_size=count * word, max_size=count * word)), np.uint8)
    new = base.copy()
    for index in draw(st.lists(st.integers(0, max(0, count * word - 1)), max_size=20)):
        if new.size:
            new[index] ^= draw(st.integers(0, 255))
    return base, new, word


@given(versions())
@settings(max_examples=200, deadline=None)
def test_any_bytes_come_back(case: tuple[np.ndarray, np.ndarray, int]) -> None:
    base, new, word = case
    decoded = codec.decode(base, codec.encode(base, new, word), word)
    assert decoded.tobytes() == new.tobytes()


@pytest.mark.parametrize("dtype", WORDS)
def test_special_values_keep_their_bits(dtype: str) -> None:
    old = torch.tensor(SPECIAL, dtype=DTYPES[dtype])
    new = old.roll(1)
    (base, _), (target, _) = freeze({"w": old}, dtype), freeze({"w": new}, dtype)
    word = target["w"].word
    assert word == WORDS[dtype]
    decoded = codec.decode(base["w"].data, codec.encode(base["w"].data, target["w"].data, word), word)
    assert decoded.tobytes() == target["w"].data.tobytes()
    back = RawTensor(dtype, (len(SPECIAL),), decoded).tensor()
    assert back.view(torch.uint8).tolist() == new.view(torch.uint8).tolist()


@pytest.mark.parametrize("dtype", WORDS)
def test_every_sixteen_bit_pattern_survives(dtype: str) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16).astype(f"<u{WORDS[dtype]}").view(np.uint8)
    shifted = np.roll(patterns, WORDS[dtype])
    decoded = codec.decode(patterns, codec.encode(patterns, shifted, WORDS[dtype]), WORDS[dtype])
    assert decoded.tobytes() == shifted.tobytes()


def test_a_delta_of_another_size_is_refused() -> None:
    small, large = np.zeros(8, np.uint8), np.zeros(16, np.uint8)
    with pytest.raises(CorruptPayload, match="holds 16 bytes"):
        codec.decode(small, codec.encode(large, large, 2), 2)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_flipped_or_cut_delta_never_decodes_to_something_else_silently(data: st.DataObject) -> None:
    base = np.arange(64, dtype=np.uint8)
    coded = codec.encode(base, base[::-1].copy(), 2)
    if data.draw(st.booleans()):
        broken = coded[: data.draw(st.integers(0, len(coded) - 1))]
    else:
        at = data.draw(st.integers(0, len(coded) - 1))
        broken = coded[:at] + bytes([coded[at] ^ (1 << data.draw(st.integers(0, 7)))]) + coded[at + 1 :]
    try:
        decoded = codec.decode(base, broken, 2)
    except CorruptPayload:
        return
    assert decoded.size == base.size  # a flip in a header bit that means nothing; digests are the proof


def test_integers_keep_their_dtype_and_ties_share_memory() -> None:
    shared = torch.randn(3, 2)
    state = {
        "model.embed_tokens.weight": shared,
        "lm_head.weight": shared,
        "count": torch.tensor([2**40]),
        "s": torch.tensor(1.5),
    }
    raw, aliases = freeze(state, "bfloat16")
    assert aliases == {"lm_head.weight": "model.embed_tokens.weight"}
    back = thaw(raw, aliases)
    assert back["count"].dtype == torch.int64 and back["count"].item() == 2**40
    assert back["s"].shape == () and back["s"].item() == 1.5
    assert back["lm_head.weight"].data_ptr() == back["model.embed_tokens.weight"].data_ptr()
    assert torch.equal(back["lm_head.weight"], shared.bfloat16())
