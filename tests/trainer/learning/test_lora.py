"""Adapters through peft."""

import sys

import pytest
import torch

from tests.trainer.learning.models import tiny_model
from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import LoraConfig
from trainer.errors import BatchTimeout, StageError
from trainer.learning.lora import Adapters, LoraUnavailable
from trainer.learning.published_adapters import PublishedAdapters
from trainer.rl.learner import build_adapters, build_learner
from trainer.rl.stage import run_rl
from trainer.weights import WeightStore


def test_without_peft_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(LoraUnavailable, match="extra `lora`"):
        Adapters(tiny_model(), LoraConfig(rank=2), seed=0)


@pytest.mark.parametrize(("targets", "words"), [("q_proj, nope", "'nope'"), (" , ", "nothing"), ("proj", "'proj'")])
def test_modules_that_are_not_there_are_named_with_those_that_are(targets, words):
    with pytest.raises(
        StageError, match=rf"stage\.lora\.targets: .* named {words}; it has .*down_proj, .*q_proj, .*all-linear"
    ):
        build_adapters(tiny_model(), small_config(lora=LoraConfig(rank=2, targets=targets)), seed=0)
    adapters = Adapters(tiny_model(), LoraConfig(rank=2, targets="q_proj, v_proj"), seed=0)
    assert {name.split(".lora_")[0].rpartition(".")[2] for name, _ in adapters._parameters()} == {"q_proj", "v_proj"}


def test_fresh_adapters_change_nothing_and_merged_ones_are_plain_weights():
    plain, adapted = tiny_model(), tiny_model()
    tokens = torch.arange(12)[None]
    adapters = Adapters(adapted, LoraConfig(rank=2, alpha=4.0), seed=0)
    assert adapters.merged().keys() == plain.state_dict().keys()
    assert torch.equal(plain(tokens).logits, adapted(tokens).logits)

    trainable = [p for p in adapted.parameters() if p.requires_grad]
    assert 0 < sum(p.numel() for p in trainable) < 0.3 * sum(p.numel() for p in plain.parameters())
    with torch.no_grad():
        for parameter in trainable:
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    plain.load_state_dict(adapters.merged())
    assert torch.allclose(plain(tokens).logits, adapted(tokens).logits, atol=1e-5)
    assert not torch.equal(plain(tokens).logits, tiny_model()(tokens).logits)


def test_the_trainer_computes_with_the_merged_weights_as_they_are_published():
    """Log-probabilities of the published weights, and the gradients that adapters have without rounding them."""
    model, tokens = tiny_model(), torch.arange(24).view(2, 12)
    adapters = Adapters(model, LoraConfig(rank=2, alpha=4.0), seed=0)
    with torch.no_grad():
        for _, parameter in adapters._parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    merged = {name: tensor.clone() for name, tensor in adapters.merged().items()}
    exact = model(tokens).logits.detach()
    master = PublishedAdapters(adapters)
    served = tiny_model()
    served.load_state_dict({name: tensor.bfloat16().float() for name, tensor in merged.items()})
    assert all(torch.equal(adapters.merged()[name], tensor) for name, tensor in served.state_dict().items())
    ours = model(tokens).logits
    assert torch.equal(ours, served(tokens).logits) and not torch.equal(ours, exact)

    ours.logsumexp(-1).sum().backward()
    served(tokens).logits.logsumexp(-1).sum().backward()
    whole = {name: parameter.grad for name, parameter in served.named_parameters()}
    for name, layer in adapters.layers():
        a, b, scale = layer.lora_A["default"].weight, layer.lora_B["default"].weight, layer.scaling["default"]
        torch.testing.assert_close(a.grad, scale * b.T @ whole[f"{name}.weight"], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(b.grad, scale * whole[f"{name}.weight"] @ a.T, rtol=1e-4, atol=1e-5)

    with master.exact(), torch.no_grad():
        for _, parameter in adapters._parameters():
            parameter.add_(0.01)
    again = Adapters(tiny_model(), LoraConfig(rank=2, alpha=4.0), seed=0)
    follower = PublishedAdapters(again)
    again.load_state_tensors(adapters.state_tensors())
    follower.load_state_tensors({})
    assert all(torch.equal(again.merged()[name], tensor) for name, tensor in adapters.merged().items())
    assert not torch.equal(
        adapters.merged()["model.layers.0.mlp.up_proj.weight"], merged["model.layers.0.mlp.up_proj.weight"]
    )


@pytest.mark.parametrize("lora", [LoraConfig(), LoraConfig(rank=2)], ids=["whole", "adapters"])
def test_a_learner_rounds_what_its_run_publishes_in_bfloat16(lora):
    for published, rounds in (("float32", False), ("bfloat16", True)):
        policy = policies.load(BASE_POLICY)
        config = small_config(lora=lora)
        made = build_learner(policy, config, seed=0, reference=None, published=published)
        assert (made.master is not None) == rounds
        group = make_group(policies.load(BASE_POLICY).model, 0)
        made.train([group], step=1)
        weights = made.weights()
        assert all(torch.equal(t, t.bfloat16().float()) for t in weights.values()) == rounds


def test_state_of_other_adapters_is_refused():
    two, four = (Adapters(tiny_model(), LoraConfig(rank=rank), seed=0) for rank in (2, 4))
    with pytest.raises(ValueError, match="no adapter"):
        four.load_state_tensors(two.state_tensors())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_publishes_plain_weights_and_resumes_bit_for_bit(tmp_path, dtype):
    base = policies.load(BASE_POLICY).model
    groups = [make_group(base, index) for index in range(8)]
    config = small_config(lora=LoraConfig(rank=4))

    def run(root, groups):
        sink, store = MemorySink(), WeightStore(root / "weights", dtype=dtype)
        checkpoints = CheckpointStore(root / "checkpoints", keep=1)
        result = run_rl(
            policy_dir=BASE_POLICY,
            config=config,
            seed=0,
            source=ListSource(groups, config.groups_per_step),
            sink=sink,
            store=store,
            checkpoints=checkpoints,
        )
        return result, sink, store

    result, whole, store = run(tmp_path / "whole", groups)
    assert store.load(0).state.keys() == base.state_dict().keys()
    saved = policies.load(result.checkpoint / "policy").model.state_dict()
    assert all(torch.equal(saved[name], tensor) for name, tensor in store.load(4).state.items())
    start = {name: tensor.to(getattr(torch, dtype)).float() for name, tensor in base.state_dict().items()}
    moved = [name for name, tensor in start.items() if not torch.equal(tensor, saved[name])]
    assert moved and not any("embed" in name or "norm" in name for name in moved)
    with pytest.raises(BatchTimeout):
        run(tmp_path / "cut", groups[:6])
    _, resumed, _ = run(tmp_path / "cut", groups)
    assert resumed.versions[-1] == whole.versions[-1]
    for step in (3, 4):
        assert resumed.values[step]["optim/loss"] == whole.values[step]["optim/loss"]
