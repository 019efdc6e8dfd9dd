"""Partial reads of a policy's weights, for processes that shard a policy and need not hold all of it.

`outline` builds the model without memory for its weights; `WeightFiles` reads any part of any tensor of the folder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GenerationConfig, PretrainedConfig, PreTrainedModel

from trainer.policy.errors import PolicyUnreadable
from trainer.policy.store import check_safetensors, weight_files

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""Formats that convert to the model's own by rounding alone."""
GENERATION = "generation_config.json"


class WeightFiles:
    """The tensors of a policy folder, as stored in its safetensors files."""

    def __init__(self, folder: Path) -> None:
        """Open the files. Raises PolicyUnreadable."""
        self.folder = folder
        self.bytes_read = 0
        """Tensor bytes read since the files were opened."""
        self._open = ExitStack()
        self._slices: dict[str, Any] = {}
        for file in weight_files(folder):
            check_safetensors(folder, file)
            opened = self._open.enter_context(cast(Any, safe_open(folder / file, framework="pt")))
            self._slices |= {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 # no dict

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slices.clear()
        self._open.close()

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(part.get_shape()) for name, part in self._slices.items()}

    def is_float(self, name: str) -> bool:
        return self._slices[name].get_dtype() in FLOATS

    def read_into(self, target: Tensor, name: str, offset: tuple[int, ...]) -> None:
        """Fill `target` from tensor `name`, starting at `offset`. Raises PolicyUnreadable."""
        if not target.numel():
            return
        places = tuple(slice(at, at + size) for at, size in zip(offset, target.shape, strict=True))
        try:
            found = self._slices[name][places if places else ...]
        except (SafetensorError, OSError) as error:
            raise PolicyUnreadable(
                self.folder, name, str(error), "The weights' file is damaged: copy it again."
            ) from error
        self.bytes_read += found.numel() * found.itemsize
        target.copy_(found)


def outline(folder: Path, config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel | None:
    """The model of `load_model` in evaluation mode, with weights on the meta device. Values that no file holds, such as
    rotary frequencies, are computed. None for a class that does not define how to compute them.
    """
    if getattr(config, "quantization_config", None) is not None:
        return None
    with torch.device("meta"):
        model = cast(PreTrainedModel, AutoModelForCausalLM.from_config(config, dtype=dtype))
    if (folder / GENERATION).is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model.eval() if all(_compute(model, module) for module in model.modules()) else None


def _compute(model: PreTrainedModel, module: nn.Module) -> bool:
    """Compute the buffers of `module` that no file holds, as the library does after loading; return whether all
    succeeded."""
    own: list[str] = sorted(name for name in module._non_persistent_buffers_set if module._buffers[name] is not None)
    for name in own:
        module._buffers[name] = _unset(cast(Tensor, module._buffers[name]))
    if own:
        cast(Any, model)._init_weights(module)
    return all(_is_set(cast(Tensor, module._buffers[name])) for name in own)


def _unset(buffer: Tensor) -> Tensor:
    """Memory for `buffer` that shows whether it was written."""
    if buffer.dtype == torch.bool:
        return torch.zeros(buffer.shape, dtype=torch.bool, device="meta")
    value = math.nan if buffer.is_floating_point() or buffer.is_complex() else torch.iinfo(buffer.dtype).min
    return torch.full(buffer.shape, value, dtype=buffer.dtype, device="cpu")


def _is_set(buffer: Tensor) -> bool:
    if buffer.is_meta:
        return False
    if buffer.is_floating_point() or buffer.is_complex():
        return not bool(buffer.isnan().any())
    return not bool((buffer == torch.iinfo(buffer.dtype).min).any())
