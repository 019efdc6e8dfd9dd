"""Every model family through the whole chain: import, rollout, mismatch, step, publish, in-place update, save.

One table of tiny random models. gpt-oss has attention sinks and sliding windows, which the embedded engine refuses by name:
its rollouts need vLLM, and its other columns are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Glm4MoeConfig,
    GptOssConfig,
    LlamaConfig,
    MixtralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3MoeConfig,
)

from tests.trainer.policy import families as tokenizers
from tests.trainer.policy.test_families import OPENING
from trainer import policy as policies
from trainer.config import ObjectiveConfig, OptimizerConfig
from trainer.inference.contract import GenerateRequest, GenerateResponse
from trainer.inference.embedded.factory import build_decoder, build_weights, read_shape
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.errors import UnsupportedModel
from trainer.learning.importance_sampling import correction_of
from trainer.learning.loss import score_tokens
from trainer.learning.mismatch import mismatch
from trainer.learning.packing import pack
from trainer.learning.step import Learner
from trainer.model_import import Asked
from trainer.policy.importing.__main__ import carry_out
from trainer.policy.names import checkpoint_state
from trainer.router_replay.hooks import Replay
from trainer.types import TrainGroup, TrainSample
from trainer.weights import Subscriber, open_versions
from trainer.weights.store import WeightStore

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "eos_token_id": 0,
}
MOE: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
GROUPS: dict[str, Any] = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
MLA: dict[str, Any] = {
    "num_key_value_heads": 4,
    "head_dim": None,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}


@dataclass(frozen=True)
class Row:
    tokenizer: str
    """The family of `tests/trainer/policy/families.py` whose tokenizer and template it has."""
    config: Callable[..., PretrainedConfig]
    fields: Mapping[str, Any] = field(default_factory=dict)
    facts: str = "grouped-query"
    """Of its attention, as the import says."""
    served: bool = True
    replayed: bool = False
    """Whether its routers' choices are replayed."""

    def build(self, vocabulary: int, **sizes: Any) -> PreTrainedModel:
        """A random model of the family, always the same; `sizes` go before those of the table."""
        fields = {name: value for name, value in {**SIZES, **self.fields, **sizes}.items() if value is not None}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made: PreTrainedModel = AutoModelForCausalLM.from_config(
                self.config(**fields, bos_token_id=None, vocab_size=vocabulary), dtype=torch.float32
            )
        return made


TABLE = {
    "qwen3": Row("qwen3", Qwen3Config),
    "qwen3-moe": Row("qwen3", Qwen3MoeConfig, {**MOE, "num_experts": 4, "norm_topk_prob": True}, replayed=True),
    "llama": Row("llama-3", LlamaConfig),
    "mixtral": Row("qwen3-coder", MixtralConfig, {"num_local_experts": 4, "num_experts_per_tok": 2}, replayed=True),
    "deepseek-v3": Row("kimi-k2", DeepseekV3Config, {**MOE, **GROUPS, **MLA}, "multi-head latent (MLA)", replayed=True),
    "glm-4-moe": Row("glm-4.5", Glm4MoeConfig, {**MOE, **GROUPS}, replayed=True),
    "gpt-oss": Row(
        "gpt-oss",
        GptOssConfig,
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16},
        served=False,
    ),
}
LIMITS = Limits(max_context=384, max_num_seqs=4, kv_bytes=1 << 25)
LENGTH = 12


