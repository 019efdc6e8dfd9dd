"""GGUF files as policy folders: weights dequantised by the packages `gguf` and `transformers`, tokenizer and template read
from the file's metadata."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from gguf import GGUFReader, LlamaFileType
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

from trainer.policy.errors import PolicyUnreadable
from trainer.policy.importing.checks import check_memory

ALIASES = {"qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "gpt-oss": "gpt_oss", "minimax-m2": "minimax_m2"}
"""llama.cpp's name of an architecture → the library's, where they differ."""


@dataclass(frozen=True, slots=True)
class GGUFHead:
    """What a GGUF file says of itself."""

    architecture: str
    format: str
    """Format of most weights: Q4_1, Q8_0, F16 …"""
    parameters: int
    template: str
    head_dim: int = 0
    """Size of an attention head; 0: the file does not say."""


def read_head(path: Path) -> GGUFHead:
    """Raises PolicyUnreadable: no GGUF file, cut off, or of an architecture that is not read."""
    try:
        reader = GGUFReader(path)
        parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise PolicyUnreadable(
            path, "gguf", f"{error}", "Download the file again: it is cut off or no GGUF file."
        ) from error
    architecture = str(_value(reader, "general.architecture", ""))
    known = sorted(GGUF_SUPPORTED_ARCHITECTURES)
    if ALIASES.get(architecture, architecture) not in known:
        raise PolicyUnreadable(
            path, "gguf", f"its architecture is {architecture or 'unnamed'!r}, which is not read from GGUF",
            f"Import the safetensors checkpoint; GGUF is read for: {', '.join(known)}.",
        )  # fmt: skip
    kind = _value(reader, "general.file_type", None)
    try:
        form = (
            LlamaFileType(int(kind)).name.removeprefix("MOSTLY_").removeprefix("ALL_") if kind is not None else "mixed"
        )
    except ValueError:
        form = f"type {kind}"
    template = str(_value(reader, "tokenizer.chat_template", ""))
    head = int(_value(reader, f"{architecture}.attention.key_length", 0) or 0)
    return GGUFHead(architecture, form, parameters, template, head)


def _value(reader: GGUFReader, key: str, default: Any) -> Any:
    field = reader.get_field(key)
    return default if field is None else field.contents()


def load_gguf(path: Path, head: GGUFHead) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model in bfloat16 and tokenizer. Raises PolicyUnreadable: too large for this machine, or not readable."""
    check_memory(path, 4 * head.parameters, f"dequantising {head.parameters / 1e9:.1f} B parameters")
    folder, name = str(path.parent), path.name
    try:
        tokenizer = cast(Any, AutoTokenizer).from_pretrained(folder, gguf_file=name, local_files_only=True)
        config = cast(Any, AutoConfig).from_pretrained(folder, gguf_file=name, local_files_only=True)
        if head.head_dim and hasattr(config, "head_dim"):  # the converter leaves the family's usual size
            config.head_dim = head.head_dim
        model = cast(Any, AutoModelForCausalLM).from_pretrained(
            folder,
            gguf_file=name,
            config=config,
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
            local_files_only=True,
        )
        model.config.__dict__.pop("quantization_config", None)
    except Exception as error:  # the converters raise whatever a malformed file leads them to
        raise PolicyUnreadable(
            path,
            "gguf",
            f"{type(error).__name__}: {str(error)[:300]}",
            "Import the safetensors checkpoint of this model.",
        ) from error
    if head.template and not tokenizer.chat_template:
        tokenizer.chat_template = head.template
    return model, tokenizer
