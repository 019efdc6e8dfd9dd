"""FLOPs of a step against a count of every product that torch does, the measured peak, and memory."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.trainer.learning.models import tiny_model
from tests.trainer.learning.test_step import group, learner
from tests.trainer.router_replay import moe
from trainer.config import LoraConfig, OptimizerConfig
from trainer.learning.flops import FlopsCounter, Tokens, fastest_product, shape_of
from trainer.learning.lora import Adapters
from trainer.learning.memory import take_peak
from trainer.learning.metrics import describe
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
    assert peak > 1e8 and fastest_product(CPU, torch.float32) == peak, "measured once"
    assert values["speed/mfu"] == pytest.approx(values["speed/model_flops"] / peak)
    assert 0 < values["speed/mfu"] < 1
    assert values["memory/trainer"] > 50e6
    for name in ("speed/mfu", "speed/model_flops", "memory/trainer"):
        assert describe(name).meaning
    nothing = learner(model).train([group(model, [1.0, 1.0])], step=1)
    assert "speed/mfu" not in nothing, "groups without signal are not computed"


def test_a_step_in_bfloat16_is_measured_against_that_peak() -> None:
    model = tiny_model()
    for values in (
        learner(model, precision="bfloat16").train([group(model, [1.0, 0.0])], step=1),
        SupervisedLearner(tiny_model(), optimizer=OptimizerConfig(learning_rate=3e-4), total_steps=1).train(
            [Example([1, 2, 3], [0.0, 1.0, 1.0])], step=1
        ),
    ):
        peak = fastest_product(CPU, torch.bfloat16)
        assert values["speed/mfu"] == pytest.approx(values["speed/model_flops"] / peak)


def test_a_reference_is_scored_too_and_ranks_share_the_work() -> None:
    effort = FlopsCounter(tiny_model())
    alone = effort.metrics(EVERY_PAIR, 1.0, device=CPU)
    assert effort.metrics(EVERY_PAIR, 1.0, device=CPU, ranks=4)["speed/mfu"] == alone["speed/mfu"] / 4
    assert effort.shape.flops(EVERY_PAIR, reference=True) == pytest.approx(4 / 3 * effort.shape.flops(EVERY_PAIR))


def test_the_peak_of_memory_is_of_the_time_since_it_was_asked() -> None:
    take_peak(CPU)
    block = torch.ones(64 << 18)  # 64 MiB
    high = take_peak(CPU)
    assert high > 64 << 20
    del block
    take_peak(CPU)  # the block was there at its beginning
    assert take_peak(CPU) < high - (32 << 20)
