"""How far trainer and sampler lie apart, token by token, and what repeating the sampler's experts is worth.

`k3_fp32`: the embedded engine samples from tiny random policies (dense and with experts) and the trainer scores the same
tokens with the same weights, both in fp32. `k3_no_replay`, `k3_replay`: the sampler computes in bf16, the trainer in fp32
from the same weights, without and with the recorded experts. `k3_damaged_…`: one record in a hundred is of something else,
without and with the plausibility filter. All are means over sampled tokens; random weights, no trained model.
"""

from __future__ import annotations

import argparse
import math
import sys

import torch
from transformers import PreTrainedModel, Qwen3MoeConfig, Qwen3MoeForCausalLM

from tests.bench import report
from tests.trainer.inference import models as dense
from tests.trainer.router_replay import moe
from trainer.config import ObjectiveConfig
from trainer.inference.contract import GenerateRequest, GenerateResponse
from trainer.inference.embedded.factory import build_decoder, read_shape
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.learning.loss import score_tokens
from trainer.learning.mismatch import mismatch
from trainer.learning.packing import pack
from trainer.policy.names import checkpoint_state
from trainer.routed_experts import RoutedExperts
from trainer.router_replay.hooks import Recorder, Replay
from trainer.types import TrainSample

TEMPERATURE = 1.0
GOALS: dict[str, report.Goal] = {
    "k3_fp32": ("<=", 1e-6),
    "experts_agree_fp32": (">=", 1.0),
    "replay_ratio": ("<=", 1.0),
    "filter_ratio": ("<=", 1.0),
}


def sample(prompt: list[int], tokens: list[int], logprobs: list[float], experts: RoutedExperts | None) -> TrainSample:
    before, written = len(prompt), len(tokens)
    return TrainSample(
        tokens=prompt + tokens,
        loss_mask=[0] * before + [1] * written,
        sampler_logprobs=[0.0] * before + logprobs,
        advantages=[0.0] * before + [1.0] * written,
        experts=experts,
    )


