"""Loading and saving policies in the Hugging Face layout, any causal language model.

A policy folder holds `config.json`, `model.safetensors` (or a sharded index), the tokenizer and its chat
template. Saving is atomic: readers see the old folder or the new one, never half of one.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from trainer.config import CheckpointConfig
from trainer.policy.errors import PolicyUnreadable
from trainer.policy.names import on_cpu
from trainer.policy.rendering import choose, make_renderer
from trainer.policy.rendering.chat import ChatRenderer, ChatTemplateError

disable_progress_bar()  # policies load inside servers and workers, whose logs are lines

CONFIG, TOKENIZER, TOKENIZER_CONFIG = "config.json", "tokenizer.json", "tokenizer_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
HEADS = "mtp"
"""Folder of a policy's MTP draft head (`trainer/inference/mtp`), if any."""


Native = Literal["float32", "bfloat16"]
NATIVE = "opencomposer_native_dtype"
"""Key of `config.json` for the original format: training saves float32, and a bfloat16 policy is still served in
bfloat16."""
WIDE = frozenset({"F32", "F64"})


class ModelReader(Protocol):
    """Reads the model of a folder, in evaluation mode."""

    def __call__(self, folder: Path, *, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
        """Read the model. Raises PolicyUnreadable."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """A loaded policy. `model` is float32 on the CPU unless `load` was given another format."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    renderer: ChatRenderer
    dir: Path
    heads: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the draft head, by name. Kept in memory, because the folder may be gone when the policy is saved."""
    native: Native = "float32"
    """Original number format (`native_dtype`)."""


def load(
    folder: Path, *, dtype: torch.dtype = torch.float32, read: ModelReader | None = None, renderer: str = "auto"
) -> Policy:
    """Load a policy folder; `read` stands in for `load_model`. A `renderer` other than `auto` is saved with the policy.

    Raises PolicyUnreadable naming the file and the remedy."""
    folder = Path(folder)
    load_config(folder)  # first: the tokenizer's loader trips over a broken one and would be blamed for it
    tokenizer = load_tokenizer(folder)
    if renderer != "auto":
        choose(tokenizer, renderer)
    try:
        made = make_renderer(tokenizer)
    except ChatTemplateError as error:
        raise PolicyUnreadable(
            folder, "chat_template", str(error), "Give the folder a usable chat template."
        ) from error
    model = (read or load_model)(folder, dtype=dtype)
    rows = int(model.config.vocab_size)
    if rows < len(tokenizer):
        raise PolicyUnreadable(
            folder, CONFIG, f"vocab_size {rows} is smaller than the tokenizer's {len(tokenizer)}",
            "Use the tokenizer that the weights were trained with.",
        )  # fmt: skip
    heads = {path.name: path.read_bytes() for path in sorted((folder / HEADS).glob("*")) if path.is_file()}
    return Policy(model, tokenizer, made, folder, heads, native_dtype(folder))


def native_dtype(folder: Path) -> Native:
    """bfloat16 where most weights of the folder have, or according to its `config.json` once had, fewer than 32 bits;
    else float32. Raises PolicyUnreadable.
    """
    folder = Path(folder)
    _require(folder, CONFIG)
    try:
        remembered = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get(NATIVE)
    except (ValueError, AttributeError) as error:
        raise PolicyUnreadable(folder, CONFIG, _first_line(error), "Restore config.json of this policy.") from error
    if remembered == "bfloat16":
        return "bfloat16"
    wide = narrow = 0
    for name in weight_files(folder):
        check_safetensors(folder, name)
        with cast(Any, safe_open(folder / name, framework="pt")) as file:
            for part in map(file.get_slice, file.keys()):
                words = math.prod(part.get_shape())
                wide, narrow = (wide + words, narrow) if part.get_dtype() in WIDE else (wide, narrow + words)
    return "float32" if wide >= narrow else "bfloat16"


def published_dtype(config: CheckpointConfig, policy_dir: Path) -> Native:
    """Publication format of a run that starts from `policy_dir`. Raises PolicyUnreadable."""
    return native_dtype(policy_dir) if config.published_dtype == "auto" else config.published_dtype


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load only the tokenizer. Raises PolicyUnreadable."""
    folder = Path(folder)
    _require(folder, TOKENIZER)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare Exception for a corrupt file
        raise PolicyUnreadable(
            folder, TOKENIZER, _first_line(error), "Restore the tokenizer files of this policy."
        ) from error
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    return tokenizer


def tokenizer_of(folder: Path) -> PreTrainedTokenizerBase | None:
    """Like `load_tokenizer`; None for a folder of weights alone."""
    return load_tokenizer(folder) if (Path(folder) / TOKENIZER).is_file() else None


def load_model(folder: Path, *, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Load only the model, in evaluation mode. Raises PolicyUnreadable."""
    folder = Path(folder)
    config = load_config(folder)
    for file in weight_files(folder):
        check_safetensors(folder, file)
    try:
        model, report = cast(Any, AutoModelForCausalLM).from_pretrained(
            folder, config=config, dtype=dtype, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise PolicyUnreadable(folder, CONFIG, _first_line(error), "Make config.json and the weights agree.") from error
    wrong = [
        *sorted(report["missing_keys"]),
        *sorted(report["unexpected_keys"]),
        *sorted(map(str, report.get("mismatched_keys", ()))),
    ]
    if wrong:
        raise PolicyUnreadable(
            folder, CONFIG, f"config and weights disagree at {wrong[0]} (and {len(wrong) - 1} more)",
            "Make config.json and the weights agree.",
        )  # fmt: skip
    assert isinstance(model, PreTrainedModel)
    # Loaded tensors may lie in a file's mapping at any offset. Kernels choose code by alignment, so only memory of
    # torch's own gives the same bits after a resume.
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()
    return model.eval()


def save(
    policy: Policy,
    folder: Path,
    *,
    dtype: torch.dtype | None = None,
    extra: Mapping[str, str] | None = None,
    weights: Mapping[str, torch.Tensor] | None = None,
    written: Path | None = None,
) -> Path:
    """Write a policy folder atomically, replacing the previous one.

    `dtype` sets the precision on disk. `extra` adds text files (name → text), such as the recipe. `weights` replace the
    model's own (merged adapters). `written` is a folder of existing weight files, which are moved.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        if written is not None:
            _save_config(policy.model, staged)
            for file in written.iterdir():
                os.rename(file, staged / file.name)
        else:
            cast: dict[int, torch.Tensor] = {}  # by address, so that tied weights stay one tensor
            state = {
                name: cast.setdefault(tensor.data_ptr(), tensor.to(dtype or tensor.dtype))
                for name, tensor in (weights or on_cpu(policy.model)).items()
            }
            policy.model.save_pretrained(staged, state_dict=state)
        if dtype is not None:
            _edit_json(staged / CONFIG, set_={"dtype": str(dtype).removeprefix("torch.")})
        if policy.native == "bfloat16":
            _edit_json(staged / CONFIG, set_={NATIVE: policy.native})
        policy.tokenizer.save_pretrained(staged)
        _edit_json(
            staged / TOKENIZER_CONFIG, drop=("is_local", "local_files_only")
        )  # how it was loaded, not what it is
        for name, content in policy.heads.items():  # trained for this lineage; a stale one costs time only
            (staged / HEADS).mkdir(exist_ok=True)
            (staged / HEADS / name).write_bytes(content)
        for name, text in (extra or {}).items():
            (staged / name).write_text(text, encoding="utf-8")
        staged.chmod(0o755)
        for file in staged.rglob("*"):
            file.chmod(0o755 if file.is_dir() else 0o644)
        retired = staged.with_name(staged.name + ".old")
        if folder.exists():
            os.rename(folder, retired)
        os.rename(staged, folder)
        shutil.rmtree(retired, ignore_errors=True)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    return folder


def _save_config(model: PreTrainedModel, folder: Path) -> None:
    """Write the files that the library's `save_pretrained` writes beside weights."""
    model.config.dtype = str(model.dtype).removeprefix("torch.")
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    if model.can_generate():
        model.generation_config.save_pretrained(folder)


def load_config(folder: Path) -> PretrainedConfig:
    """Load only the configuration. Raises PolicyUnreadable."""
    folder = Path(folder)
    _require(folder, CONFIG)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, TypeError, KeyError, StrictDataclassError) as error:
        raise PolicyUnreadable(folder, CONFIG, _first_line(error), "Restore config.json of this policy.") from error
    assert isinstance(config, PretrainedConfig)
    return config


def _edit_json(path: Path, *, set_: Mapping[str, str] | None = None, drop: Sequence[str] = ()) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    edited = {key: item for key, item in value.items() if key not in drop} | dict(set_ or {})
    path.write_text(json.dumps(edited, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def _require(folder: Path, name: str) -> None:
    if not folder.is_dir():
        raise PolicyUnreadable(folder, "folder", "it does not exist", "Check the path, or run `make base-policy`.")
    if not (folder / name).is_file():
        raise PolicyUnreadable(folder, name, "the file is missing", "Copy the complete policy folder again.")


def weight_files(folder: Path) -> list[str]:
    """Names of the safetensors files. Raises PolicyUnreadable."""
    if (folder / INDEX).is_file():
        try:
            return sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PolicyUnreadable(folder, INDEX, _first_line(error), "Restore the weight index.") from error
    return [WEIGHTS]


def check_safetensors(folder: Path, name: str) -> None:
    """Raises PolicyUnreadable."""
    _require(folder, name)
    try:
        with safe_open(folder / name, framework="pt") as file:
            file.keys()
    except (SafetensorError, OSError) as error:
        raise PolicyUnreadable(folder, name, _first_line(error), "The file is damaged: copy it again.") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
