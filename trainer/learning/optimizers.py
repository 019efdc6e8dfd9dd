"""AdamW or Muon, one learning-rate schedule, and an optimizer state that is named tensors.

Muon (torch's own) takes the matrices inside the blocks; embeddings, the output projection and vectors stay with
AdamW. The state is saved by parameter name so that it travels in a safetensors file and survives reordering.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainer.config import OptimizerConfig


def learning_rate(config: OptimizerConfig, step: int, total_steps: int) -> float:
    """Rate of optimiser step `step` (from 1): linear warm-up, constant, linear fall from `decay_from` of the run."""
    warmup = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
    start = config.decay_from * total_steps
    if step <= start or total_steps <= start:
        return config.learning_rate * warmup
    done = min(1.0, (step - start) / (total_steps - start))
    return config.learning_rate * warmup * (1.0 - done * (1.0 - config.final_share))


class NamedOptimizer:
    """The optimizers of one model behind one `step`."""

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        self.config = config
        self._names: dict[Tensor, str] = {p: name for name, p in model.named_parameters() if p.requires_grad}
        self._optimizers = _build(model, config)

    def step(self, rate: float) -> None:
        """Apply the gradients at learning rate `rate` and drop them."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state_tensors(self) -> dict[str, Tensor]:
        """`<parameter name>|<state key>` → tensor; scalars become 0-d tensors."""
        out: dict[str, Tensor] = {}
        for optimizer in self._optimizers:
            for parameter, state in optimizer.state.items():
                for key, value in state.items():
                    tensor = value if isinstance(value, Tensor) else torch.tensor(value)
                    out[f"{self._names[parameter]}|{key}"] = tensor.detach().cpu().contiguous()
        return out

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `state_tensors()`. Raises ValueError if a tensor belongs to no parameter or has another shape."""
        by_name = {name: parameter for parameter, name in self._names.items()}
        states: dict[Tensor, dict[str, Tensor]] = {}
        for full, tensor in tensors.items():
            name, _, key = full.rpartition("|")
            parameter = by_name.get(name)
            if parameter is None:
                raise ValueError(
                    f"optimizer state for {name!r}, which this policy does not have: the checkpoint is of another model"
                )
            if tensor.ndim and tensor.shape != parameter.shape:
                raise ValueError(
                    f"optimizer state {full!r} has shape {tuple(tensor.shape)}, the policy has {tuple(parameter.shape)}"
                )
            # Cloned: torch's own memory is aligned, a file's mapping need not be, and kernels choose code by alignment.
            # To where the parameter is now, its number of steps too: fused kernels of a GPU want that there.
            states.setdefault(parameter, {})[key] = tensor.to(parameter.device).clone()
        for optimizer in self._optimizers:
            optimizer.state.clear()
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter in states:
                        optimizer.state[parameter] = states[parameter]


def _build(model: nn.Module, config: OptimizerConfig) -> list[torch.optim.Optimizer]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    betas = (config.beta1, config.beta2)
    if config.name == "adamw":
        return [
            torch.optim.AdamW(
                parameters, lr=config.learning_rate, betas=betas, weight_decay=config.weight_decay, fused=True
            )
        ]
    whole = muon_matrices(model)
    matrices = [parameter for parameter in parameters if parameter in whole]
    rest = [parameter for parameter in parameters if parameter not in whole]
    optimizers: list[torch.optim.Optimizer] = []
    if matrices:
        # match_rms_adamw: one learning rate serves both optimizers.
        optimizers.append(
            torch.optim.Muon(
                matrices,
                lr=config.learning_rate,
                momentum=config.beta2,
                weight_decay=config.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    if rest:
        optimizers.append(torch.optim.AdamW(rest, lr=config.learning_rate, betas=betas, weight_decay=0.0, fused=True))
    return optimizers


def muon_matrices(model: nn.Module) -> set[Tensor]:
    """The parameters that Muon trains: trained matrices inside the blocks."""
    outside = {
        parameter
        for module in model.modules()
        if isinstance(module, nn.Embedding) or module is _output_projection(model)
        for parameter in module.parameters(recurse=False)
    }
    return {p for p in model.parameters() if p.requires_grad and p.ndim == 2 and p not in outside}


def _output_projection(model: nn.Module) -> nn.Module | None:
    getter = getattr(model, "get_output_embeddings", None)
    return getter() if callable(getter) else None
