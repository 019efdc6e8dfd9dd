"""Forward pass of a dense decoder over a packed batch: single tokens of many sequences and prompt chunks together.

Shape letters: N packed tokens, B decode rows, H query heads, K key/value heads, G = H/K, D head size,
T cached length, C hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
import torch.nn.functional as F
from safetensors import SafetensorError

from trainer.inference.embedded.attention import Attention
from trainer.inference.embedded.batch import Batch
from trainer.inference.embedded.cache import KVCache
from trainer.inference.embedded.devices import CPU
from trainer.inference.embedded.kernels.loops import Loops, compiled_loops
from trainer.inference.embedded.linear import Ground, Linear
from trainer.inference.embedded.shape import DecoderShape
from trainer.inference.errors import UnsupportedModel


@dataclass(frozen=True)
class Layer:
    norm_in_C: torch.Tensor
    norm_mlp_C: torch.Tensor
    qkv: Linear
    """Query, key and value projections stacked: (H + 2K) * D outputs."""
    out: Linear
    query_norm_D: torch.Tensor | None
    key_norm_D: torch.Tensor | None
    gate_up: Linear
    """Gate and up projections stacked."""
    down: Linear


@dataclass(frozen=True)
class Weights:
    """fp32 weights of one policy version, fused and laid out for decoding."""

    embedding_VC: torch.Tensor
    head: Linear
    norm_C: torch.Tensor
    layers: tuple[Layer, ...]

    @classmethod
    def build(
        cls,
        shape: DecoderShape,
        state: Mapping[str, torch.Tensor],
        *,
        compiled: bool = True,
        device: torch.device = CPU,
    ) -> Weights:
        """From tensors under Hugging Face names, for compiled loops where the machine has them and `device` is the CPU.

        Raises UnsupportedModel naming what is missing or left over.
        """
        used: set[str] = set()
        loops, ground = compiled_loops() if compiled and device == CPU else None, Ground()

        def take(name: str) -> torch.Tensor | None:
            if name not in state:
                return None
            used.add(name)
            return state[name].to(device, torch.float32)

        def need(name: str) -> torch.Tensor:
            tensor = take(name)
            if tensor is None:
                raise UnsupportedModel(f"weights lack {name}; do they belong to this config.json?")
            return tensor

        def stack(prefix: str, *names: str) -> Linear:
            weights = [need(f"{prefix}.{name}.weight") for name in names]
            biases = [take(f"{prefix}.{name}.bias") for name in names]
            has_bias = any(bias is not None for bias in biases)
            filled = [w.new_zeros(w.shape[0]) if b is None else b for w, b in zip(weights, biases, strict=True)]
            return Linear.of(torch.cat(weights), torch.cat(filled) if has_bias else None, loops, ground)

        layers = []
        for index in range(shape.num_hidden_layers):
            prefix = f"model.layers.{index}"
            layers.append(
                Layer(
                    norm_in_C=need(f"{prefix}.input_layernorm.weight"),
                    norm_mlp_C=need(f"{prefix}.post_attention_layernorm.weight"),
                    qkv=stack(f"{prefix}.self_attn", "q_proj", "k_proj", "v_proj"),
                    out=stack(f"{prefix}.self_attn", "o_proj"),
                    query_norm_D=take(f"{prefix}.self_attn.q_norm.weight"),
                    key_norm_D=take(f"{prefix}.self_attn.k_norm.weight"),
                    gate_up=stack(f"{prefix}.mlp", "gate_proj", "up_proj"),
                    down=stack(f"{prefix}.mlp", "down_proj"),
                )
            )
        embedding = need("model.embed_tokens.weight")
        head = take("lm_head.weight")
        if shape.tie_word_embeddings or head is None:
            if not shape.tie_word_embeddings:
                raise UnsupportedModel("weights lack lm_head.weight and config.json does not tie it to the embedding")
            head = embedding
        norm = need("model.norm.weight")
        left = sorted(set(state) - used)
        if left:
            raise UnsupportedModel(f"this engine does not know the tensor {left[0]} (and {len(left) - 1} more)")
        if embedding.shape != (shape.vocab_size, shape.hidden_size):
            raise UnsupportedModel(f"embedding is {tuple(embedding.shape)}, config.json says otherwise")
        return cls(embedding, Linear.of(head, loops=loops, ground=ground), norm, tuple(layers))


def read_state(policy_dir: Path) -> dict[str, torch.Tensor]:
    """All tensors of a policy directory. Raises UnsupportedModel when a file is absent or unreadable."""
    files = sorted(policy_dir.glob("*.safetensors"))
    if not files:
        raise UnsupportedModel(f"{policy_dir} holds no .safetensors file; save the policy again or name a store")
    state: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            state |= safetensors.torch.load_file(file)
        except SafetensorError as error:
            raise UnsupportedModel(f"{file} is not a readable safetensors file: {error}") from error
    return state


class Decoder:
    """The forward pass; weights can be exchanged between two calls."""

    routed: tuple[int, int] | None = None
    """Layers with experts and experts a token; dense policies have none."""
    loops: Loops | None = None
    """Compiled attention, where there is any."""
    device: torch.device = CPU
    """Where weights, keys and values lie."""
    hidden: torch.Tensor
    """The states that the last logits came from, [len(logits_at), C]; valid until the next call."""

    def __init__(self, shape: DecoderShape, weights: Weights, max_length: int) -> None:
        self.shape = shape
        self.weights = weights
        self.device = weights.embedding_VC.device
        self.heads, self.kv_heads, self.head_dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        self.scale = self.head_dim**-0.5
        self.cos_TD, sin = (table.to(self.device) for table in shape.rotary(max_length))
        half = sin.shape[1] // 2
        self.sin_TD = torch.cat((-sin[:, :half], sin[:, half:]), -1)  # signs of rotate-half, folded in once

    def rope(self, x_NHD: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(x_NHD * cos, x_NHD.roll(self.head_dim // 2, -1), sin)

    @torch.inference_mode()
    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """Logits [len(logits_at), V] in fp32; keys and values of the batch are written to the cache."""
        eps = self.shape.rms_norm_eps
        hidden = (self.shape.hidden_size,)
        q_size, kv_size = self.heads * self.head_dim, self.kv_heads * self.head_dim
        x = self.weights.embedding_VC[batch.tokens_N]
        count = x.shape[0]
        cos, sin = self.cos_TD[batch.positions_N][:, None], self.sin_TD[batch.positions_N][:, None]
        attention = Attention(batch, cache, self.heads, self.loops)
        attended = x.new_empty(count, q_size)
        for index, layer in enumerate(self.weights.layers):
            normed = F.rms_norm(x, hidden, layer.norm_in_C, eps)
            q, k, v = layer.qkv(normed).split((q_size, kv_size, kv_size), -1)
            q, k = q.view(count, self.heads, self.head_dim), k.view(count, self.kv_heads, self.head_dim)
            if layer.query_norm_D is not None and layer.key_norm_D is not None:
                q = F.rms_norm(q, (self.head_dim,), layer.query_norm_D, eps)
                k = F.rms_norm(k, (self.head_dim,), layer.key_norm_D, eps)
            q, k = self.rope(q, cos, sin), self.rope(k, cos, sin)
            cache.write(index, batch.rows_N, k.view(count, kv_size), v)
            attention(index, q.view(count, q_size), self.scale, attended)
            x = x + layer.out(attended)
            normed = F.rms_norm(x, hidden, layer.norm_mlp_C, eps)
            gate, up = layer.gate_up(normed).chunk(2, -1)
            x = x + layer.down(F.silu(gate) * up)
        last = F.rms_norm(x[batch.logits_at], hidden, self.weights.norm_C, eps)
        self.hidden = last
        return self.weights.head(last)
