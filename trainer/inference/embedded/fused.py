"""Forward pass of a dense decoder through compiled loops, in buffers that persist between steps.

The arithmetic is that of `model.py`. Torch's dozen small operators per layer become two calls around attention, and each
writes where the next one reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from trainer.inference.embedded.attention import Attention
from trainer.inference.embedded.batch import Batch
from trainer.inference.embedded.cache import KVCache
from trainer.inference.embedded.kernels.loops import Floats, Loops
from trainer.inference.embedded.linear import Linear
from trainer.inference.embedded.model import Decoder, Layer, Weights
from trainer.inference.embedded.shape import DecoderShape


@dataclass(frozen=True, slots=True)
class _Views:
    """A layer's weights in the form of the loops."""

    norm_in_C: Floats
    norm_mlp_C: Floats
    normed: bool
    query_norm_D: Floats
    key_norm_D: Floats
    qkv: tuple[Floats, Floats]
    out: tuple[Floats, Floats]
    gate_up: tuple[Floats, Floats]
    down: tuple[Floats, Floats]

    @classmethod
    def of(cls, layer: Layer, head_dim: int) -> _Views:
        ones = torch.ones(head_dim)
        return cls(
            layer.norm_in_C.numpy(),
            layer.norm_mlp_C.numpy(),
            layer.query_norm_D is not None and layer.key_norm_D is not None,
            (ones if layer.query_norm_D is None else layer.query_norm_D).numpy(),
            (ones if layer.key_norm_D is None else layer.key_norm_D).numpy(),
            *(_arrays(linear) for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)),
        )


def _arrays(linear: Linear) -> tuple[Floats, Floats]:
    assert linear.panels is not None, "these weights were built for a decoder without compiled loops"
    return linear.panels.weight_PIO, linear.panels.bias_PO


class _Space:
    """Buffers for N tokens, as tensors and as the arrays that share their memory."""

    def __init__(self, shape: DecoderShape, tokens: int) -> None:
        heads, kv_heads, size = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        new = partial(torch.empty, tokens)
        self.x, self.normed, self.delta = new(shape.hidden_size), new(shape.hidden_size), new(shape.hidden_size)
        self.qkv, self.q, self.attended = new((heads + 2 * kv_heads) * size), new(heads * size), new(heads * size)
        self.gate_up, self.gated = new(2 * shape.intermediate_size), new(shape.intermediate_size)
        self.logits = new(shape.vocab_size)
        self.x_, self.normed_, self.delta_ = self.x.numpy(), self.normed.numpy(), self.delta.numpy()
        self.qkv_, self.q_, self.attended_ = self.qkv.numpy(), self.q.numpy(), self.attended.numpy()
        self.gate_up_, self.gated_ = self.gate_up.numpy(), self.gated.numpy()

    def part(self, first: int, last: int) -> _Space:
        """The same buffers, for tokens [first, last)."""
        part = object.__new__(_Space)
        part.__dict__ = {name: buffer[first:last] for name, buffer in vars(self).items()}
        return part


class FusedDecoder(Decoder):
    def __init__(self, shape: DecoderShape, weights: Weights, max_length: int, loops: Loops) -> None:
        super().__init__(shape, weights, max_length)
        self.loops: Loops = loops
        self._cos_TD, self._sin_TD = self.cos_TD.numpy(), self.sin_TD.numpy()
        self._viewed: Weights | None = None
        self._layers: list[_Views] = []
        self._whole = self._space = _Space(shape, 0)

    @torch.inference_mode()
    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """Like `Decoder.forward`; the logits are valid until the next call."""
        weights, loops, eps = self.weights, self.loops, np.float32(self.shape.rms_norm_eps)
        if self._viewed is not weights:
            self._layers, self._viewed = [_Views.of(layer, self.head_dim) for layer in weights.layers], weights
        count = len(batch.tokens_N)
        space = self._room(count)
        positions_N, rows_N = batch.positions_N.numpy(), batch.rows_N.numpy()
        attention = Attention(batch, cache, self.heads, loops)
        torch.index_select(weights.embedding_VC, 0, batch.tokens_N, out=space.x)
        loops.norm(space.x_, self._layers[0].norm_in_C, eps, space.normed_)
        ends = [*(view.norm_in_C for view in self._layers[1:]), weights.norm_C.numpy()]
        for index, (view, end_C) in enumerate(zip(self._layers, ends, strict=True)):
            loops.enter(
                space.normed_, *view.qkv, space.qkv_,
                self._cos_TD, self._sin_TD, positions_N,
                view.normed, view.query_norm_D, view.key_norm_D, eps,
                self.kv_heads, cache.rows, rows_N + index * cache.layer_rows, cache.tokens, space.q_,
            )  # fmt: skip
            attention(index, space.q, self.scale, space.attended)
            loops.leave(
                space.attended_, *view.out, space.x_, space.delta_,
                view.norm_mlp_C, eps, space.normed_,
                *view.gate_up, space.gate_up_, space.gated_, *view.down, end_C,
            )  # fmt: skip
        wanted = len(batch.logits_at)
        last = space.normed if wanted == count else space.normed[batch.logits_at]
        self.hidden = last
        return weights.head(last, space.logits[:wanted])

    def _room(self, tokens: int) -> _Space:
        if len(self._whole.x) < tokens:
            self._whole = self._space = _Space(self.shape, tokens)
        if len(self._space.x) != tokens:
            self._space = self._whole.part(0, tokens)
        return self._space
