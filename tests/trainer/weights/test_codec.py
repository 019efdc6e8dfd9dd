"""The codec is exact on bit patterns: what goes in comes out, whatever the bits mean and whichever loops did it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainer.weights import CorruptPayload, codec
from trainer.weights.codec import FORMATS, MODES, Mode, block
from trainer.weights.codec.streams import Loops
from trainer.weights.tensors import DTYPES, RawTensor, freeze, thaw

Array = np.ndarray
TIERS = [codec.loops(compiled=False), codec.loops()]
FLOATS = ["bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]
SPECIAL = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 1e-45, 6e-8]


def there_and_back(base: Array, new: Array, dtype: str, mode: Mode, loops: Loops | None = None) -> bytes:
    """Codes, decodes, compares; returns what was coded."""
    form = FORMATS[dtype]
    coded = codec.encode(base, new, form, mode, loops)
    out = np.full_like(new, 0xA5)
    codec.decode(base, coded, form, out, loops)
    assert out.tobytes() == new.tobytes()
    return coded


@st.composite
def versions(draw: st.DrawFn) -> tuple[Array, Array, str]:
    """Two versions of a tensor: from none to all of the words differ, by little or by anything."""
    dtype = draw(st.sampled_from(sorted(FORMATS)))
    size = FORMATS[dtype].size
    count = draw(st.sampled_from([0, 1, 2, 3, 7, 8, 9, 300, 2000]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    few = random.integers(0, 256, size, np.uint8)
    base = random.integers(0, 256, count * size, np.uint8)
    if draw(st.booleans()):  # few contexts: long gaps and crowded buckets
        base = np.tile(few, count)
    words = base.view(FORMATS[dtype].words).copy()
    hit = random.random(count) < draw(st.sampled_from([0.0, 0.003, 0.02, 0.3, 1.0]))
    by = draw(st.sampled_from([1, 200, 2 ** (8 * size) - 1]))
    with np.errstate(over="ignore"):
        words[hit] += random.integers(0, by, int(hit.sum()), words.dtype, endpoint=True)
    return base, words.view(np.uint8), dtype


@pytest.mark.integration
@given(versions(), st.sampled_from(MODES))
@settings(max_examples=60, deadline=None)
def test_any_bytes_come_back_and_both_loops_agree(case: tuple[Array, Array, str], mode: Mode) -> None:
    base, new, dtype = case
    ours, theirs = (there_and_back(base, new, dtype, mode, loops) for loops in TIERS)
    assert ours == theirs or (mode == "small" and theirs[0] == block.RANGED)  # which needs a compiler


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values_keep_their_bits(dtype: str, mode: Mode) -> None:
    old = torch.tensor(SPECIAL).to(DTYPES[dtype])
    new = old.view(torch.uint8).roll(DTYPES[dtype].itemsize).view(DTYPES[dtype])
    (base, _), (target, _) = freeze({"w": old}, dtype), freeze({"w": new}, dtype)
    assert target["w"].dtype == dtype  # a quantised tensor is published as it is
    there_and_back(base["w"].data, target["w"].data, dtype, mode)
    back = RawTensor(dtype, (len(SPECIAL),), target["w"].data).tensor()
    assert back.view(torch.uint8).tolist() == new.view(torch.uint8).tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("loops", TIERS, ids=["numpy", "installed"])
def test_every_pattern_survives_every_step(dtype: str, mode: Mode, loops: Loops) -> None:
    """All 16-bit patterns (8-bit ones over and over), each moved by a step that no format is spared."""
    words = FORMATS[dtype].words
    old = np.arange(1 << 16, dtype=np.uint64).astype(words)
    if words.itemsize > 2:
        old <<= 8 * words.itemsize - 16  # sign and exponent are up there
    old = old[:: words.itemsize].copy() if words.itemsize > 2 else old
    for step in (1, -128, 1 << 15):
        new = old.copy()
        with np.errstate(over="ignore"):
            new[::7] += np.array(step, np.int64).astype(words)
        there_and_back(old.view(np.uint8), new.view(np.uint8), dtype, mode, loops)


def test_packed_four_bit_values_are_ordered_by_both_magnitudes() -> None:
    random = np.random.default_rng(3)
    base = random.integers(0, 256, 200_000, np.uint8)
    new = base.copy()
    near_zero = (base & 0x77) == 0x11
    new[near_zero & (random.random(base.size) < 0.5)] ^= 0x10
    small, fast = (there_and_back(base, new, "float4_e2m1fn_x2", mode) for mode in MODES)
    assert len(small) < 0.6 * len(fast)


def trained(words: int, lr: float) -> tuple[Array, Array]:
    """bf16 weights before and after a step of the size that Adam takes at `lr`."""
    generator = torch.Generator().manual_seed(1)
    weights = 0.02 * torch.randn(words, generator=generator)
    after = weights - lr * 0.23 * torch.randn(words, generator=generator)
    before, then = freeze({"w": weights}, "bfloat16")[0]["w"], freeze({"w": after}, "bfloat16")[0]["w"]
    return before.data, then.data


def test_the_order_by_old_exponent_makes_a_training_step_smaller() -> None:
    before, after = trained(1 << 20, 3e-6)
    small, fast = (len(there_and_back(before, after, "bfloat16", mode)) for mode in MODES)
    form = FORMATS["bfloat16"]
    dense = len(block.pack_dense(before.view(form.words), after.view(form.words), form))
    assert small < 0.98 * fast and small < 0.5 * dense


def test_words_that_often_change_are_counted_apart_by_both_loops_alike() -> None:
    """A few words with small exponents hold a good part of a step's changes; the fast mode says those in bits."""
    before, after = trained(1 << 20, 1e-6)
    form = FORMATS["bfloat16"]
    old, new = before.view(form.words), after.view(form.words)
    plain = block.pack_sparse(block.PLAIN, old.size, form, TIERS[0].split(old, new, block.plain(form)))
    coded = [there_and_back(before, after, "bfloat16", "fast", loops) for loops in TIERS]
    assert coded[0] == coded[1] and coded[0][0] == block.BITMAP
    assert len(coded[0]) < 0.9 * len(plain)
    for words in (1, 7, 31, 33, 1000):  # ends that fill no group of eight bytes, or none of sixty-four
        there_and_back(before[: 2 * words], after[: 2 * words], "bfloat16", "fast")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lr", [1e-4, 1e-2, 1.0])
