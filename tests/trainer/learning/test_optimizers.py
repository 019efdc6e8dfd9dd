import pytest
import torch

from tests.trainer.learning.models import tiny_model
from tests.trainer.router_replay import moe
from trainer.config import OptimizerConfig, RunConfig
from trainer.learning.optimizers import NamedOptimizer, learning_rate


def test_schedule_warms_up_holds_and_falls():
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=4, decay_start=0.5, min_lr_ratio=0.2)
    rates = [learning_rate(config, step, 20) for step in range(1, 21)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:10] == [1.0] * 6
    assert rates[19] == pytest.approx(0.2)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_no_warmup_and_no_decay():
    config = OptimizerConfig(learning_rate=0.5, warmup_steps=0, decay_start=1.0)
    assert {learning_rate(config, step, 7) for step in range(1, 8)} == {0.5}


def train(model, optimizer, steps: int, first: int) -> None:
    for step in range(first, first + steps):
        tokens = torch.arange(12).remainder(7 + step)[None]
        model(tokens, labels=tokens).loss.backward()
        optimizer.step(1e-2)


@pytest.mark.parametrize(("name", "dtype"), [("adamw", "float32"), ("muon", "float32"), ("adamw", "int8")])
def test_saved_state_continues_bit_for_bit(name, dtype):
    config = OptimizerConfig(name=name, learning_rate=1e-2, state_dtype=dtype)
    model = tiny_model(width=64)
    optimizer = NamedOptimizer(model, config)
    train(model, optimizer, 2, 0)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    state = {key: value.clone() for key, value in optimizer.state_tensors().items()}
    train(model, optimizer, 2, 2)

    resumed = tiny_model(seed=9, width=64)
    resumed.load_state_dict(weights)
    again = NamedOptimizer(resumed, config)
    again.load_state_tensors(state)
    train(resumed, again, 2, 2)
    for key, value in model.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


def test_muon_takes_block_matrices_and_leaves_the_rest():
    model = tiny_model()
    optimizer = NamedOptimizer(model, OptimizerConfig(name="muon", learning_rate=3e-4))
    train(model, optimizer, 1, 0)
    by_key = {}
    for name in optimizer.state_tensors():
        parameter, _, key = name.rpartition("|")
        by_key.setdefault(key, set()).add(parameter)
    assert "model.embed_tokens.weight" in by_key["exp_avg"]
    assert "model.layers.0.mlp.up_proj.weight" in by_key["momentum_buffer"]
    assert not by_key["momentum_buffer"] & by_key["exp_avg"]
    assert by_key["momentum_buffer"] | by_key["exp_avg"] == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"nowhere.weight|exp_avg": torch.zeros(2)}, "another model"),
        ({"model.norm.weight|exp_avg": torch.zeros(3)}, "shape"),
    ],
)
def test_state_of_another_model_is_refused(tensors, message):
    with pytest.raises(ValueError, match=message):
        NamedOptimizer(tiny_model(), OptimizerConfig(learning_rate=3e-4)).load_state_tensors(tensors)


def test_muon_takes_each_expert_of_a_stack_as_torch_takes_it_alone():
    """Stacked experts [E, m, n] move as E single matrices under torch's Muon, tall and wide ones, over several steps."""
    config = OptimizerConfig(name="muon", learning_rate=2e-2, weight_decay=0.1)
    model = moe.make("qwen3-moe")
    stacks = {n: p for n, p in model.named_parameters() if n.endswith((".gate_up_proj", ".down_proj")) and p.ndim == 3}
    assert stacks
    singles = {n: [torch.nn.Parameter(expert.clone()) for expert in p.data] for n, p in stacks.items()}
    reference = torch.optim.Muon(
        [expert for experts in singles.values() for expert in experts],
        lr=2e-2,
        momentum=config.beta2,
        weight_decay=0.1,
        adjust_lr_fn="match_rms_adamw",
    )
    optimizer = NamedOptimizer(model, config)
    before = {n: p.detach().clone() for n, p in stacks.items()}
    for step in range(3):
        tokens = torch.arange(24).remainder(11 + step)[None]
        model(tokens, labels=tokens).loss.backward()
        for n, p in stacks.items():
            for expert, gradient in zip(singles[n], p.grad, strict=True):
                expert.grad = gradient.clone()
        optimizer.step(2e-2)
        reference.step()
    for n, p in stacks.items():
        wanted = torch.stack([expert.detach() for expert in singles[n]])
        moved = (wanted - before[n]).abs().mean()
        assert float((p.detach() - wanted).abs().mean()) < 0.01 * float(moved), n
        assert f"{n}|momentum_buffer" in optimizer.state_tensors()


