"""What cannot be trained is refused at the import, with what was found and what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from tests.trainer.policy import families
from tests.trainer.policy.importing.gguf_files import write_gguf
from trainer.model_import import Answer, Asked
from trainer.policy.errors import PolicyUnreadable
from trainer.policy.importing.__main__ import carry_out
from trainer.policy.importing.checks import _lost_marks, check_memory
from trainer.policy.importing.gguf_file import GGUFHead, load_gguf

QWEN = next(one for one in families.FAMILIES if one.name == "qwen3")
INDEX = "model.safetensors.index.json"
GEMMA = (
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<start_of_turn>' + m.role + '\n' + m.content + '<end_of_turn>\n' }}{% endfor %}"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small model in two shards."""
    made, tokenizer = tmp_path / "model", families.tokenizer_of(QWEN)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(made, max_shard_size="20KB")
    tokenizer.save_pretrained(made)
    assert len(list(made.glob("*.safetensors"))) > 1
    return made


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def asked(path: Path, **fields: str) -> Answer:
    return carry_out(Asked(path=str(path), target=str(path.parent / "imported"), **fields))


def without_a_shard(folder: Path) -> None:
    sorted(folder.glob("*.safetensors"))[0].unlink()


def with_a_cut_shard(folder: Path) -> None:
    path = sorted(folder.glob("*.safetensors"))[0]
    path.write_bytes(path.read_bytes()[:-10])


def with_another_index(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["model.layers.9.mlp.up_proj.weight"] = sorted(index["weight_map"].values())[0]
    (folder / INDEX).write_text(json.dumps(index))


def with_too_long_a_context(folder: Path) -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
    edit(folder / "config.json", max_position_embeddings=1024, rope_parameters=rope)


def without_special_tokens(folder: Path) -> None:
    path = folder / "tokenizer.json"
    found = json.loads(path.read_text())
    found["added_tokens"] = [token for token in found["added_tokens"] if token["content"] != "<|im_end|>"]
    path.write_text(json.dumps(found))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("added_tokens_decoder", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def with_another_familys_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(GEMMA)


def with_a_larger_vocabulary(folder: Path) -> None:
    edit(folder / "config.json", vocab_size=100)


def quantised_in_another_way(folder: Path) -> None:
    edit(folder / "config.json", quantization_config={"quant_method": "bitsandbytes"})


def quantised_in_another_format(folder: Path) -> None:
    weights = {"num_bits": 4, "symmetric": False, "group_size": 32}
    settings = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"g": {"weights": weights}},
    }
    edit(folder / "config.json", quantization_config=settings)


