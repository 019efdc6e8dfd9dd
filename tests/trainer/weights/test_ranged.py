"""The range coder and the smallest form of a delta: exact, smaller than gaps with zstd, the same without a compiler."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.weights.test_codec import there_and_back, trained
from trainer.weights import CorruptPayload, codec
from trainer.weights.codec import FORMATS, block, range_coder, ranged

NARROW = [name for name, form in FORMATS.items() if ranged.fits(form)]
WITHOUT_COMPILER = """
import sys
sys.modules["numba"] = None
import numpy as np
from trainer.weights.codec import FORMATS, block, decode, encode, ranged
assert not ranged.IS_COMPILED
base, new, coded = (np.load(path) for path in sys.argv[1:])
out = np.empty_like(new)
decode(base, coded.tobytes(), FORMATS["bfloat16"], out)
assert np.array_equal(out, new)
again = encode(base, new, FORMATS["bfloat16"])
assert again[0] == block.ORDERED
decode(base, again, FORMATS["bfloat16"], out)
assert np.array_equal(out, new)
"""


def test_the_formats_are_floats_of_one_and_two_bytes() -> None:
    assert set(NARROW) == {
        "bfloat16",
        "float16",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
    }


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_decisions_come_back_whatever_their_odds(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    count = data.draw(st.integers(0, 600))
    bits = (random.random(count) < data.draw(st.sampled_from([0.0, 0.001, 0.3, 1.0]))).astype(int).tolist()
    sizes = random.integers(0, 17, count).tolist()
    values = [
        int(random.integers(0, 1 << size)) if data.draw(st.booleans()) else (1 << size) - 1 for size in sizes[:20]
    ]
    out, odds, coder = np.zeros(64 + 8 * count, np.uint8), range_coder.new_odds(3), range_coder.NEW
    for index, bit in enumerate(bits):
        coder = range_coder.put_bit(coder, out, odds, index % 3, bit)
        if index < len(values):
            coder = range_coder.put_even(coder, out, values[index], sizes[index])
    coded = out[: range_coder.finish(coder, out)].copy()
    odds, coder = range_coder.new_odds(3), range_coder.start(coded)
    for index, bit in enumerate(bits):
        found, coder = range_coder.get_bit(coder, coded, odds, index % 3)
        assert found == bit
        if index < len(values):
            found, coder = range_coder.get_even(coder, coded, sizes[index])
            assert found == values[index]
    assert coder[2] <= coded.size + range_coder.READ_AHEAD


@st.composite
def deltas(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, str]:
    """Words of which at most a tenth changes: by one, by a little, by anything; all contexts or few."""
    dtype = draw(st.sampled_from(NARROW))
    size = FORMATS[dtype].size
    count = draw(st.sampled_from([1, 10, 11, 500, 5000]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    base = random.integers(0, 1 << (8 * size), count).astype(FORMATS[dtype].words)
    if draw(st.booleans()):
        base &= base.dtype.type(FORMATS[dtype].mask << FORMATS[dtype].shift >> 1 & 0x3F87)
    new = base.copy()
    hit = random.choice(count, draw(st.integers(0, count // 10)), replace=False)
    by = draw(st.sampled_from([1, 5, 1 << (8 * size - 1)]))
    new[hit] += random.integers(1, by, hit.size, endpoint=True).astype(base.dtype)
    return base.view(np.uint8), new.view(np.uint8), dtype


@given(deltas())
@settings(max_examples=80, deadline=None)
def test_any_delta_of_few_words_comes_back(case: tuple[np.ndarray, np.ndarray, str]) -> None:
    base, new, dtype = case
    assert there_and_back(base, new, dtype, "small")[0] == block.RANGED


def test_smaller_than_ordered_gaps_with_zstd() -> None:
    before, after = trained(1 << 20, 1e-6)
    small = there_and_back(before, after, "bfloat16", "small")
    ordered = there_and_back(before, after, "bfloat16", "small", codec.loops(compiled=False))
    assert small[0] == block.RANGED and ordered[0] == block.ORDERED
    assert len(small) < 0.9 * len(ordered)


def test_where_many_words_change_the_faster_form_is_kept() -> None:
    before, after = trained(1 << 18, 1e-4)
    assert there_and_back(before, after, "bfloat16", "small")[0] != block.RANGED


def test_a_machine_without_a_compiler_reads_it_and_writes_the_other_form(tmp_path: Path) -> None:
    before, after = trained(1 << 16, 3e-6)
    coded = np.frombuffer(there_and_back(before, after, "bfloat16", "small"), np.uint8)
    assert coded[0] == block.RANGED
    files = [str(tmp_path / f"{name}.npy") for name in ("before", "after", "coded")]
    for file, array in zip(files, (before, after, coded), strict=True):
        np.save(file, array)
    done = subprocess.run([sys.executable, "-c", WITHOUT_COMPILER, *files], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_block_that_changes_other_words_than_it_promises_is_refused() -> None:
    before, after = trained(1 << 16, 3e-6)
    form = FORMATS["bfloat16"]
    coded = bytearray(there_and_back(before, after, "bfloat16", "small"))
    at = block.HEADER.size + block.LENGTH.size
    coded[at] ^= 1  # the count of changed words
    with pytest.raises(CorruptPayload, match=r"promises|past the end"):
        codec.decode(before, bytes(coded), form, after.copy())
    with pytest.raises(CorruptPayload, match="how many words"):
        codec.decode(before, block.HEADER.pack(block.RANGED, 2, 1 << 16) + block.LENGTH.pack(0), form, after.copy())


def test_compiled_code_is_made_anew_when_the_coder_changes() -> None:
    digest = hashlib.sha256(Path(range_coder.__file__).read_bytes()).hexdigest()[:16]
    assert digest == ranged.BUILT_ON, f"set BUILT_ON in ranged.py to {digest}: numba compiles it again then"