def published(row: Row, folder: Path, **sizes: Any) -> Path:
    """A model folder as somebody publishes it."""
    family = next(one for one in tokenizers.FAMILIES if one.name == row.tokenizer)
    tokenizer = tokenizers.tokenizer_of(family)
    row.build(len(tokenizer), **sizes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def runner_of(folder: Path, model: PreTrainedModel) -> Runner:
    decoder = build_decoder(read_shape(folder), checkpoint_state(model, model.state_dict()), LIMITS.max_context)
    runner = Runner(LIMITS)
    runner.install(decoder, make_cache(decoder, LIMITS), 0)
    return runner


def generate(
    runner: Runner, prompt: list[int], count: int, *, swap: tuple[int, Any] | None = None
) -> list[TrainSample]:
    """Sampled turns as samples, of advantages +1 and -1 in turn; `swap` exchanges the weights after so many steps."""
    answers: dict[int, GenerateResponse] = {}

    def keep(number: int) -> Callable[[Any], None]:
        return lambda answer: answers.__setitem__(number, answer)

    for number in range(count):
        request = GenerateRequest(prompt_ids=prompt, max_tokens=LENGTH, temperature=1.0, seed=number, experts_from=0)
        runner.submit(Job(request, math.inf, keep(number)))
    for step in range(10_000):
        if swap is not None and step == swap[0]:
            runner.swap(swap[1], 1)
        if runner.step() < 0:
            break
    before = len(prompt)
    return [
        TrainSample(
            tokens=prompt + answers[number].token_ids,
            loss_mask=[0] * before + [1] * len(answers[number].token_ids),
            sampler_logprobs=[0.0] * before + answers[number].logprobs,
            advantages=[0.0] * before + [1.0 - 2.0 * (number % 2)] * len(answers[number].token_ids),
            experts=answers[number].experts,
        )
        for number in range(count)
    ]


@torch.no_grad()
def k3(model: PreTrainedModel, samples: list[TrainSample], *, replayed: bool) -> float:
    """Mismatch of the sampler's log-probabilities and the trainer's, over sampled tokens."""
    gaps = []
    replay = Replay(model, plausibility=0.0) if replayed else None
    for batch in pack(samples, max_tokens=4096):
        if replay is not None:
            with replay.forced(batch.experts_BTLK):
                scores = score_tokens(model, batch, temperature=1.0)
        else:
            scores = score_tokens(model, batch, temperature=1.0)
        gaps.append(scores.logprobs_N - batch.sampler_logprobs_N)
    if replay is not None:
        for router in replay.routers:
            router.module._forward_hooks.clear()
    return mismatch(torch.cat(gaps))["mismatch/k3_mean"]


@pytest.mark.parametrize("name", TABLE)
def test_a_family_goes_through_the_whole_chain(name: str, tmp_path: Path) -> None:
    row = TABLE[name]
    family = next(one for one in tokenizers.FAMILIES if one.name == row.tokenizer)
    answer = carry_out(Asked(path=str(published(row, tmp_path / "published")), target=str(tmp_path / "imported")))
    assert answer.refused == "" and answer.facts is not None
    assert answer.facts.renderer == family.chosen and answer.facts.problem == ""
    assert answer.facts.attention.startswith(row.facts)
    folder = Path(answer.folder)
    policy = policies.load(folder)
    prompt = policy.renderer.start(OPENING)
    store = WeightStore(str(tmp_path / "store"), dtype="float32")

    if row.served:
        runner = runner_of(folder, policy.model)
        samples = generate(runner, prompt, 4)
        assert k3(policy.model, samples, replayed=row.replayed) < 1e-6
    else:
        with pytest.raises(UnsupportedModel, match="vLLM"):
            runner_of(folder, policy.model)
        samples = []
    store.publish(0, checkpoint_state(policy.model, policy.model.state_dict()))
    subscriber = Subscriber(open_versions(str(tmp_path / "store")))
    first = subscriber.fetch()
    assert first is not None
    subscriber.commit(first)

    samples = samples or _written(policy.model, prompt)
    group = TrainGroup(
        group_id="g",
        prompt_index=0,
        dispatched_version=0,
        oldest_version=0,
        rewards=[1.0] * len(samples),
        samples=samples,
    )
    before = {key: value.clone() for key, value in policy.model.state_dict().items()}
    learner = Learner(
        policy.model,
        objective=ObjectiveConfig(),
        correction=correction_of(ObjectiveConfig()),
        optimizer=OptimizerConfig(learning_rate=0.01, warmup_steps=0),
        temperature=1.0,
        total_steps=10,
        micro_batch_tokens=4096,
        enable_router_replay=row.replayed,
    )
    metrics = learner.train([group], step=1)
    assert all(math.isfinite(value) for value in metrics.values())
    policy.model.eval()
    changed = [key for key, value in policy.model.state_dict().items() if not torch.equal(value, before[key])]
    assert changed

    store.publish(1, checkpoint_state(policy.model, policy.model.state_dict()))
    second = subscriber.fetch()
    assert second is not None and second.mirror.version == 1
    if row.served:
        newer = build_weights(read_shape(folder), second.mirror.state())
        generate(runner, prompt, 2, swap=(3, newer))
        assert runner.version == 1
        assert k3(policy.model, generate(runner, [*prompt, 7], 2), replayed=row.replayed) < 1e-6

    saved = policies.save(policy, tmp_path / "saved")
    again = policies.load(saved)
    assert again.renderer.name == policy.renderer.name
    wanted = policy.model.state_dict()
    assert all(torch.equal(value, wanted[key]) for key, value in again.model.state_dict().items())


@torch.no_grad()
def _written(model: PreTrainedModel, prompt: list[int]) -> list[TrainSample]:
    """Samples of the library's own log-probabilities, for a model that the embedded engine does not serve."""
    made = []
    for number in range(2):
        said = [5 + number + at for at in range(LENGTH)]
        logits = model(torch.tensor([prompt + said])).logits[0].float()
        table = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
        own = table.gather(-1, torch.tensor(said)[:, None])[:, 0].tolist()
        zeros = [0.0] * len(prompt)
        mask = [0] * len(prompt) + [1] * LENGTH
        made.append(
            TrainSample(
                tokens=prompt + said,
                loss_mask=mask,
                sampler_logprobs=zeros + own,
                advantages=zeros + [1.0 - 2.0 * number] * LENGTH,
            )
        )
    return made