def pickled(folder: Path) -> None:
    for path in [*folder.glob("*.safetensors"), folder / INDEX]:
        path.unlink()
    torch.save({"x": torch.zeros(1)}, folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without_a_shard, r"1 of \d shards are missing, model-00001-of-.*Download them again"),
        (with_a_cut_shard, r"cut off: 10 bytes are missing.*Copy or download"),
        (with_another_index, r"model\.layers\.9\.mlp\.up_proj\.weight is in the index and in no shard"),
        (with_too_long_a_context, r"1024 tokens, .*yarn, trained on 64, factor 4.* supports 256.*Set .* to 256"),
        (
            without_special_tokens,
            r"its template writes <\|im_end\|>, which the tokenizer does not have.*or another template",
        ),
        (with_another_familys_template, r"its template writes <end_of_turn>, <start_of_turn>, which the tokenizer"),
        (with_a_larger_vocabulary, r"tokens and the model 100\. Use the tokenizer"),
        (quantised_in_another_way, r"quantised by bitsandbytes are not read.*Import the bf16 checkpoint"),
        (quantised_in_another_format, r"format 'pack-quantized' are not read.*symmetric int4"),
        (pickled, r"no \*\.safetensors files"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_folder_that_cannot_be_trained_is_refused(folder: Path, spoil: Callable[[Path], None], words: str) -> None:
    assert asked(folder).refused == ""
    spoil(folder)
    answer = asked(folder)
    assert (answer.folder, answer.facts, answer.field) == ("", None, "path")
    assert re.search(words, answer.refused), answer.refused


def cut_without(marks: tuple[str, ...], template: str) -> list[str]:
    """Marks that an import finds lost: with a tokenizer that has `marks`."""
    made = families.tokenizer_of(families.Family("x", ("<eos>", *marks)))
    made.chat_template = template
    return _lost_marks(made)


INST = "{{ '<s>' }}{% for m in messages %}{{ '[INST] ' + m.content + '[/INST]' }}{% endfor %}"
TOOLS = "{% if tools %}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}" + INST
ZEPHYR = "{% for m in messages %}{{ '<|user|>\n' + m.content + eos_token }}{% endfor %}"
TURN = ("<start_of_turn>", "<end_of_turn>")
AVAILABLE = ("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]")


@pytest.mark.parametrize(
    ("marks", "template", "lost"),
    [
        (TURN[:1], GEMMA, ["<end_of_turn>"]),
        ((), GEMMA, ["<end_of_turn>", "<start_of_turn>"]),
        (TURN, GEMMA, []),
        ((), INST, ["<s>"]),  # Llama 2 and the first Mistral: [INST] is text there
        (("<s>",), INST, []),
        (("<s>", "[INST]"), INST, ["[/INST]"]),
        (("<s>",), TOOLS, ["[/AVAILABLE_TOOLS]", "[/INST]", "[AVAILABLE_TOOLS]", "[INST]"]),
        (("<s>", "[INST]", "[/INST]", *AVAILABLE), TOOLS, []),
        ((), ZEPHYR, []),  # text on Llama's vocabulary
        (("<|end|>",), ZEPHYR, ["<|user|>"]),
        ((), "{% for m in messages %}{{ m.content.replace('<s>', '') }}{# <bos> #}[1] <tools>[x]{% endfor %}", []),
        ((), "{% for m in messages %}{{ '[|user|]' + m.content }}{% endfor %}", ["[|user|]"]),
        ((), "{{ raise_exception('no conversations') }}", []),
    ],
    ids=[
        "one",
        "both",
        "gemma",
        "s",
        "llama-2",
        "inst",
        "tools",
        "mistral",
        "zephyr",
        "phi",
        "code",
        "exaone",
        "raises",
    ],
)
def test_marks_that_a_tokenizer_would_cut_are_those_that_its_family_has(
    marks: tuple[str, ...], template: str, lost: list[str]
) -> None:
    assert cut_without(marks, template) == lost


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_no_sound_tokenizer_of_a_family_is_refused(family: families.Family) -> None:
    assert _lost_marks(families.tokenizer_of(family)) == []


def test_a_template_that_raises_is_kept_in_words_and_plays_no_episodes(folder: Path) -> None:
    raising = QWEN.template + "{%- if tools %}{{ raise_exception('no tools here') }}{%- endif %}"
    answer = asked(folder, template=raising)
    assert answer.refused == "" and answer.facts is not None
    assert "no tools here" in answer.facts.problem
    assert "a template that shows a conversation" in answer.facts.lacks


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"template": "chatml"}, "template", r"'chatml' is neither a template nor the name of one.*chatml-tools"),
        (
            {"template": "{% for m in messages %}{{ m.nothing.deeper }}{% endfor %}"},
            "template",
            "refuses a conversation",
        ),
        ({"renderer": "llama-3"}, "renderer", r"does not fit the renderer 'llama-3'.*Choose another"),
    ],
)
def test_a_choice_that_does_not_fit_names_its_field(
    folder: Path, fields: dict[str, str], field: str, words: str
) -> None:
    answer = asked(folder, **fields)
    assert answer.field == field
    assert re.search(words, answer.refused), answer.refused


def test_a_gguf_of_another_architecture_is_refused(tmp_path: Path) -> None:
    answer = asked(write_gguf(tmp_path / "clip.gguf", architecture="clip"))
    assert "its architecture is 'clip', which is not read from GGUF" in answer.refused
    assert "Import the safetensors checkpoint" in answer.refused


def test_a_gguf_that_is_cut_off_or_in_parts_is_refused(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole.read_bytes()[:200])
    assert "Download the file again" in asked(cut).refused
    part = whole.rename(tmp_path / "m-00001-of-00003.gguf")
    assert "Merge them with llama-gguf-split" in asked(part).refused
    nothing = tmp_path / "model.bin"
    save_file({"x": torch.zeros(1)}, nothing)
    assert "pickled weights" in asked(nothing).refused
    assert "it does not exist" in asked(tmp_path / "nowhere").refused


def test_a_model_larger_than_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(PolicyUnreadable, match=r"takes 1\.0 GiB|this machine has .* free.*more memory"):
        check_memory(tmp_path, 1 << 60, "converting it")
    path = write_gguf(tmp_path / "m.gguf")
    with pytest.raises(
        PolicyUnreadable, match=r"dequantising 1000000\.0 B parameters takes .* Import it on a machine with more"
    ):
        load_gguf(path, GGUFHead("llama", "Q4_0", 10**15, ""))
