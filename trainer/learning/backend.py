"""How a learner's step is computed: in this process, or together with other ranks.

The learner (`step.py`) is the algorithm; a backend splits the batch, runs the model, clips gradients and combines what
ranks computed. `trainer/distributed/learner.py` has the one for many ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from trainer.config import OptimizerConfig
from trainer.learning.kernels import install_kernels
from trainer.learning.lora import Adapters
from trainer.learning.loss import Scored, TokenScores, score_tokens
from trainer.learning.optimizers import NamedOptimizer
from trainer.learning.packing import MicroBatch, pack
from trainer.policy.names import checkpoint_state, on_cpu
from trainer.router_replay.hooks import RoutingCounts
from trainer.types import TrainSample

Precision = Literal["float32", "bfloat16"]


class Optimizer(Protocol):
    """Updates the trained weights; its state is saved by parameter name."""

    config: OptimizerConfig

    def step(self, rate: float) -> None: ...

    def state_tensors(self) -> dict[str, Tensor]: ...

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None: ...


class ParallelBackend(Protocol):
    @property
    def precision(self) -> Precision:
        """Compute format; weights, gradients and optimizer stay float32."""
        ...

    @property
    def ranks(self) -> int:
        """Number of processes that compute a step together, each on its own device."""
        ...

    def setup(self, model: PreTrainedModel, reference: PreTrainedModel | None, config: OptimizerConfig) -> Optimizer:
        """Prepare the models in place and create the optimizer. Called once, before the first step."""
        ...

    def split(self, samples: Sequence[TrainSample], *, max_tokens: int) -> list[MicroBatch]:
        """Micro-batches that this process computes."""
        ...

    def local_experts(self, batch: MicroBatch) -> Tensor | None:
        """Recorded experts of the tokens that this process runs through the model."""
        ...

    def score(self, model: PreTrainedModel, batch: MicroBatch, *, temperature: float) -> TokenScores:
        """Log-probabilities of all policy tokens of the batch."""
        ...

    def clip_gradients(self, model: PreTrainedModel, max_norm: float) -> float:
        """Clip by the norm of the whole gradient, and return that norm."""
        ...

    def gather(self, loss: float, tokens: int, scored: list[Scored]) -> tuple[float, int, list[Scored]]:
        """Combine the step's statistics over processes, in the order of a single process. Only rank 0 gets the tokens'."""
        ...

    def from_first(self, values: dict[str, float]) -> dict[str, float]:
        """Rank 0's values."""
        ...

    def sum_routing(self, counts: RoutingCounts) -> RoutingCounts: ...

    def maximum(self, value: float) -> float: ...

    def full_weights(self, model: PreTrainedModel, adapters: Adapters | None) -> dict[str, Tensor]:
        """Plain weights by Hugging Face name, on the CPU."""
        ...


class SingleProcess:
    """The whole step in this process, on one device."""

    ranks = 1

    def __init__(
        self, *, precision: Precision = "float32", lm_head_chunk_size: int = 0, compiled: bool = False
    ) -> None:
        """`lm_head_chunk_size`: see `score_tokens`. `compiled`: the layers are compiled, which requires whole rows and
        torch's own loops."""
        self.precision = precision
        self.lm_head_chunk_size = lm_head_chunk_size
        self.compiled = compiled

    def setup(
        self, model: PreTrainedModel, reference: PreTrainedModel | None, config: OptimizerConfig
    ) -> NamedOptimizer:
        if not self.compiled:
            for one in (model, reference):
                if one is not None:
                    install_kernels(one, precision=self.precision)
        return NamedOptimizer(model, config)

    def split(self, samples: Sequence[TrainSample], *, max_tokens: int) -> list[MicroBatch]:
        return pack(samples, max_tokens=max_tokens, share=not self.compiled)

    def local_experts(self, batch: MicroBatch) -> Tensor | None:
        return batch.experts_BTLK

    def score(self, model: PreTrainedModel, batch: MicroBatch, *, temperature: float) -> TokenScores:
        half = self.precision == "bfloat16"
        with torch.autocast(batch.tokens_BT.device.type, torch.bfloat16, enabled=half):
            return score_tokens(model, batch, temperature=temperature, lm_head_chunk_size=self.lm_head_chunk_size)

    def clip_gradients(self, model: PreTrainedModel, max_norm: float) -> float:
        return float(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm))

    def gather(self, loss: float, tokens: int, scored: list[Scored]) -> tuple[float, int, list[Scored]]:
        return loss, tokens, scored

    def from_first(self, values: dict[str, float]) -> dict[str, float]:
        return values

    def sum_routing(self, counts: RoutingCounts) -> RoutingCounts:
        return counts

    def maximum(self, value: float) -> float:
        return value

    def full_weights(self, model: PreTrainedModel, adapters: Adapters | None) -> dict[str, Tensor]:
        return adapters.merged() if adapters else checkpoint_state(model, on_cpu(model))
