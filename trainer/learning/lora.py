"""Low-rank adapters for those who cannot train all weights, through peft (`pip install opencomposer[lora]`).

Adapters are put inside the model, whose class stays what it was; only they have gradients. What is published and
saved is the plain model with the adapters merged, so that engines and stores see ordinary weights; a resumed run
starts from the same base and reads the adapters back.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainer.config import LoraConfig

NAME = "default"
WEIGHT_KEY = "adapter"
"""State key of an adapter's own weights, beside those of its optimizer."""


class LoraUnavailable(RuntimeError):
    """The configuration asks for adapters and peft is not installed."""


class NoSuchTargets(ValueError):
    """Modules that are to get adapters and that the model does not have."""


class Adapters:
    """The adapters of one model."""

    def __init__(self, model: PreTrainedModel, config: LoraConfig, *, seed: int) -> None:
        """Freeze `model` and add adapters, whose first product is 0. Raises LoraUnavailable, NoSuchTargets."""
        try:
            from peft import LoraConfig as PeftConfig
            from peft import inject_adapter_in_model
        except ImportError as error:
            raise LoraUnavailable(
                f"lora.rank={config.rank} needs peft: install the extra `lora`, or set lora.rank to 0"
            ) from error
        self.model = model
        self.in_place = False
        """Whether the layers hold the merged weights already (`published_adapters.py`)."""
        targets = _targets(model, config.targets)
        model.requires_grad_(False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            inject_adapter_in_model(
                PeftConfig(
                    r=config.rank,
                    lora_alpha=config.alpha,  # type: ignore[arg-type] # peft divides it by the rank: any number
                    lora_dropout=0.0,
                    target_modules=targets,
                    task_type="CAUSAL_LM",
                ),
                model,
            )

    def merged(self) -> dict[str, Tensor]:
        """The weights of the plain model, adapters added, under the plain model's names, on the CPU."""
        return {name: tensor.detach().cpu() for name, tensor in self.merged_in_place().items()}

    @torch.no_grad()
    def merged_in_place(self) -> dict[str, Tensor]:
        """The same where the model is, cut as it is; tied weights and others without adapters are the model's own."""
        layers = dict(self.layers())
        out: dict[str, Tensor] = {}
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            owner, found, rest = name.partition(".base_layer.")
            if not found:
                if not any(f".{part}." in f".{name}" for part in ("lora_A", "lora_B")):
                    out[name] = tensor
            elif rest == "weight":
                delta = None if self.in_place else layers[owner].get_delta_weight(NAME)  # type: ignore[operator]
                out[f"{owner}.weight"] = tensor if delta is None else tensor + delta
            else:
                out[f"{owner}.{rest}"] = tensor
        return out

    def state_tensors(self) -> dict[str, Tensor]:
        """`<parameter name>|adapter` → weights."""
        return {name: tensor.cpu().contiguous() for name, tensor in self.own().items()}

    def own(self) -> dict[str, Tensor]:
        """The same where they are, cut as they are: the adapters' memory."""
        return {f"{name}|{WEIGHT_KEY}": p.detach() for name, p in self._parameters()}

    @torch.no_grad()
    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Read back `state_tensors()`. Raises ValueError when they are of other adapters."""
        for name, parameter in self._parameters():
            found = tensors.get(f"{name}|{WEIGHT_KEY}")
            if found is None or found.shape != parameter.shape:
                raise ValueError(f"the checkpoint holds no adapter {name} of shape {tuple(parameter.shape)}")
            parameter.copy_(found)

    def _parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]

    def layers(self) -> list[tuple[str, nn.Module]]:
        """Modules with adapters, by name."""
        return [(name, module) for name, module in self.model.named_modules() if hasattr(module, "get_delta_weight")]


def _targets(model: nn.Module, wanted: str) -> list[str] | str:
    """As peft takes them, each of which is there: peft passes over some of several that are not. Raises NoSuchTargets."""
    names = [name for part in wanted.split(",") if (name := part.strip())]
    if names == ["all-linear"]:
        return "all-linear"
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    missing = [name for name in names if not any(f".{one}".endswith(f".{name}") for one in linear)]
    if missing or not names:
        known = ", ".join(sorted({one.rpartition(".")[2] for one in linear}))
        raise NoSuchTargets(
            f"lora.targets: the policy has no linear modules named {', '.join(map(repr, missing)) or 'nothing'}; "
            f"it has {known}; name some of them, or write all-linear"
        )
    return names
