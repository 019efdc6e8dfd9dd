"""Initial weights that can copy from the first step: a two-token induction circuit inside a stock Qwen3.

Everything that a coding policy does at this size rests on exact copying (names, paths, whole lines), and gradient
descent alone finds the circuit for it late: a random start copied 1 % of random tokens after 730 k training tokens,
this start 98 % after 220 k (docs/design/policy.md). The class, the layout and all other weights stay stock; training is
free to change every number here.

    layer 0, heads 0 and 1   attend to the token one and two places back, and write it into two subspaces
    layer 1, head 0          query: this token and the one before; key: the tokens one and two places back;
                             so it attends to what followed the last occurrence of the same two tokens
    layer 1, head 1          the same for one token

Positions enter through the fast rotary channels, content is matched in the slow ones, which hardly turn within a
context. Embeddings share one constant channel; it gives queries a fixed direction and shifts all logits alike.

Shape suffixes: V vocabulary, C width, D channels of a head, P rotary pairs of a head, S matching channels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

EMBEDDING_SCALE = 0.02
CONSTANT_CHANNEL = 0.05
SHARPNESS = 1.6
"""Gain of query and key norms in both layers; attention scores grow with its square."""
WRITE_BACK = 0.03
"""Output scale of layer 0: a token seen one place later is as strong as the token itself."""
WRITE_COPY = 0.09
FAST_PAIRS = 12
SLOW_TURN = 0.006
"""Rotary pairs below this many radians a token count as slow."""


def fits(config: Qwen3Config) -> bool:
    """Whether a model of this shape can hold the circuit."""
    return config.num_attention_heads == 2 and config.num_key_value_heads == 1 and config.num_hidden_layers >= 2


@torch.no_grad()
def prepare_copying(model: Qwen3ForCausalLM, *, seed: int) -> None:
    """Overwrite the initial weights in place. Needs two layers, two query heads on one key-value head."""
    config = model.config
    if not fits(config):
        raise ValueError("the copying circuit needs at least two layers of two query heads on one key-value head")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        embedding_VC = model.model.embed_tokens.weight
        nn.init.normal_(embedding_VC, std=EMBEDDING_SCALE)
        embedding_VC[:, 0] = CONSTANT_CHANNEL
        for layer in model.model.layers:
            nn.init.zeros_(layer.self_attn.o_proj.weight)
            nn.init.zeros_(layer.mlp.down_proj.weight)
        head = config.head_dim
        base = float(dict(config.rope_parameters or {})["rope_theta"])
        turn_P = base ** (-torch.arange(head // 2) / (head // 2))
        read_DC, back_CD, back2_CD = _look_back(model.model.layers[0].self_attn, head, turn_P)
        _induction(model.model.layers[1].self_attn, head, turn_P, read_DC, back_CD, back2_CD)


def _content_rows(rows: int, width: int) -> Tensor:
    """Orthogonal rows that ignore the constant channel: [rows, width]."""
    out = torch.zeros(rows, width)
    nn.init.orthogonal_(out[:, 1:])
    return out


def _turned(vector_D: Tensor, turn_P: Tensor, tokens: float) -> Tensor:
    """What rotary embedding makes of a vector `tokens` places further on."""
    first, second = vector_D.chunk(2)
    cos, sin = torch.cos(turn_P * tokens), torch.sin(turn_P * tokens)
    return torch.cat([first * cos - second * sin, first * sin + second * cos])


def _look_back(attention: Qwen3Attention, head: int, turn_P: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Layer 0: constant queries turned back by one and two tokens. Returns what it reads and where it writes."""
    width = attention.o_proj.weight.shape[0]
    fixed_D = torch.zeros(head)
    fixed_D[:FAST_PAIRS] = 1.0
    nn.init.zeros_(attention.q_proj.weight)
    nn.init.zeros_(attention.k_proj.weight)
    attention.k_proj.weight[:, 0] = fixed_D
    for number in range(2):
        attention.q_proj.weight[number * head : (number + 1) * head, 0] = _turned(fixed_D, turn_P, -1.0 - number)
    attention.q_norm.weight.fill_(SHARPNESS)
    attention.k_norm.weight.fill_(SHARPNESS)
    read_DC = _content_rows(head, width)
    subspaces_C2D = torch.zeros(width, 2 * head)
    square = torch.empty(width - 1, width - 1)
    nn.init.orthogonal_(square)
    columns = min(2 * head, width - 1)
    subspaces_C2D[1:, :columns] = square[:, :columns]
    attention.v_proj.weight.copy_(read_DC)
    attention.o_proj.weight.copy_(subspaces_C2D * WRITE_BACK)
    return read_DC, subspaces_C2D[:, :head], subspaces_C2D[:, head:]


def _induction(
    attention: Qwen3Attention, head: int, turn_P: Tensor, read_DC: Tensor, back_CD: Tensor, back2_CD: Tensor
) -> None:
    """Layer 1: match one or two tokens in the slow channels, copy the token that followed."""
    slow = [pair for pair in range(head // 2) if turn_P[pair] < SLOW_TURN]
    channels = torch.tensor(slow + [pair + head // 2 for pair in slow])
    near_S, far_S = channels[0::2], channels[1::2]
    match_SD, match2_SD = (torch.randn(len(near_S), head) / math.sqrt(head) for _ in range(2))
    query, key = attention.q_proj.weight, attention.k_proj.weight
    nn.init.zeros_(query)
    nn.init.zeros_(key)
    for number in range(2):
        query[near_S + number * head] = match_SD @ read_DC
    query[far_S] = match2_SD @ back_CD.T
    key[near_S] = match_SD @ back_CD.T
    key[far_S] = match2_SD @ back2_CD.T
    attention.q_norm.weight.fill_(SHARPNESS)
    attention.k_norm.weight.fill_(SHARPNESS)
    copy_DC = _content_rows(head, query.shape[1])
    attention.v_proj.weight.copy_(copy_DC)
    for number in range(2):
        attention.o_proj.weight[:, number * head : (number + 1) * head] = copy_DC.T * WRITE_COPY
