"""Compiled loops against torch's own operators."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from trainer.inference.embedded.kernels import numba_loops
from trainer.inference.embedded.kernels.loops import Loops, compiled_loops
from trainer.inference.embedded.linear import Linear
from trainer.inference.embedded.sampling import sample


@pytest.fixture
def loops() -> Loops:
    found = compiled_loops()
    assert found is not None, "numba is a dependency: it must be there"
    return found


@pytest.mark.parametrize(("inputs", "outputs"), [(33, 97), (64, 32), (128, 160), (48, 176)])
def test_products_equal_torch_and_a_row_does_not_depend_on_its_batch(loops: Loops, inputs: int, outputs: int) -> None:
    torch.manual_seed(inputs)
    weight, bias, x = torch.randn(outputs, inputs), torch.randn(outputs), torch.randn(800, inputs)
    linear = Linear.of(weight, bias, loops)
    whole = linear(x)
    torch.testing.assert_close(whole, F.linear(x, weight, bias), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(Linear.of(weight, None, loops)(x), F.linear(x, weight), rtol=1e-5, atol=1e-4)
    for rows in (*range(1, 21), 32, 383, 384, 390, 700):
        assert linear(x[3 : 3 + rows]).equal(whole[3 : 3 + rows])


@pytest.mark.parametrize(
    ("file", "made_of"),
    [
        ("numba_products.py", ["vectors.py"]),
        ("numba_attention.py", ["vectors.py", "numba_basics.py"]),
        ("numba_loops.py", ["vectors.py", "numba_products.py", "numba_basics.py"]),
    ],
)
def test_compiled_code_is_made_anew_when_what_it_is_made_of_changes(file: str, made_of: list[str]) -> None:
    folder = Path(numba_loops.__file__).parent
    digest = hashlib.sha256(b"".join((folder / name).read_bytes() for name in made_of)).hexdigest()[:16]
    assert f'BUILT_ON = "{digest}"' in (folder / file).read_text(), (
        f"set BUILT_ON in {file}: numba compiles it again then"
    )


def scattered(cache_S2TE: torch.Tensor, order: list[int]) -> tuple[np.ndarray, np.ndarray, int]:
    """Sequences cut into blocks of 16 that lie in this order: rows for the loops, block tables, rows of all keys."""
    sequences, _, length, width = cache_S2TE.shape
    blocks = -(-length // 16)
    filled = F.pad(cache_S2TE, (0, 0, 0, blocks * 16 - length)).view(sequences, 2, blocks, 16, width)
    pool = filled.transpose(0, 1).reshape(2, sequences * blocks, 16, width)
    placed = torch.empty_like(pool)
    placed[:, order] = pool
    tables = np.array(order, np.int64).reshape(sequences, blocks)
    return placed.reshape(-1, width).numpy(), tables, sequences * blocks * 16


ORDERS = {
    "side by side": list(range(18)),
    "scattered": [11, 4, 5, 17, 0, 12, 1, 2, 3, 16, 9, 8, 7, 6, 10, 13, 15, 14],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [24, 32, 64, 128])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (2, 1), (3, 3), (4, 4), (6, 2), (9, 3)])
def test_attention_reads_exactly_the_keys_that_a_token_may_see(
    loops: Loops, size: int, heads: int, kv_heads: int, order: str
) -> None:
    torch.manual_seed(size + heads)
    cache = torch.randn(3, 2, 90, kv_heads * size)
    lengths, sequences = [1, 7, 90, 18, 33], [2, 0, 1, 0, 2]
    q = torch.randn(len(lengths), heads * size)
    out = torch.empty_like(q)
    rows, tables, values_after = scattered(cache, ORDERS[order])
    at, seen = np.array(sequences), np.array(lengths)
    alone = np.zeros(len(lengths), np.int64)
    scale = np.float32(0.3)
    loops.attend(q.numpy(), rows, tables, at, 0, seen, alone, values_after, scale, size, out.numpy())
    for row, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
        keys, values = (part[:length].view(length, kv_heads, size).transpose(0, 1) for part in cache[sequence])
        own = q[row].view(heads, 1, size)
        expected = F.scaled_dot_product_attention(
            own[None], keys[None], values[None], scale=0.3, enable_gqa=heads > kv_heads
        )
        torch.testing.assert_close(out[row], expected.flatten(), rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("common", [71, 64])
@pytest.mark.parametrize("size", [24, 32, 64])
def test_where_keys_lie_and_that_a_shared_prefix_is_read_once_changes_no_bit(
    loops: Loops, size: int, common: int
) -> None:
    torch.manual_seed(size)
    cache = torch.randn(3, 2, 90, 2 * size)
    cache[1:, :, :common] = cache[:1, :, :common]
    lengths, sequences = [73, 80, 90, 74, 3], [0, 1, 2, 1, 0]
    shared = [0, common, common, common, 0]
    q = torch.randn(len(lengths), 4 * size)

    def attend(keys: torch.Tensor, shared: list[int], order: str) -> torch.Tensor:
        rows, tables, values_after = scattered(keys, ORDERS[order])
        out, scale, at = torch.empty_like(q), np.float32(0.3), np.array(sequences)
        seen, common_N = np.array(lengths), np.array(shared)
        loops.attend(q.numpy(), rows, tables, at, 0, seen, common_N, values_after, scale, size, out.numpy())
        return out

    expected = attend(cache, [0] * 5, "side by side")
    assert attend(cache, [0] * 5, "scattered").equal(expected)
    cache[1:, :, :common] = float("nan")  # not read: the first of the run has them
    for order in ORDERS:
        assert attend(cache, shared, order).equal(expected)


def test_drawing_takes_the_same_tokens_as_torch(loops: Loops) -> None:
    torch.manual_seed(1)
    logits = torch.randn(200, 1000) * 6
    logits[:50, 3::2] = float("-inf")
    temperatures = [0.0, 0.3, 0.8, 1.0, 1.7] * 40
    uniforms = np.random.default_rng(0).random(200).tolist()
    uniforms[7], uniforms[8] = 0.0, 1.0 - 2**-53
    tokens, logprobs = sample(logits, temperatures, uniforms, loops)
    plain, plain_logprobs = sample(logits, temperatures, uniforms)
    assert sum(a == b for a, b in zip(tokens, plain, strict=True)) >= 199  # a draw may lie on a boundary
    same = [n for n in range(200) if tokens[n] == plain[n]]
    torch.testing.assert_close(
        torch.tensor([logprobs[n] for n in same]),
        torch.tensor([plain_logprobs[n] for n in same]),
        rtol=1e-5,
        atol=1e-5,
    )
    assert all(token < 3 or token % 2 == 0 for token in tokens[:50])  # closed tokens are never drawn


def test_a_row_does_not_depend_on_its_batch(loops: Loops) -> None:
    torch.manual_seed(2)
    logits = torch.randn(9, 333) * 4
    uniforms = np.random.default_rng(1).random(9).tolist()
    together = sample(logits, [0.9] * 9, uniforms, loops)
    alone = [sample(logits[n : n + 1], [0.9], uniforms[n : n + 1], loops) for n in range(9)]
    assert together == ([a[0][0] for a in alone], [a[1][0] for a in alone])


def test_gate_and_norms() -> None:
    torch.manual_seed(3)
    both = torch.randn(5, 66) * 20
    out = torch.empty(5, 33)
    numba_loops.gate(both.numpy(), out.numpy())
    torch.testing.assert_close(out, F.silu(both[:, :33]) * both[:, 33:], rtol=1e-5, atol=1e-6)
    x, delta, weight, normed = torch.randn(5, 33), torch.randn(5, 33), torch.randn(33), torch.empty(5, 33)
    summed = x + delta
    numba_loops.add_norm(x.numpy(), delta.numpy(), weight.numpy(), np.float32(1e-6), normed.numpy())
    torch.testing.assert_close(x, summed)
    torch.testing.assert_close(normed, F.rms_norm(summed, (33,), weight, 1e-6), rtol=1e-5, atol=1e-6)
    numba_loops.norm(x.numpy(), weight.numpy(), np.float32(1e-6), normed.numpy())
    torch.testing.assert_close(normed, F.rms_norm(summed, (33,), weight, 1e-6), rtol=1e-5, atol=1e-6)
