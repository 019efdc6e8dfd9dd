"""GGUF, fp8 and int4 become bf16 weights that compute what was published; templates and renderers are written beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.trainer.policy import families
from tests.trainer.policy.importing import gguf_files
from trainer import policy as policies
from trainer.model_import import Asked
from trainer.policy.importing.__main__ import carry_out
from trainer.policy.importing.quantized import dequantize, unpack_int4

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [16, 8]}
INT4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "symmetric": True, "group_size": 8, "strategy": "group"}}},
}


def fp8(weight: Tensor) -> dict[str, Tensor]:
    """Blocks of 16 × 8, the last ones cut."""
    rows, columns = weight.shape
    down, across = -(-rows // 16), -(-columns // 8)
    padded = torch.zeros(down * 16, across * 8)
    padded[:rows, :columns] = weight
    blocks = padded.reshape(down, 16, across, 8)
    scale = blocks.abs().amax((1, 3)).clamp(min=1e-6) / 448
    stored = (blocks / scale[:, None, :, None]).reshape(down * 16, across * 8)[:rows, :columns]
    return {"weight": stored.to(torch.float8_e4m3fn), "weight_scale_inv": scale}


def int4(weight: Tensor) -> dict[str, Tensor]:
    """Groups of 8 columns; eight values in a word, the first in its lowest bits."""
    rows, columns = weight.shape
    groups = weight.reshape(rows, columns // 8, 8)
    scale = groups.abs().amax(-1).clamp(min=1e-6) / 7
    values = (groups / scale[..., None]).round().clamp(-8, 7).reshape(rows, columns).to(torch.int64) + 8
    words = sum(values[:, at::8] << (4 * at) for at in range(8))
    signed = torch.where(words >= 1 << 31, words - (1 << 32), words)
    return {
        "weight_packed": signed.to(torch.int32),
        "weight_scale": scale.bfloat16(),
        "weight_shape": torch.tensor([rows, columns]),
    }


def published(folder: Path, settings: dict[str, Any], pack: Any) -> dict[str, Tensor]:
    """A model whose matrices are quantised, as it is published; its original weights."""
    words = gguf_files.tokenizer()
    made = gguf_files.model(len(words))
    made.save_pretrained(folder)
    words.save_pretrained(folder)
    plain = load_file(folder / "model.safetensors")
    stored: dict[str, Tensor] = {}
    for name, weight in plain.items():
        if name.endswith("_proj.weight"):
            base = name.removesuffix("weight")
            stored |= {base + part: value.contiguous() for part, value in pack(weight).items()}
        else:
            stored[name] = weight.bfloat16()
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(config))
    return plain


@pytest.mark.parametrize(
    ("settings", "pack", "error", "words"),
    [(FP8, fp8, 0.04, r"fp8 (e4m3) scaled by blocks of 16 × 8"), (INT4, int4, 0.08, "int4 in groups of 8")],
    ids=["fp8", "int4"],
)
def test_a_quantised_checkpoint_becomes_a_policy(
    tmp_path: Path, settings: dict[str, Any], pack: Any, error: float, words: str
) -> None:
    plain = published(tmp_path / "published", settings, pack)
    answer = carry_out(Asked(path=str(tmp_path / "published"), target=str(tmp_path / "imported")))
    assert answer.refused == "" and answer.facts is not None
    assert words in answer.facts.stored and "dequantised to bfloat16" in answer.facts.stored
    policy = policies.load(Path(answer.folder))
    assert policy.native == "bfloat16"
    state = policy.model.state_dict()
    assert state.keys() == plain.keys()
    for name, weight in plain.items():
        assert float((state[name] - weight).abs().max()) <= error * float(weight.abs().max()) + 1e-3, name
    assert answer.facts.parameters == sum(weight.numel() for weight in plain.values())


def test_dequantised_values_are_the_published_formula() -> None:
    values = torch.tensor([[-8, 7, 0, 1, -1, 3, -4, 5], [1, 2, 3, 4, 5, 6, 7, -8]], dtype=torch.int64)
    words = sum((values[:, at::8] + 8) << (4 * at) for at in range(8))
    packed = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
    assert torch.equal(unpack_int4(packed, (2, 8)), values.to(torch.int8))
    assert torch.equal(unpack_int4(packed, (2, 5)), values[:, :5].to(torch.int8))
    scale = torch.tensor([[0.5, 2.0], [1.0, 4.0]])
    wanted = values.float() * scale.repeat_interleave(4, 1)
    assert torch.equal(dequantize(values.to(torch.int8), scale), wanted.bfloat16())
    assert torch.equal(dequantize(values.to(torch.int8), torch.tensor([0.25])), (values * 0.25).bfloat16())


def test_a_gguf_file_becomes_a_policy_with_its_tokenizer_and_template(tmp_path: Path) -> None:
    path = gguf_files.write_gguf(tmp_path / "tiny.Q8_0.gguf")
    answer = carry_out(Asked(path=str(path), target=str(tmp_path / "imported")))
    assert answer.refused == "" and answer.facts is not None
    assert answer.facts.stored == "GGUF Q8_0, dequantised to bfloat16"
    assert (answer.facts.renderer, answer.facts.problem, answer.facts.lacks) == ("qwen3", "", [])
    policy = policies.load(Path(answer.folder))
    words = gguf_files.tokenizer()
    plain = gguf_files.model(len(words)).state_dict()
    for name, weight in policy.model.state_dict().items():
        assert float((weight - plain[name]).abs().max()) <= 0.02 * float(plain[name].abs().max()), name
    text = "def total(x):\n    return x <|im_end|>"
    assert policy.tokenizer(text)["input_ids"] == words(text)["input_ids"]


def test_a_shipped_template_gives_tools_to_a_model_that_has_none(tmp_path: Path) -> None:
    path = gguf_files.write_gguf(tmp_path / "tiny.gguf")
    family = next(one for one in families.FAMILIES if one.name == "qwen3")
    bare = family.template.replace("{%- if tools %}", "{%- if false %}").replace("m.tool_calls or []", "[]")
    lacking = carry_out(Asked(path=str(path), target=str(tmp_path / "bare"), template=bare))
    assert lacking.facts is not None and lacking.facts.problem
    assert "tools in its template: the policy is not told which it has" in lacking.facts.lacks
    answer = carry_out(Asked(path=str(path), target=str(tmp_path / "tools"), template="chatml-tools"))
    assert answer.facts is not None
    assert (answer.facts.renderer, answer.facts.problem, answer.facts.lacks) == ("template", "", [])


def test_a_choice_makes_a_folder_of_its_own_and_leaves_the_source_alone(tmp_path: Path) -> None:
    source = tmp_path / "published"
    words = gguf_files.tokenizer()
    gguf_files.model(len(words)).save_pretrained(source)
    words.save_pretrained(source)
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    same = carry_out(Asked(path=str(source / "model.safetensors"), target=str(tmp_path / "unused")))
    assert Path(same.folder) == source and not (tmp_path / "unused").exists()
    chosen = carry_out(Asked(path=str(source), target=str(tmp_path / "chosen"), renderer="template"))
    assert chosen.facts is not None and chosen.facts.renderer == "template"
    assert policies.load(Path(chosen.folder)).renderer.name == "template"
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    assert (tmp_path / "chosen" / "model.safetensors").stat().st_ino == (source / "model.safetensors").stat().st_ino


def test_kimi_k2_is_loaded_as_its_text_class(tmp_path: Path) -> None:
    """Its code is published with the weights; the library's DeepSeek-V3 class computes the same."""
    from tests.trainer.test_model_families import TABLE
    from tests.trainer.test_model_families import published as make

    source = make(TABLE["deepseek-v3"], tmp_path / "published")
    config = json.loads((source / "config.json").read_text())
    plain = load_file(source / "model.safetensors")
    wrapped = {**config, "model_type": "kimi_k2", "auto_map": {"AutoConfig": "code.Config"}}
    (source / "config.json").write_text(json.dumps({"model_type": "kimi_k25", "text_config": wrapped}))
    seen = {f"language_model.{name}": value for name, value in plain.items()}
    save_file({**seen, "vision_tower.x": torch.zeros(2)}, source / "model.safetensors", metadata={"format": "pt"})
    answer = carry_out(Asked(path=str(source), target=str(tmp_path / "imported")))
    assert answer.refused == "" and answer.facts is not None
    assert (answer.facts.model_type, answer.facts.renderer) == ("deepseek_v3", "kimi-k2")
    assert load_file(Path(answer.folder) / "model-00001-of-00001.safetensors").keys() == plain.keys()
    assert type(policies.load(Path(answer.folder)).model).__name__ == "DeepseekV3ForCausalLM"
