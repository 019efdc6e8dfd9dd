"""AdamW and Muon with one learning-rate schedule and an optimizer state of named tensors.

Muon trains the matrices inside the blocks: torch's own implementation the single ones, `muon.py` the stacked ones of
experts. Embeddings, the output projection and vectors use AdamW, whose moments may be stored in 8 bits (`eight_bit.py`). The
state is saved by parameter name, so it fits a
safetensors file and survives reordering.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainer.config import OptimizerConfig
from trainer.learning.flops import EXPERT
from trainer.learning.muon import StackedMuon

MUON = (torch.optim.Muon, StackedMuon)


def learning_rate(config: OptimizerConfig, step: int, total_steps: int) -> float:
    """Learning rate at step `step` (from 1): linear warm-up, constant, linear decay from `decay_start` of the run."""
    warmup = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
    start = config.decay_start * total_steps
    if step <= start or total_steps <= start:
        return config.learning_rate * warmup
    done = min(1.0, (step - start) / (total_steps - start))
    return config.learning_rate * warmup * (1.0 - done * (1.0 - config.min_lr_ratio))


class NamedOptimizer:
    """The optimizers of one model behind one `step`."""

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        """Raises ValueError for an automatic learning rate that nobody has derived."""
        if not config.learning_rate:
            raise ValueError("optimizer.learning_rate is auto; derive it first (trainer.defaults.derive)")
        self.config = config
        self._names: dict[Tensor, str] = {p: name for name, p in model.named_parameters() if p.requires_grad}
        self._eight_bit = config.state_dtype == "int8"
        self._optimizers = _build(model, config)

    def step(self, rate: float) -> None:
        """Apply the gradients at learning rate `rate` and drop them."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                if isinstance(group["lr"], Tensor):  # torchao's
                    group["lr"].fill_(rate)
                else:
                    group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state_tensors(self) -> dict[str, Tensor]:
        """`<parameter name>|<state key>` → tensor; scalars become 0-d tensors."""
        out: dict[str, Tensor] = {}
        if self._eight_bit:
            from trainer.learning.eight_bit import flattened  # torchao is imported by those who use it
        for optimizer in self._optimizers:
            for parameter, state in optimizer.state.items():
                for key, value in state.items():
                    tensor = value if isinstance(value, Tensor) else torch.tensor(value)
                    for part, plain in flattened(key, tensor) if self._eight_bit else [(key, tensor)]:
                        out[f"{self._names[parameter]}|{part}"] = plain.detach().cpu().contiguous()
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
            if tensor.ndim and tensor.shape != parameter.shape and not key.endswith(".scale"):
                raise ValueError(
                    f"optimizer state {full!r} has shape {tuple(tensor.shape)}, the policy has {tuple(parameter.shape)}"
                )
            # Cloned: torch's own memory is aligned, a file's mapping need not be, and kernels choose code by alignment.
            # To where the parameter is now, its number of steps too: fused kernels of a GPU want that there.
            states.setdefault(parameter, {})[key] = tensor.to(parameter.device).clone()
        for optimizer in self._optimizers:
            optimizer.state.clear()
            moments = {"momentum_buffer"} if isinstance(optimizer, MUON) else {"step", "exp_avg", "exp_avg_sq"}
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    state = states.get(parameter, {})
                    if self._eight_bit or any("." in key for key in state):
                        from trainer.learning.eight_bit import restored

                        state = restored(parameter, state, eight_bit=self._eight_bit)
                    # A checkpoint of when another optimizer had this parameter has other moments: they start anew.
                    if state.keys() == moments:
                        optimizer.state[parameter] = state


def _build(model: nn.Module, config: OptimizerConfig) -> list[torch.optim.Optimizer]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if config.name == "adamw":
        return [_adamw(parameters, config, config.weight_decay)]
    single, stacked = muon_matrices(model), muon_stacks(model)
    matrices = [parameter for parameter in parameters if parameter in single]
    stacks = [parameter for parameter in parameters if parameter in stacked]
    rest = [parameter for parameter in parameters if parameter not in single | stacked]
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
    if stacks:
        optimizers.append(
            StackedMuon(stacks, lr=config.learning_rate, momentum=config.beta2, weight_decay=config.weight_decay)
        )
    if rest:
        optimizers.append(_adamw(rest, config, 0.0))
    return optimizers


def _adamw(parameters: list[nn.Parameter], config: OptimizerConfig, weight_decay: float) -> torch.optim.Optimizer:
    betas = (config.beta1, config.beta2)
    if config.state_dtype == "int8":
        from trainer.learning.eight_bit import EightBitAdamW

        made: torch.optim.Optimizer = EightBitAdamW(
            parameters, lr=config.learning_rate, betas=betas, weight_decay=weight_decay
        )
        return made
    return torch.optim.AdamW(parameters, lr=config.learning_rate, betas=betas, weight_decay=weight_decay, fused=True)


def muon_matrices(model: nn.Module) -> set[Tensor]:
    """Single matrices that Muon trains: trained ones inside the blocks. Stacked biases of experts are excluded."""
    outside = {
        parameter
        for module in model.modules()
        if isinstance(module, nn.Embedding) or module is _output_projection(model)
        for parameter in module.parameters(recurse=False)
    }
    return {
        p
        for name, p in model.named_parameters()
        if p.requires_grad and p.ndim == 2 and p not in outside and not name.endswith("bias")
    }


def muon_stacks(model: nn.Module) -> set[Tensor]:
    """Stacks [E, m, n] of expert matrices that Muon trains."""
    return {p for name, p in model.named_parameters() if p.requires_grad and p.ndim == 3 and EXPERT.search(name)}


def _output_projection(model: nn.Module) -> nn.Module | None:
    getter = getattr(model, "get_output_embeddings", None)
    return getter() if callable(getter) else None