@torch.no_grad()
def gap(
    model: PreTrainedModel, samples: list[TrainSample], plausibility: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Mismatch and routing metrics of the trainer's own scoring."""
    replay, gaps = Replay(model, plausibility=plausibility), []
    for batch in pack(samples, max_tokens=4096):
        with replay.forced(batch.experts_BTLK):
            scores = score_tokens(model, batch, temperature=TEMPERATURE)
        gaps.append(scores.logprobs_N - batch.sampler_logprobs_N)
    routing = replay.take_counts().metrics()
    for router in replay.routers:
        router.module._forward_hooks.clear()
    return mismatch(torch.cat(gaps)), routing


def through_engine(model: PreTrainedModel, folder: str, prompts: list[list[int]], length: int) -> list[TrainSample]:
    """What the embedded engine samples at lag 0."""
    from pathlib import Path

    model.config.save_pretrained(folder)
    limits = Limits(max_context=256, max_num_seqs=32)
    decoder = build_decoder(read_shape(Path(folder)), checkpoint_state(model, model.state_dict()), limits.max_context)
    runner = Runner(limits)
    runner.install(decoder, make_cache(decoder, limits), 0)
    answers: dict[int, GenerateResponse] = {}
    for index, prompt in enumerate(prompts):
        request = GenerateRequest(
            prompt_ids=prompt, max_tokens=length, temperature=TEMPERATURE, seed=index, experts_from=0
        )
        runner.submit(Job(request, math.inf, lambda answer, index=index: answers.__setitem__(index, answer)))  # type: ignore[misc]
    while runner.step() >= 0:
        pass
    return [sample(p, answers[i].token_ids, answers[i].logprobs, answers[i].experts) for i, p in enumerate(prompts)]


def policy() -> PreTrainedModel:
    """A few million random parameters: 4 layers of 32 experts, 4 of them a token."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=128,
        moe_intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=32,
        num_experts_per_tok=4,
        norm_topk_prob=True,
        max_position_embeddings=256,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=None,
    )
    return Qwen3MoeForCausalLM(config).bfloat16().float().eval()  # weights that bf16 holds exactly


@torch.no_grad()
def in_bfloat16(model: PreTrainedModel, rows: int, length: int) -> list[TrainSample]:
    """Tokens of the same weights computed in bf16, scored by one forward pass with its experts."""
    coarse = type(model)(model.config).bfloat16().eval()
    coarse.load_state_dict(model.state_dict())
    prompts = torch.randint(0, 512, (rows, 8), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2)
    whole = coarse.generate(prompts, do_sample=True, temperature=TEMPERATURE, top_k=0, max_new_tokens=length)
    recorder = Recorder(coarse)
    table = torch.log_softmax(coarse(whole).logits.float() / TEMPERATURE, -1)[:, :-1]
    logprobs = table.gather(-1, whole[:, 1:, None])[..., 0]
    experts = recorder.chosen().view(*whole.shape, len(recorder.routers), -1).numpy().astype("uint16")
    return [
        sample(
            prompts[row].tolist(),
            whole[row, 8:].tolist(),
            logprobs[row, 7:].tolist(),
            RoutedExperts.pack(experts[row, :-1]),
        )
        for row in range(rows)
    ]


def damaged(samples: list[TrainSample], experts: int) -> list[TrainSample]:
    """One record of a token and layer in a hundred is replaced by any experts."""
    generator = torch.Generator().manual_seed(3)
    out = []
    for one in samples:
        assert one.experts is not None
        record = torch.from_numpy(one.experts.unpack().astype("int64"))
        wrong = torch.rand((*record.shape[:-1], experts), generator=generator).argsort(-1)[..., : record.shape[-1]]
        hit = torch.rand(record.shape[:-1], generator=generator) < 0.01
        record = torch.where(hit[..., None], wrong, record)
        out.append(one.model_copy(update={"experts": RoutedExperts.pack(record.numpy().astype("uint16"))}))
    return out


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=32, help="sequences of each measurement")
    parser.add_argument("--length", type=int, default=64, help="sampled tokens of each")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    metrics: dict[str, float] = {}
    agree = []
    for name, model in [
        ("dense", dense.make("qwen3")),
        *((family, moe.make(family)) for family in ("qwen3-moe", "mixtral", "deepseek-v3")),
    ]:
        prompts = [row[: 3 + i % 20].tolist() for i, row in enumerate(moe.tokens(arguments.rows, 24))]
        with tempfile.TemporaryDirectory() as folder:
            samples = through_engine(model, folder, prompts, arguments.length)
        found, routing = gap(model, samples, plausibility=0.0)
        metrics |= {f"k3_fp32_{name}": found["mismatch/k3_mean"], f"gap_max_fp32_{name}": found["mismatch/abs_max"]}
        if routing:
            agree.append(1 - routing["routing/differs"])
    metrics["k3_fp32"] = max(value for key, value in metrics.items() if key.startswith("k3_fp32_"))
    metrics["experts_agree_fp32"] = min(agree)
    model = policy()
    default = ObjectiveConfig().router_replay_threshold
    coarse = in_bfloat16(model, arguments.rows, arguments.length)
    wrong = damaged(coarse, int(model.config.num_experts))
    for name, samples, plausibility in (
        ("no_replay", [one.model_copy(update={"experts": None}) for one in coarse], 0.0),
        ("replay", coarse, 0.0),
        ("replay_filter", coarse, default),
        ("damaged_replay", wrong, 0.0),
        ("damaged_filter", wrong, default),
    ):
        found, routing = gap(model, samples, plausibility)
        metrics |= {f"k3_{name}": found["mismatch/k3_mean"], f"gap_p99_{name}": found["mismatch/abs_p99"]}
        metrics |= {f"gap_max_{name}": found["mismatch/abs_max"]}
        if routing.get("routing/replayed"):
            metrics |= {f"differs_{name}": routing["routing/differs"], f"replaced_{name}": routing["routing/replaced"]}
        for key, value in routing.items():
            if name == "replay" and key.startswith("routing/differs/"):
                sys.stdout.write(f"layer {key[-2:]}: {100 * value:.2f} % of tokens are routed otherwise in bf16\n")
    metrics["replay_ratio"] = metrics["k3_replay"] / metrics["k3_no_replay"]
    metrics["filter_ratio"] = metrics["k3_damaged_filter"] / metrics["k3_damaged_replay"]
    rounded = {name: float(f"{value:.4g}") for name, value in metrics.items()}
    report.emit(
        "parity",
        rounded,
        goals=GOALS,
        conditions={"weights": "random", "sampled_tokens": arguments.rows * arguments.length},
    )


if __name__ == "__main__":
    main()