def test_never_larger_than_the_dense_form_when_most_words_change(mode: Mode, lr: float) -> None:
    before, after = trained(1 << 18, lr)
    form = FORMATS["bfloat16"]
    dense = len(block.pack_dense(before.view(form.words), after.view(form.words), form))
    assert len(there_and_back(before, after, "bfloat16", mode)) <= dense


def test_a_delta_of_another_size_is_refused() -> None:
    form = FORMATS["bfloat16"]
    small, large = np.zeros(8, np.uint8), np.zeros(16, np.uint8)
    with pytest.raises(CorruptPayload, match="8 words"):
        codec.decode(small, codec.encode(large, large, form), form, small.copy())
    with pytest.raises(CorruptPayload, match="of 2 bytes"):
        codec.decode(large, codec.encode(large, large, form), FORMATS["float32"], large.copy())


def refused_or_whole(base: Array, payload: bytes, dtype: str) -> None:
    for loops in TIERS:
        out = np.zeros_like(base)
        try:
            codec.decode(base, payload, FORMATS[dtype], out, loops)
        except CorruptPayload:
            pass  # anything else that is raised, or a crash, fails the test


def sample(dtype: str, mode: Mode) -> tuple[Array, bytes]:
    random = np.random.default_rng(11)
    words = FORMATS[dtype].words
    base = random.integers(0, 2 ** min(62, 8 * words.itemsize), 900, np.uint64).astype(words)
    new = base.copy()
    new[random.random(900) < 0.1] += 1
    new[random.random(900) < 0.02] += 77
    return base.view(np.uint8), codec.encode(base.view(np.uint8), new.view(np.uint8), FORMATS[dtype], mode)


@given(st.data(), st.sampled_from(["bfloat16", "float32", "uint8", "int64"]), st.sampled_from(MODES))
@settings(max_examples=80, deadline=None)
def test_broken_blocks_are_refused_or_harmless(data: st.DataObject, dtype: str, mode: Mode) -> None:
    base, coded = sample(dtype, mode)
    broken = bytearray(coded)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    refused_or_whole(base, bytes(broken[: data.draw(st.integers(0, len(broken)))]), dtype)
    refused_or_whole(base, bytes(broken), dtype)


@given(st.data(), st.sampled_from(["bfloat16", "float32", "uint8"]), st.integers(0, 4))
@settings(max_examples=80, deadline=None)
@example(None, "bfloat16", 1)
def test_hostile_streams_in_sound_frames_never_reach_outside(data: st.DataObject | None, dtype: str, kind: int) -> None:
    """Frames that decompress, with tables, gaps and steps that an attacker chose."""
    base, coded = sample(dtype, "small")
    form = FORMATS[dtype]
    if data is None:
        parts = [np.array([[0, 1, 5, 0]], "<u4").tobytes(), b"\xff" * 5, b"", b"\x02", b""]
    else:
        number = st.one_of(st.integers(0, 300), st.sampled_from([2**31, 2**31 + 3, 2**32 - 1, 900, 1 << 20]))
        rows = data.draw(st.lists(st.tuples(number, number, number, number), max_size=3))
        stream = st.binary(max_size=400)
        parts = [np.array(rows, "<u4").tobytes(), *(data.draw(stream) for _ in range(3)), data.draw(stream)]
    pack = bytes if kind == block.RANGED else zstandard.compress
    frames = [pack(part) if part else b"" for part in parts[: 1 if kind in (0, 4) else 5]]
    head = block.HEADER.pack(kind, form.size, base.size // form.size)
    lengths = b"".join(block.LENGTH.pack(len(frame)) for frame in frames)
    refused_or_whole(base, head + lengths + b"".join(frames), dtype)


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_refused_or_harmless(payload: bytes) -> None:
    refused_or_whole(np.zeros(64, np.uint8), payload, "bfloat16")


def test_a_frame_that_promises_too_much_is_not_unpacked() -> None:
    form = FORMATS["bfloat16"]
    bomb = zstandard.compress(bytes(1 << 28))
    assert len(bomb) < 100_000
    payload = block.HEADER.pack(block.DENSE, 2, 32) + block.LENGTH.pack(len(bomb)) + bomb
    with pytest.raises(CorruptPayload, match="promises 268435456 bytes where 64"):
        codec.decode(np.zeros(64, np.uint8), payload, form, np.zeros(64, np.uint8))


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
