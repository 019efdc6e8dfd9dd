"""Causal attention of short rows in half precision, for processors without tiles for bf16.

Such a processor multiplies bf16 matrices twice as quickly as float32 ones, but the library's attention converts to and fro
for every block. Here queries are taken some at a time against the keys up to the last of them: scores and softmax in
float32, probabilities kept in half precision for the products with values and for the backward pass. That is quadratic in
memory, which is why rows are short.

    S = Q·Kᵀ/√d,   P = softmax S,   O = P·V;   ∂V = Pᵀ·∂O,   ∂S = P∘(∂O·Vᵀ − rowsum(∂O·Vᵀ∘P)),   ∂Q = ∂S·K,   ∂K = ∂Sᵀ·Q

Shape suffixes: B rows, H heads, K heads of keys and values, T length, D and E widths of a key and a value, C queries at a time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

LONGEST = 1024
"""Rows of more tokens would keep too many probabilities."""
QUERIES = 64
"""At a time: fewer skip more of what lies ahead of them, more make larger products."""


def causal_attention(query_BHTD: Tensor, key_BKTD: Tensor, value_BKTE: Tensor, *, scaling: float) -> Tensor:
    """[B, H, T, E] in the precision of the query, which is that of keys and values."""
    out: Tensor = _Attention.apply(query_BHTD, key_BKTD, value_BKTE, scaling)
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_BHTD: Tensor, key_BKTD: Tensor, value_BKTE: Tensor, scaling: float) -> Tensor:
        rows, heads, length, width = query_BHTD.shape
        pairs, per_key = rows * key_BKTD.shape[1], heads // key_BKTD.shape[1]
        query = (query_BHTD * scaling).reshape(pairs, per_key, length, width)
        key, value = key_BKTD.reshape(pairs, length, width), value_BKTE.reshape(pairs, length, -1)
        whole_query, whole_key = query.float(), key.float().mT
        out = query.new_empty(pairs, per_key, length, value.shape[-1])
        kept = []
        for start in range(0, length, QUERIES):
            end = min(start + QUERIES, length)
            now = slice(start, end)
            scores = torch.bmm(whole_query[:, :, now].flatten(1, 2), whole_key[:, :, :end]).unflatten(1, (per_key, -1))
            scores[..., start:].add_(_ahead(end - start))
            probabilities = torch.softmax(scores, dim=-1).to(query.dtype).flatten(1, 2)
            out[:, :, now] = torch.bmm(probabilities, value[:, :end]).unflatten(1, (per_key, -1))
            kept.append(probabilities)
        ctx.save_for_backward(query, key, value, *kept)
        ctx.scaling, ctx.shapes = scaling, (query_BHTD.shape, key_BKTD.shape, value_BKTE.shape)
        return out.view(rows, heads, length, -1)

    @staticmethod
    def backward(ctx: Any, gradient_BHTE: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, *kept = ctx.saved_tensors
        gradient = gradient_BHTE.to(query.dtype).reshape(*query.shape[:3], -1)
        of_query = torch.empty_like(query)
        of_key, of_value = torch.zeros(key.shape), torch.zeros(value.shape)  # sums over blocks stay in float32
        for start, probabilities in zip(range(0, query.shape[2], QUERIES), kept, strict=True):
            end = probabilities.shape[2]
            now = slice(start, end)
            part = gradient[:, :, now].flatten(1, 2)
            of_value[:, :end] += torch.bmm(probabilities.mT, part)
            of_shares = torch.bmm(part, value[:, :end].mT)
            of_scores = torch._softmax_backward_data(of_shares, probabilities, -1, query.dtype)
            of_query[:, :, now] = torch.bmm(of_scores, key[:, :end]).unflatten(1, (query.shape[1], -1))
            of_key[:, :end] += torch.bmm(of_scores.mT, query[:, :, now].flatten(1, 2))
        found = (of_query.mul_(ctx.scaling), of_key.to(query.dtype), of_value.to(query.dtype))
        of_query, of_key, of_value = (part.view(shape) for part, shape in zip(found, ctx.shapes, strict=True))
        return of_query, of_key, of_value, None


@cache
def _ahead(count: int) -> Tensor:
    """What is added to the scores [C, C] of queries and keys of the same places."""
    return torch.full((count, count), float("-inf")).triu(1)
