"""What repeating experts is worth where the two sides compute differently, and what the filter adds."""

from __future__ import annotations

import torch

from tests.trainer.router_replay import moe
from trainer.learning.mismatch import p99
from trainer.router_replay.hooks import Recorder, Replay

B, T = 24, 48
NOISE = 0.1
"""Error of what the sampler's routers read, against activations of size 1: a coarse number format."""
DAMAGED = 0.01
"""Share of tokens and layers whose record is of something else, as after a cache that served a wrong row."""
PLAUSIBILITY = 0.6


def scored(model, ids: torch.Tensor) -> torch.Tensor:
    table = torch.log_softmax(model(ids).logits, -1)[:, :-1]
    return table.gather(-1, ids[:, 1:, None])[..., 0].flatten()


@torch.no_grad()
def test_p99_falls_with_the_recorded_experts_and_again_with_the_filter() -> None:
    model, ids = moe.wide_router(), moe.tokens(B, T, seed=0)
    recorder = Recorder(model)
    generator = torch.Generator().manual_seed(1)
    handles = [
        router.module.register_forward_pre_hook(
            lambda module, args: (args[0] + NOISE * torch.randn(args[0].shape, generator=generator),)
        )
        for router in recorder.routers
    ]
    sampler = scored(model, ids)
    for handle in handles:
        handle.remove()
    record = recorder.chosen().view(B, T, len(recorder.routers), -1)
    damaged = torch.rand(record.shape[:-1], generator=generator) < DAMAGED
    wrong = torch.rand((*record.shape[:-1], recorder.routers[0].experts), generator=generator).argsort(-1)
    record = torch.where(damaged[..., None], wrong[..., : record.shape[-1]], record)

    gaps, used = {"alone": p99((scored(model, ids) - sampler).abs())}, []
    for name, plausibility in (("repeated", 0.0), ("filtered", PLAUSIBILITY)):
        replay = Replay(model, plausibility=plausibility)
        with replay.forced(record):
            handles = [
                router.module.register_forward_hook(lambda m, i, output: used.append(output))
                for router in replay.routers
            ]
            gaps[name] = p99((scored(model, ids) - sampler).abs())
            for handle in handles:
                handle.remove()
        shares = replay.take_counts().metrics()
        assert shares["routing/replayed"] == 1.0 and 0.05 < shares["routing/differs"] < 0.5
        assert (shares["routing/replaced"] > 0) == (name == "filtered")
        assert shares["routing/replaced"] < 2 * DAMAGED  # what the sampler really chose mostly stays
    assert gaps["alone"] > 1.3 * gaps["repeated"] > 1.3 * 1.3 * gaps["filtered"], gaps
    for logits, _, experts in used[-len(recorder.routers) :]:  # the guarantee
        scores = torch.softmax(logits, -1)
        least = scores.topk(experts.shape[-1]).values[:, -1]
        assert bool((scores.gather(1, experts).min(-1).values >= PLAUSIBILITY * least).all())
