"""Loading and saving policy folders, and what is said about broken ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.trainer.toy_tokenizer import fresh_tokenizer
from trainer.config import CheckpointConfig
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.policy import Policy, PolicyUnreadable, load, make_renderer, native_dtype, published_dtype, save
from trainer.toy.model import build_tiny_model
from trainer.weights import WeightStore

BASE = Path(__file__).resolve().parents[3] / "policies" / "base"


@pytest.fixture(scope="module")
def policy() -> Policy:
    tokenizer = fresh_tokenizer()
    return Policy(build_tiny_model(tokenizer, 3), tokenizer, make_renderer(tokenizer), Path())


@pytest.fixture(scope="module")
def saved(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(policy, tmp_path_factory.mktemp("policies") / "tiny", extra={"recipe.json": "{}\n"})


def test_what_was_saved_is_loaded(policy: Policy, saved: Path) -> None:
    loaded = load(saved)
    state = loaded.model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in policy.model.state_dict().items())
    assert loaded.renderer.stop_ids == policy.renderer.stop_ids
    text = "1|def f(x):\n2|    return x + 3"
    assert loaded.tokenizer(text)["input_ids"] == policy.tokenizer(text)["input_ids"]
    assert (saved / "recipe.json").read_text() == "{}\n"
    assert not loaded.model.training
    assert "is_local" not in (save(loaded, saved.parent / "again") / "tokenizer_config.json").read_text()


def test_saving_replaces_the_folder_and_leaves_nothing_behind(policy: Policy, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    save(policy, folder)
    (folder / "stale.txt").write_text("old")
    save(policy, folder, dtype=torch.bfloat16)
    assert not (folder / "stale.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    assert (folder / "model.safetensors").stat().st_size < 2_000_000


def test_draft_heads_go_along(policy: Policy, saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "first")
    hidden = int(policy.model.config.hidden_size)
    MultiToken(hidden, 8).save(tmp_path / "first")
    loaded = load(tmp_path / "first")
    shutil.rmtree(tmp_path / "first")  # as a checkpoint that newer ones have replaced
    again = save(loaded, tmp_path / "second")
    assert MultiToken.load(again, hidden) is not None
    assert not (save(policy, tmp_path / "third") / "mtp").exists()


def test_a_failed_save_keeps_the_old_folder(policy: Policy, saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(saved, folder)
    with pytest.raises(OSError):
        save(policy, folder, extra={"no/such/folder.txt": "x"})
    assert load(folder).dir == folder
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_any_causal_language_model_loads(policy: Policy, tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=1024, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    llama = Policy(LlamaForCausalLM(config), policy.tokenizer, policy.renderer, Path())
    assert load(save(llama, tmp_path / "llama")).model.config.model_type == "llama"


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def cut_weights(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def edit_config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    return change


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (shutil.rmtree, "folder"),
        (remove("config.json"), "config.json"),
        (remove("model.safetensors"), "model.safetensors"),
        (remove("tokenizer.json"), "tokenizer.json"),
        (remove("chat_template.jinja"), "chat_template"),
        (write("config.json", "{"), "config.json"),
        (write("config.json", '{"model_type": "no-such-model"}'), "config.json"),
        (write("tokenizer.json", "{}"), "tokenizer.json"),
        (write("model.safetensors", "not weights"), "model.safetensors"),
        (write("model.safetensors.index.json", "[]"), "model.safetensors.index.json"),
        (cut_weights, "model.safetensors"),
        (edit_config(num_hidden_layers=5), "config.json"),
        (edit_config(hidden_size=64), "config.json"),
    ],
)
def test_a_broken_folder_is_named_with_a_remedy(
    saved: Path, tmp_path: Path, damage: Callable[[Path], None], field: str
) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(saved, folder)
    damage(folder)
    with pytest.raises(PolicyUnreadable) as caught:
        load(folder)
    assert caught.value.field == field
    assert caught.value.remedy
    assert "broken" in str(caught.value)


def test_the_shipped_policy_is_small_and_has_the_frozen_tokenizer() -> None:
    base = load(BASE)
    assert (BASE / "model.safetensors").stat().st_size < 6_000_000
    fresh = build_tokenizer_facts(base)
    assert fresh == ["<|bos|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"]
    assert base.model.config.vocab_size == len(base.tokenizer) == 1024


def build_tokenizer_facts(policy: Policy) -> list[str]:
    return [str(policy.tokenizer.convert_ids_to_tokens(index)) for index in range(1, 6)]


def test_a_policy_that_came_in_bfloat16_is_published_in_it_and_so_is_what_is_trained_from_it(
    policy: Policy, tmp_path: Path
) -> None:
    auto = CheckpointConfig()
    assert published_dtype(auto, BASE) == published_dtype(auto, save(policy, tmp_path / "wide")) == "float32"
    half = save(policy, tmp_path / "half", dtype=torch.bfloat16)
    assert published_dtype(auto, half) == "bfloat16"
    assert published_dtype(CheckpointConfig(published_dtype="float32"), half) == "float32"
    trained = save(load(half), tmp_path / "trained")
    assert load(trained).model.dtype == torch.float32 and "float32" in (trained / "config.json").read_text()
    assert native_dtype(trained) == native_dtype(save(load(trained), tmp_path / "again")) == "bfloat16"
    store = WeightStore(tmp_path / "weights", dtype=published_dtype(auto, trained))
    store.publish(0, load(trained).model.state_dict())
    assert {tensor.dtype for tensor in store.load(0).state.values()} == {torch.bfloat16}
