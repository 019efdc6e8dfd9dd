import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from trainer.weights import differences

FILE = "model.safetensors"


def write(folder, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / FILE, {"format": "pt"})
    return folder / FILE


def tensors(seed: int, dtype=torch.bfloat16, words: int = 5000):
    made = torch.Generator().manual_seed(seed)
    return {
        "a": torch.randn(words, generator=made).to(dtype),
        "b": torch.randn(7, 11, generator=made).to(dtype),
        "empty": torch.empty(0, 3, dtype=dtype),
        "steps": torch.arange(9),
    }


def nudged(state, seed: int, share: float = 0.02):
    """A later version: few words of `a` differ."""
    made = torch.Generator().manual_seed(seed)
    a = state["a"].clone()
    chosen = torch.rand(a.shape, generator=made) < share
    a[chosen] = a[chosen] * 1.01
    return {**state, "a": a}


def chain(root, count: int):
    """`count` folders, each a version later than the one before; all but the last are coded. Returns their first bytes."""
    state, files, before = tensors(0), [], []
    for number in range(count):
        files.append(write(root / str(number), state))
        before.append(files[-1].read_bytes())
        state = nudged(state, number)
    for older, newer in pairwise(files):
        assert differences.code(older, newer) is not None
        older.unlink()
    return files, before


def test_a_difference_is_small_and_gives_the_same_bytes_back(tmp_path):
    (older, _), (bytes_, _) = chain(tmp_path, 2)
    coded = older.with_name(FILE + differences.SUFFIX)
    assert coded.stat().st_size < len(bytes_) / 2
    assert differences.described(coded).parameters == 5000 + 77 + 9
    assert differences.restore(older.parent) == [older]
    assert older.read_bytes() == bytes_
    assert sorted(path.name for path in older.parent.iterdir()) == [".restore.lock", FILE]
    assert differences.restore(older.parent) == []


def test_a_chain_is_followed_and_leaves_nothing_between(tmp_path):
    files, before = chain(tmp_path, 5)
    differences.restore(files[0].parent)
    assert files[0].read_bytes() == before[0]
    assert [file.is_file() for file in files] == [True, False, False, False, True]
    differences.restore(files[2].parent)
    assert files[2].read_bytes() == before[2]


def test_threads_that_ask_at_once_get_one_file(tmp_path):
    files, before = chain(tmp_path, 3)
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(differences.restore, [files[0].parent] * 6))
    assert sum(map(len, made)) == 1
    assert files[0].read_bytes() == before[0]


def test_weights_that_changed_everywhere_stay_whole(tmp_path):
    older, newer = (write(tmp_path / str(n), tensors(n, torch.float32)) for n in (1, 2))
    assert differences.code(older, newer) is None
    assert sorted(path.name for path in older.parent.iterdir()) == [FILE]


def test_files_with_other_tensors_and_no_safetensors_stay_whole(tmp_path):
    older = write(tmp_path / "a", tensors(0))
    assert differences.code(older, write(tmp_path / "b", {"c": torch.ones(3)})) is None
    junk = tmp_path / "junk"
    junk.write_bytes(b"\xff" * 40)
    assert differences.code(older, junk) is None
    assert differences.code(junk, junk) is None


@pytest.mark.parametrize("what", ["changed", "removed", "cut", "described wrongly"])
def test_what_cannot_be_restored_says_why_and_what_to_do(tmp_path, what):
    (older, newer), _ = chain(tmp_path, 2)
    coded = older.with_name(FILE + differences.SUFFIX)
    if what == "changed":
        data = bytearray(newer.read_bytes())
        data[-1] ^= 1
        newer.write_bytes(data)
    elif what == "removed":
        newer.unlink()
    elif what == "cut":
        coded.write_bytes(coded.read_bytes()[:-20])
    else:
        save_file({"block/0": torch.zeros(3, dtype=torch.uint8)}, coded, {"difference": json.dumps({"base": "x"})})
    with pytest.raises(differences.DifferenceError, match="start from another version of this policy"):
        differences.restore(older.parent)
    assert not older.exists()


def test_a_difference_that_names_itself_ends(tmp_path):
    (older, newer), _ = chain(tmp_path, 2)
    newer.unlink()
    coded = older.with_name(FILE + differences.SUFFIX)
    (newer.parent / coded.name).write_bytes(coded.read_bytes().replace(b"../1/model", b"../0/model"))
    with pytest.raises(differences.DifferenceError):
        differences.restore(older.parent)


@settings(max_examples=40, deadline=None)
@given(
    dtypes=st.lists(
        st.sampled_from(
            [torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.uint8, torch.bool, torch.int64]
        ),
        min_size=1,
        max_size=4,
    ),
    sizes=st.lists(st.integers(0, 60), min_size=4, max_size=4),
    flips=st.lists(st.integers(0, 10_000), max_size=5),
)
def test_any_tensors_come_back(tmp_path_factory, dtypes, sizes, flips):
    root = tmp_path_factory.mktemp("any")
    state = {
        f"t{n}": torch.zeros(size, dtype=dtype) for n, (dtype, size) in enumerate(zip(dtypes, sizes, strict=False))
    }
    newer = write(root / "new", state)
    data = bytearray(newer.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    for flip in flips if len(data) > start else ():
        data[start + flip % (len(data) - start)] ^= 1 + flip % 255
    older = root / "old" / FILE
    older.parent.mkdir()
    older.write_bytes(data)
    if differences.code(older, newer) is not None:
        older.unlink()
        differences.restore(older.parent)
    assert older.read_bytes() == bytes(data)
