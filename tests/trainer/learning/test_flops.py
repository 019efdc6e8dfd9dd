"""FLOPs of a step against a count of every product that torch does, the measured peak, and memory."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

from tests.trainer.learning.models import tiny_model
from tests.trainer.learning.test_step import group, learner
from tests.trainer.router_replay import moe
from trainer.config import LoraConfig, OptimizerConfig
from trainer.learning import flops
from trainer.learning.flops import FlopsCounter, Tokens, fastest_product, shape_of
from trainer.learning.lora import Adapters
from trainer.learning.memory import take_peak
from trainer.learning.metrics import describe
from trainer.learning.packing import stack
from trainer.learning.step import work_of as work_of_step
from trainer.learning.supervised import Example, SupervisedLearner, work_of

CPU = torch.device("cpu")
ROWS, LENGTH = 3, 20
EVERY_PAIR = Tokens(ROWS * LENGTH, ROWS * LENGTH, ROWS * LENGTH**2)
"""Products without a causal kernel look at pairs that the mask then throws away."""


def counted(model) -> int:
    tokens_BT = torch.arange(ROWS * LENGTH).view(ROWS, LENGTH) % 32
    with FlopCounterMode(display=False) as counter:
        model(tokens_BT).logits.sum().backward()
    return counter.get_total_flops()


def test_a_dense_step_is_counted_as_torch_counts_it() -> None:
    model = tiny_model()
    model.set_attn_implementation("eager")
    assert shape_of(model).flops(EVERY_PAIR) == pytest.approx(counted(model), rel=0.01)


def test_frozen_weights_need_no_gradient_of_their_own() -> None:
    pytest.importorskip("peft")
    model = tiny_model()
    whole = shape_of(model).flops(EVERY_PAIR)
    model.set_attn_implementation("eager")
    Adapters(model, LoraConfig(rank=2), seed=0)
    with_adapters = shape_of(model)
    assert with_adapters.flops(EVERY_PAIR) < 0.85 * whole
    # The first layer's input has no gradient there: a little less than by the formula.
    assert with_adapters.flops(EVERY_PAIR) == pytest.approx(counted(model), rel=0.15)


def test_of_experts_those_that_a_token_goes_to() -> None:
    model = moe.make("qwen3-moe")
    shape = shape_of(model)
    experts = sum(weight.numel() for name, weight in model.named_parameters() if ".experts." in name)
    rest = sum(w.numel() for n, w in model.named_parameters() if w.ndim > 1 and ".experts." not in n)
    rest -= model.get_input_embeddings().weight.numel()
    if not model.config.tie_word_embeddings:
        rest -= model.get_output_embeddings().weight.numel()
    share = model.config.num_experts_per_tok / model.config.num_experts
    assert experts > 0 and shape.body == pytest.approx(rest + share * experts)


def test_a_step_with_experts_is_counted_as_torch_counts_it() -> None:
    model = moe.make("qwen3-moe")
    model.set_attn_implementation("eager")
    model.set_experts_implementation("eager")  # whose products torch counts; the grouped ones it does not know
    assert shape_of(model).flops(EVERY_PAIR) == pytest.approx(counted(model), rel=0.01)


def test_rows_see_what_came_before_and_documents_only_themselves() -> None:
    assert Tokens.of_rows([1, 3], 2) == Tokens(4, 2, 1 + 6)
    packed = Example([1] * 5, [0.0, 1.0, 0.0, 1.0, 1.0], (0, 2))
    assert work_of([packed]) == Tokens(5, 3, 3 + 6)


def test_a_step_tells_what_it_asked_of_the_device() -> None:
    model = tiny_model()
    values = learner(model).train([group(model, [1.0, 0.0])], step=1)
    peak = fastest_product(CPU, torch.float32)
    assert peak > 1e8 and fastest_product(CPU, torch.float32) == peak, "measured within steps only"
    assert values["speed/mfu"] == pytest.approx(values["speed/model_flops"] / peak)
    assert 0 < values["speed/mfu"] < 1
    assert values["memory/trainer"] > 50e6
    for name in ("speed/mfu", "speed/model_flops", "memory/trainer"):
        assert describe(name).meaning
    nothing = learner(model).train([group(model, [1.0, 1.0])], step=1)
    assert "speed/mfu" not in nothing, "groups without signal are not computed"


def test_the_peak_is_the_best_that_was_seen_in_this_format_with_these_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "_best", {})
    measured = iter([50.0, 90.0, 70.0, 20.0, 30.0, 10.0])  # the first ones while an engine has the cores
    monkeypatch.setattr(flops, "_measured", lambda device, number_format, seconds: next(measured))
    assert fastest_product(CPU, torch.float32) == 50.0
    assert fastest_product(CPU, torch.float32, seconds=0.1) == 90.0
    assert fastest_product(CPU, torch.float32, seconds=0.1) == 90.0
    assert fastest_product(CPU, torch.bfloat16) == 20.0
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    assert fastest_product(CPU, torch.float32) == 30.0
    step = FlopsCounter(tiny_model()).metrics(EVERY_PAIR, 1e-9, device=CPU)
    assert step["speed/mfu"] == 1.0 and fastest_product(CPU, torch.float32) == step["speed/model_flops"]


def test_a_batch_that_shares_no_prefix_does_not_undo_those_that_do() -> None:
    model = tiny_model()
    rows = group(model, [1.0, 0.0]).samples[:1] * 2
    tree, padded = stack(rows, share=True), replace(stack(rows, share=True), shared=None)
    one, other = (work_of_step(rows, [batch], shared=True) for batch in (tree, padded))
    both = work_of_step([*rows, *rows], [tree, padded], shared=True)
    assert (both.tokens, both.pairs) == (one.tokens + other.tokens, one.pairs + other.pairs)
    assert both.tokens < 2 * other.tokens


def test_a_sliding_window_sees_fewer_pairs() -> None:
    window, length = 4, 20
    sizes = {
        "vocab_size": 32,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    kinds = ["full_attention", "sliding_attention"]
    model = Qwen2ForCausalLM(
        Qwen2Config(**sizes, num_hidden_layers=2, layer_types=kinds, use_sliding_window=True, sliding_window=window)
    )
    shape, work = shape_of(model), Tokens.of_rows([length], 0)
    seen = sum(min(place + 1, window) for place in range(length))
    assert work.pairs_within(window) == seen < work.pairs
    assert (shape.window, shape.windowed) == (window, shape.pair)
    plain = shape_of(Qwen2ForCausalLM(Qwen2Config(**sizes, num_hidden_layers=2)))
    assert plain.flops(work) - shape.flops(work) == 6 * shape.pair * (work.pairs - seen)
    assert shape_of(MistralForCausalLM(MistralConfig(**sizes, num_hidden_layers=2, sliding_window=8))).pair == 0


def test_a_step_in_bfloat16_is_measured_against_that_peak() -> None:
    model = tiny_model()
    supervised = SupervisedLearner(tiny_model(), optimizer=OptimizerConfig(learning_rate=3e-4), total_steps=1)
    for step in (
        lambda: learner(model, precision="bfloat16").train([group(model, [1.0, 0.0])], step=1),
        lambda: supervised.train([Example([1, 2, 3], [0.0, 1.0, 1.0])], step=1),
    ):
        values = step()
        peak = fastest_product(CPU, torch.bfloat16)
        assert values["speed/mfu"] == pytest.approx(values["speed/model_flops"] / peak)


def test_a_reference_is_scored_too_and_ranks_share_the_work() -> None:
    effort = FlopsCounter(tiny_model())
    for ranks in (1, 4):
        values = effort.metrics(EVERY_PAIR, 1.0, device=CPU, ranks=ranks)
        peak = fastest_product(CPU, torch.float32)  # each step may have measured a better one
        assert values["speed/mfu"] == pytest.approx(values["speed/model_flops"] / ranks / peak)
    assert effort.shape.flops(EVERY_PAIR, reference=True) == pytest.approx(4 / 3 * effort.shape.flops(EVERY_PAIR))


def test_the_peak_of_memory_is_of_the_time_since_it_was_asked() -> None:
    take_peak(CPU)
    block = torch.ones(64 << 18)  # 64 MiB
    high = take_peak(CPU)
    assert high > 64 << 20
    del block
    take_peak(CPU)  # the block was there at its beginning
    assert take_peak(CPU) < high - (32 << 20)
