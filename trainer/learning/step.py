"""One optimiser step over accepted groups: score, weight, differentiate, clip, update.

The learner knows no rewards, group baselines or algorithms. It reads per-token streams (tokens, mask, sampler
log-probabilities, advantages) and a few constants. On a CPU a step is a pure function of weights, optimizer state and
batch:
the same batch gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer.config import ObjectiveConfig, OptimizerConfig
from trainer.learning.backend import ParallelBackend, SingleProcess
from trainer.learning.clock import now
from trainer.learning.flops import FlopsCounter, Tokens
from trainer.learning.importance_sampling import Correction, TokenEvidence, correction_stats
from trainer.learning.kernels import prefix_attention, supports_prefix_sharing
from trainer.learning.lora import WEIGHT_KEY, Adapters
from trainer.learning.loss import Scored, kl_adjusted_advantages, policy_loss
from trainer.learning.master_weights import MasterWeights, is_low
from trainer.learning.memory import give_back
from trainer.learning.mismatch import mismatch
from trainer.learning.optimizers import learning_rate
from trainer.learning.packing import MicroBatch, check_sample, order
from trainer.learning.published_adapters import PublishedAdapters
from trainer.learning.token_export import TokenStreams, TrainedGroup, digest_of, packed
from trainer.router_replay.hooks import Replay
from trainer.types import TrainGroup, TrainSample


class NonFiniteGradients(RuntimeError):
    """Loss or gradients are NaN or infinite. The weights are unchanged."""

    def __init__(self, step: int, norm: float) -> None:
        super().__init__(
            f"step {step}: the gradient norm is {norm}; the weights of the step before are intact. "
            "Lower the learning rate or resume from an earlier checkpoint"
        )


class Learner:
    """Owns the trained model and its optimizer."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        objective: ObjectiveConfig,
        correction: Correction,
        optimizer: OptimizerConfig,
        temperature: float,
        total_steps: int,
        micro_batch_tokens: int,
        reference: PreTrainedModel | None = None,
        adapters: Adapters | None = None,
        enable_router_replay: bool = True,
        backend: ParallelBackend | None = None,
        round_weights: bool = False,
    ) -> None:
        """`backend` computes the step: in this process, or together with other ranks (`trainer/distributed`).
        `round_weights`: compute with the weights as they are published in bfloat16 (`master_weights.py`,
        `published_adapters.py`).

        Raises RouterUnknown when router replay is on and the layers of `model` are unknown.
        """
        if objective.kl_coefficient > 0 and reference is None:
            raise ValueError("kl_coefficient > 0 needs a reference policy")
        self.model = model
        self.reference = reference
        self.adapters = adapters
        self.objective = objective
        self.temperature = temperature
        self.total_steps = total_steps
        self.micro_batch_tokens = micro_batch_tokens
        self.correction = correction
        self.backend: ParallelBackend = backend or SingleProcess()
        self.replay = Replay(model, plausibility=objective.router_replay_threshold) if enable_router_replay else None
        self.flops = FlopsCounter(model, precision=self.backend.precision)
        self._last: tuple[list[TrainSample], list[Scored]] = ([], [])
        """Samples that the last step scored, and the results."""
        self.vocabulary = len(cast(nn.Embedding, model.get_input_embeddings()).weight)
        model.train()
        self.optimizer = self.backend.setup(model, reference, optimizer)
        self.master: MasterWeights | PublishedAdapters | None = None
        if round_weights:
            self.master = PublishedAdapters(adapters) if adapters else MasterWeights(model)

    def train(self, groups: Sequence[TrainGroup], *, step: int) -> dict[str, float]:
        """Take one optimiser step (counted from 1) and return its metrics. Raises NonFiniteGradients, ValueError (bad
        sample).

        All samples are checked before any computation: a refused sample leaves the weights unchanged.
        """
        samples = [sample for group in groups for sample in group.samples]
        for sample in samples:
            check_sample(sample, vocabulary=self.vocabulary)
            if sample.experts is not None and self.replay is not None:
                self.replay.check(sample.experts.unpack())
        useful = samples if self._needs_all_samples else [sample for sample in samples if any(sample.advantages)]
        started = now(self.device)
        batches = self.backend.split(useful, max_tokens=self.micro_batch_tokens)
        loss = 0.0
        scored: list[Scored] = []
        for batch in batches:
            part, facts = self._backward(batch)
            loss += part
            scored.append(facts)
        differentiated = now(self.device)
        rate = learning_rate(self.optimizer.config, step, self.total_steps)
        norm = self._update(rate, step) if batches or self._has_gradients() else 0.0
        loss, tokens, scored = self.backend.gather(loss, sum(batch.tokens for batch in batches), scored)
        flops = self._flops(useful, batches, now(self.device) - started)
        self._last = (useful, scored)
        del batches
        give_back()
        seconds = differentiated - started
        return {
            "optim/loss": loss,
            "optim/grad_norm": norm,
            "optim/learning_rate": rate,
            "optim/skipped_samples": float(len(samples) - len(useful)),
            "tokens/trained": float(tokens),
            "time/forward_backward": seconds,
            "time/optimizer": now(self.device) - differentiated,
            "speed/train_tokens": tokens / seconds if seconds > 0 else 0.0,
            **flops,
            **self.backend.from_first(_token_metrics(scored)),
            **(self.backend.sum_routing(self.replay.take_counts()).metrics() if self.replay else {}),
        }

    def streams(self, groups: Sequence[TrainGroup], *, step: int) -> list[TrainedGroup]:
        """Per-token streams of the last `train(groups)`, for display."""
        samples, scored = self._last
        rows = [samples[index] for index in order(samples)]
        lengths = [sum(row.loss_mask) for row in rows]
        found: dict[int, dict[str, str]] = {id(row): {} for row in rows}
        for name in ("log_ratio_N", "entropy_N", "weights_N", "advantages_N"):
            whole = torch.cat([getattr(facts, name).float() for facts in scored]) if scored else torch.empty(0)
            for row, part in zip(rows, whole.split(lengths), strict=True):
                if name == "log_ratio_N":
                    sampled = [p for p, mask in zip(row.sampler_logprobs, row.loss_mask, strict=True) if mask]
                    found[id(row)]["trainer_logprobs"] = packed((part + torch.tensor(sampled)).numpy())
                else:
                    found[id(row)][name.removesuffix("_N")] = packed(part.numpy())
        return [
            TrainedGroup(
                prompt_index=group.prompt_index,
                step=step,
                samples=[_streams_of(sample, found.get(id(sample), {})) for sample in group.samples],
            )
            for group in groups
        ]

    def weights(self) -> dict[str, Tensor]:
        """Published form of the policy: plain weights by Hugging Face name, on the CPU."""
        return self.backend.full_weights(self.model, self.adapters)

    def published_state(self) -> dict[str, Tensor]:
        """Weights to publish and save where they are, sharded as they are, with adapters merged."""
        return self.adapters.merged_in_place() if self.adapters else self.model.state_dict(keep_vars=True)

    def resume_state(self) -> dict[str, Tensor]:
        """`state_tensors()` where it is, sharded as it is; loading writes into this memory."""
        return self.optimizer.state_tensors() | (self.adapters.own() if self.adapters else {})

    def state_tensors(self) -> dict[str, Tensor]:
        """All other state that the next step depends on, by name."""
        found = self.optimizer.state_tensors() | (self.adapters.state_tensors() if self.adapters else {})
        return found | (self.master.state_tensors() if self.master else {})

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `state_tensors()`. Raises ValueError when they belong to another model."""
        low = {name: tensor for name, tensor in tensors.items() if is_low(name)}
        tensors = {name: tensor for name, tensor in tensors.items() if name not in low}
        if self.adapters:
            self.adapters.load_state_tensors(tensors)
        if self.master:
            self.master.load_state_tensors(low)
        self.optimizer.load_state_tensors({k: t for k, t in tensors.items() if not k.endswith(f"|{WEIGHT_KEY}")})

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _has_gradients(self) -> bool:
        """Whether textual feedback (`learning/feedback`) has left gradients before the step."""
        return any(parameter.grad is not None for parameter in self.model.parameters())

    @property
    def _needs_all_samples(self) -> bool:
        """Whether all samples must run. Without a KL term, a sample with all-zero advantages has an exactly zero
        gradient."""
        return self.objective.kl_coefficient > 0

    def _flops(self, samples: Sequence[TrainSample], batches: Sequence[MicroBatch], seconds: float) -> dict[str, float]:
        """FLOPs metrics of the step, with the memory of the rank that needs most; empty when nothing was computed."""
        if not samples:
            return {}
        work = work_of(samples, batches, shared=supports_prefix_sharing(self.model))
        found = self.flops.metrics(
            work, seconds, device=self.device, ranks=self.backend.ranks, reference=self._needs_all_samples
        )
        return found | {"memory/trainer": self.backend.maximum(found["memory/trainer"])}

    def _backward(self, batch: MicroBatch) -> tuple[float, Scored]:
        batch = batch.to(self.device)
        with (
            self.replay.forced(self.backend.local_experts(batch)) if self.replay else nullcontext(),
            prefix_attention(self.model, batch.shared),
        ):
            return self._differentiate(batch)

    def _differentiate(self, batch: MicroBatch) -> tuple[float, Scored]:
        scores = self.backend.score(self.model, batch, temperature=self.temperature)
        reference_N = None
        if self._needs_all_samples and self.reference is not None:
            with torch.no_grad():
                scored = self.backend.score(self.reference, batch, temperature=self.temperature)
                reference_N = scored.logprobs_N
        advantages_N = kl_adjusted_advantages(
            batch.advantages_N, scores.logprobs_N, reference_N, coefficient=self.objective.kl_coefficient
        )
        evidence = TokenEvidence(
            scores.logprobs_N.detach(), batch.sampler_logprobs_N, advantages_N.detach(), batch.rows_N
        )
        weights_N = self.correction.weights(evidence)
        loss = policy_loss(scores.logprobs_N, advantages_N, weights_N, divisor=self.objective.loss_divisor)
        loss.backward()
        k1_N = None if reference_N is None else (scores.logprobs_N.detach() - reference_N).cpu()
        log_ratio_N = evidence.trainer_logprobs_N - evidence.sampler_logprobs_N
        facts = Scored(
            weights_N.cpu(),
            self.correction.clipped(evidence).cpu(),
            evidence.ratio_N.cpu(),
            log_ratio_N.cpu(),
            scores.entropy_N.cpu(),
            k1_N,
            evidence.advantages_N.cpu(),
        )
        return float(loss.detach()), facts

    def _update(self, rate: float, step: int) -> float:
        norm = self.backend.clip_gradients(self.model, self.optimizer.config.max_grad_norm)
        if not math.isfinite(norm):
            self.model.zero_grad(set_to_none=True)
            raise NonFiniteGradients(step, norm)
        with self.master.exact() if self.master else nullcontext():
            self.optimizer.step(rate)
        return norm


def work_of(samples: Sequence[TrainSample], batches: Sequence[MicroBatch], *, shared: bool) -> Tokens:
    """Work of `batches` over `samples`; `shared`: the model computes common prefixes once where possible.

    On ranks, `batches` are those of one, and none shares prefixes.
    """
    predicted = sum(sum(sample.loss_mask) for sample in samples)
    trees = [batch.shared for batch in batches if batch.shared is not None]
    if not shared or not trees:
        return Tokens.of_rows((len(sample.tokens) for sample in samples), predicted)
    alone = [length for batch in batches if batch.shared is None for length in batch.lengths]
    return Tokens.of_prefixes((tree.positions_U for tree in trees), predicted) + Tokens.of_rows(alone, 0)


def _streams_of(sample: TrainSample, scored: dict[str, str]) -> TokenStreams:
    """Token streams of a sample; an unscored sample has advantages only."""
    advantages = [a for a, mask in zip(sample.advantages, sample.loss_mask, strict=True) if mask]
    digest = digest_of(sample.tokens, sample.sampler_logprobs)
    return TokenStreams(digest=digest, tokens=len(advantages), **({"advantages": packed(advantages)} | scored))


def _token_metrics(scored: Sequence[Scored]) -> dict[str, float]:
    """Statistics over the policy tokens of the whole step; empty when nothing was scored."""
    if not scored:
        return {}
    ratio_N = torch.cat([facts.ratio_N for facts in scored]).double()
    weights_N = torch.cat([facts.weights_N for facts in scored])
    stats = correction_stats(ratio_N, weights_N, torch.cat([facts.clipped_N for facts in scored]))
    out = {
        "policy/entropy": float(torch.cat([facts.entropy_N for facts in scored]).mean()),
        **mismatch(torch.cat([facts.log_ratio_N for facts in scored])),
        "correction/ess": stats.ess,
        "correction/chi2": stats.chi2,
        "correction/masked_share": stats.masked_share,
        "correction/clipped_share": stats.clipped_share,
        "correction/ratio_mean": stats.ratio_mean,
        "correction/ratio_max": stats.ratio_max,
    }
    k1 = [facts.k1_N for facts in scored if facts.k1_N is not None]
    if k1:
        out["kl/k1"] = float(torch.cat(k1).mean())
    return out
