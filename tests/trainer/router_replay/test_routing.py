"""Experts are read from the library's own routers and put back into them, with the gradient still reaching the gates."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.trainer.router_replay import moe
from trainer.routed_experts import UNKNOWN, ReplayRefused
from trainer.router_replay.families import RouterUnknown, routers
from trainer.router_replay.hooks import Recorder, Replay, choose

MODELS = sorted(moe.FAMILIES)
B, T = 3, 17


def other_experts(own: torch.Tensor, seed: int) -> torch.Tensor:
    """Some choice of as many different experts: int64 [B, T, L, K]."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand((*own.shape[:-1], moe.EXPERTS), generator=generator)
    return noise.argsort(-1)[..., : own.shape[-1]]


@pytest.mark.parametrize("family", MODELS)
def test_repeating_a_models_own_choice_changes_no_bit(family: str) -> None:
    model, ids = moe.make(family), moe.tokens(B, T)
    recorder = Recorder(model)
    with torch.no_grad():
        plain = model(ids).logits
        own_NLK = recorder.chosen()
    assert own_NLK.shape == (B * T, len(recorder.routers), moe.TOP_K)
    replay = Replay(model, plausibility=1.0)
    with replay.forced(own_NLK.view(B, T, -1, moe.TOP_K)), torch.no_grad():
        assert torch.equal(model(ids).logits, plain)
    counts = replay.take_counts()
    assert counts.metrics()["routing/replayed"] == 1.0
    assert counts.metrics()["routing/differs"] == counts.metrics()["routing/replaced"] == 0.0


@pytest.mark.parametrize("family", MODELS)
def test_another_choice_is_obeyed_and_the_gates_get_their_gradient(family: str) -> None:
    model, ids = moe.make(family), moe.tokens(B, T)
    recorder, replay = Recorder(model), Replay(model, plausibility=0.0)
    with torch.no_grad():
        plain = model(ids).logits
    forced = other_experts(recorder.chosen().view(B, T, -1, moe.TOP_K), seed=2)
    used: list[torch.Tensor] = []
    handles = [
        router.module.register_forward_hook(lambda m, i, output: used.append(output[2])) for router in replay.routers
    ]
    with replay.forced(forced):
        logits = model(ids).logits
        logits.logsumexp(-1).sum().backward()
    for handle in handles:
        handle.remove()
    assert torch.equal(torch.stack(used, 1).view(forced.shape), forced)
    assert not torch.allclose(logits, plain)
    for router in replay.routers:
        gradient = router.module.weight.grad
        assert gradient is not None and bool(gradient.isfinite().all()) and float(gradient.abs().max()) > 0
    with torch.no_grad():  # outside, the model is what it was
        assert torch.equal(model(ids).logits, plain)


def test_the_gates_gradient_is_that_of_a_router_which_chose_so_itself() -> None:
    """Central differences of the loss under a forced choice, in float64."""
    model, ids = moe.make("qwen3-moe").double(), moe.tokens(1, 5)
    model.set_experts_implementation("eager")  # the other kernels know no float64
    replay = Replay(model, plausibility=0.0)
    forced = other_experts(torch.zeros(1, 5, 3, moe.TOP_K), seed=3)
    weight = replay.routers[1].module.weight

    def loss() -> torch.Tensor:
        return model(ids).logits.double().logsumexp(-1).sum()

    with replay.forced(forced):
        loss().backward()
        for place in ((0, 0), (5, 7)):
            slopes = []
            for step in (1e-3, -1e-3):
                with torch.no_grad():
                    weight[place] += step
                    slopes.append(float(loss()))
                    weight[place] -= step
            assert float(weight.grad[place]) == pytest.approx((slopes[0] - slopes[1]) / 2e-3, rel=2e-2, abs=1e-3)


