"""Packed rows compute what their documents compute alone."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import Qwen3ForCausalLM

from tests.trainer.learning.models import VOCABULARY, tiny_model
from trainer.learning.supervised import Example, positions, weighted_loss
from trainer.midtrain.packing import best_fit, cut, join, pack
from trainer.policy.context import ContextNotExtensible, extend_context


def documents(count: int, *, seed: int = 0, longest: int = 30) -> list[Example]:
    rng = random.Random(seed)
    lengths = [rng.randint(2, longest) for _ in range(count)]
    return [Example([rng.randrange(VOCABULARY) for _ in range(n)], [0.0] + [1.0] * (n - 1)) for n in lengths]


def test_no_document_sees_another() -> None:
    model, made = tiny_model().eval(), documents(5)
    row = join(made)
    with torch.no_grad():
        packed, _ = weighted_loss(model, [row])
        alone = [(float(weighted_loss(model, [one])[0]), len(one.ids) - 1) for one in made]
        expected = sum(loss * n for loss, n in alone) / sum(n for _, n in alone)
        assert float(packed) == pytest.approx(expected, abs=2e-3)  # bfloat16
        where = positions([row], len(row.ids))
        together = model(input_ids=torch.tensor([row.ids]), position_ids=where, use_cache=False).logits[0]
        for one, start in zip(made, row.starts, strict=True):
            by_itself = model(input_ids=torch.tensor([one.ids])).logits[0]
            torch.testing.assert_close(together[start : start + len(one.ids)], by_itself, atol=1e-5, rtol=1e-4)


def test_rows_are_full_and_nothing_is_lost() -> None:
    made = documents(200, longest=80)
    rows = list(pack(iter(made), length=64, seed=1))
    assert sorted(token for row in rows for token in row.ids) == sorted(token for one in made for token in one.ids)
    assert max(len(row.ids) for row in rows) <= 64
    assert sum(len(row.ids) for row in rows) / (64 * len(rows)) > 0.95
    for row in rows:
        assert all(row.weights[start] == 0.0 for start in row.starts)
    assert rows == list(pack(iter(made), length=64, seed=1))


def test_a_long_document_is_cut_and_a_row_takes_what_fits_best() -> None:
    (whole,) = documents(1, seed=3, longest=30)
    pieces = cut(whole, 4)
    assert [token for piece in pieces for token in piece.ids] == whole.ids
    rows = best_fit([Example([1] * n, [1.0] * n) for n in (6, 5, 4, 3)], 10)
    assert [[len(piece.ids) for piece in row] for row in rows] == [[6, 4], [5, 3]]


@pytest.mark.parametrize("kind", ["theta", "linear", "yarn"])
def test_contexts_grow_in_place(kind, tmp_path) -> None:
    model = tiny_model().eval()
    before = {name: tensor.data_ptr() for name, tensor in model.named_parameters()}
    tokens = torch.randint(0, VOCABULARY, (1, 300), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        short = model(tokens).logits
        extend_context(model, tokens=512, kind=kind)
        longer = model(tokens).logits
    assert {name: tensor.data_ptr() for name, tensor in model.named_parameters()} == before
    assert torch.isfinite(longer).all() and not torch.equal(short, longer)
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        again = Qwen3ForCausalLM.from_pretrained(tmp_path)(tokens).logits
    torch.testing.assert_close(again, longer)
    extend_context(model, tokens=512, kind=kind)
    if kind != "theta":
        with pytest.raises(ContextNotExtensible, match=kind):
            extend_context(model, tokens=1024, kind=kind)