def test_state_of_the_optimizer_that_had_a_parameter_before_starts_anew():
    model = moe.make("qwen3-moe")
    name = "model.layers.0.mlp.experts.down_proj"
    shape = dict(model.named_parameters())[name].shape
    optimizer = NamedOptimizer(model, OptimizerConfig(name="muon", learning_rate=3e-4))
    former = {"exp_avg": torch.ones(shape), "exp_avg_sq": torch.ones(shape), "step": torch.tensor(3.0)}
    optimizer.load_state_tensors({f"{name}|{key}": value for key, value in former.items()})
    assert not optimizer.state_tensors()
    train(model, optimizer, 1, 0)
    assert f"{name}|momentum_buffer" in optimizer.state_tensors()
    assert f"{name}|exp_avg" not in optimizer.state_tensors()


def losses(state_dtype: str) -> list[float]:
    model = tiny_model(width=64)
    optimizer = NamedOptimizer(model, OptimizerConfig(learning_rate=1e-2, state_dtype=state_dtype))
    found = []
    for _ in range(12):
        tokens = torch.arange(12).remainder(7)[None]
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step(3e-3)
        found.append(loss.item())
    return found


def test_moments_of_eight_bits_learn_as_well_and_take_a_quarter_of_the_memory():
    whole, small = losses("float32"), losses("int8")
    assert whole[-1] < 0.8 * whole[0]
    assert small[-1] == pytest.approx(whole[-1], rel=0.05)
    sizes = {}
    for dtype in ("float32", "int8"):
        model = tiny_model(width=64)
        optimizer = NamedOptimizer(model, OptimizerConfig(learning_rate=1e-2, state_dtype=dtype))
        train(model, optimizer, 1, 0)
        large = {name for name, p in model.named_parameters() if p.numel() >= 4096 and p.numel() % 256 == 0}
        assert large
        state = optimizer.state_tensors().items()
        sizes[dtype] = sum(t.nbytes for key, t in state if key.rpartition("|")[0] in large)
    assert sizes["int8"] < 0.26 * sizes["float32"]


def test_a_checkpoint_of_the_other_precision_goes_on():
    for before, after in (("float32", "int8"), ("int8", "float32")):
        model = tiny_model(width=64)
        first = NamedOptimizer(model, OptimizerConfig(learning_rate=1e-2, state_dtype=before))
        train(model, first, 2, 0)
        second = NamedOptimizer(model, OptimizerConfig(learning_rate=1e-2, state_dtype=after))
        second.load_state_tensors(first.state_tensors())
        assert {key.rpartition("|")[0] for key in second.state_tensors()} == {n for n, _ in model.named_parameters()}
        train(model, second, 1, 2)
    damaged = {k: t for k, t in first.state_tensors().items() if not k.endswith(".scale")}
    with pytest.raises(ValueError, match="incomplete"):
        second.load_state_tensors(damaged)


def test_eight_bits_need_one_rank():
    stage = {"kind": "rl", "optimizer": {"state_dtype": "int8"}, "parallel": {"world_size": 2, "dp_shard": 2}}
    with pytest.raises(ValueError, match=r"state_dtype=int8 needs parallel\.world_size=1"):
        RunConfig.model_validate({"name": "two", "stage": stage})