def test_positions_without_a_record_are_routed_freely() -> None:
    model, ids = moe.make("mixtral"), moe.tokens(B, T)
    recorder, replay = Recorder(model), Replay(model, plausibility=0.0)
    with torch.no_grad():
        plain = model(ids).logits
        own = recorder.chosen().view(B, T, -1, moe.TOP_K)
        forced = other_experts(own, seed=4)
        forced[:, 6:] = -1
        with replay.forced(forced):
            mixed = model(ids).logits
    assert not torch.allclose(mixed[:, :6], plain[:, :6])
    counts = replay.take_counts()
    assert counts.metrics()["routing/replayed"] == pytest.approx(6 / T)
    assert counts.layers[0].tokens == B * 6
    load = torch.bincount(forced[:, :6, 0].flatten(), minlength=moe.EXPERTS)
    assert counts.layers[0].load == load.tolist()
    assert counts.metrics()["routing/imbalance/00"] == pytest.approx(float(load.max() / load.float().mean()) - 1)
    twice = replay.take_counts()
    twice.add(counts)
    twice.add(counts)
    assert twice.metrics()["routing/imbalance"] == pytest.approx(counts.metrics()["routing/imbalance"])


@pytest.mark.parametrize("plausibility", [0.3, 0.7, 1.0])
def test_the_filter_keeps_only_what_is_plausible_and_fills_with_the_routers_best(plausibility: float) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.softmax(2 * torch.randn(400, moe.EXPERTS, generator=generator), -1)
    own = scores.topk(moe.TOP_K, sorted=False).indices
    forced = torch.rand(400, moe.EXPERTS, generator=generator).argsort(-1)[:, : moe.TOP_K]
    used, counts = choose(scores, own, forced, plausibility)
    threshold = plausibility * scores.gather(1, own).min(-1).values
    assert bool((scores.gather(1, used) >= threshold[:, None]).all())  # the guarantee
    assert all(len(set(row)) == moe.TOP_K for row in used.tolist())
    kept = scores.gather(1, forced) >= threshold[:, None]
    assert counts.replaced == int((~kept).sum()) > 0 and counts.tokens == 400
    for row in range(400):
        stay = forced[row][kept[row]].tolist()
        free = [e for e in own[row][scores[row, own[row]].argsort(descending=True)].tolist() if e not in stay]
        assert sorted(used[row].tolist()) == sorted(stay + free[: moe.TOP_K - len(stay)])


def test_choices_of_another_policy_are_refused() -> None:
    replay = Replay(moe.make("qwen3-moe"), plausibility=0.5)
    good = other_experts(torch.zeros(1, 4, 3, moe.TOP_K), seed=5)[0].numpy().astype("uint16")
    replay.check(good)
    unknown = good.copy()
    unknown[1] = UNKNOWN
    replay.check(unknown)
    for place, value, problem in (
        ((2, 1, 0), moe.EXPERTS, "expert 8 of layer 1 at position 2 does not exist: the policy has 8"),
        ((0, 0, 0), int(good[0, 0, 1]), "name one expert twice"),
        ((3, 2, 1), UNKNOWN, "incomplete"),
    ):
        bad = good.copy()
        bad[place] = value
        with pytest.raises(ReplayRefused, match=problem):
            replay.check(bad)
    with pytest.raises(ReplayRefused, match="2 layers with 3 experts a token, the policy has 3 with 3"):
        replay.check(good[:, :2])


def test_a_router_that_is_not_known_or_weighs_otherwise_is_refused() -> None:
    class NewRouter(nn.Module):
        pass

    with pytest.raises(RouterUnknown, match="NewRouter"):
        routers(nn.ModuleDict({"gate": NewRouter()}))
    model = moe.make("qwen3-moe")
    router = routers(model)[0].module
    plain = type(router).forward
    router.forward = lambda hidden: (lambda out: (out[0], out[1] * 2, out[2]))(plain(router, hidden))
    with pytest.raises(RouterUnknown, match="the library has changed"):
        routers(model)
