"""Ranks read what they hold: the same steps as after reading everything, no more bytes than a share, nothing left unread."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import distributed
from torch.distributed.tensor import Shard
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from tests.distributed.test_equal import keep_gradients
from tests.distributed.worlds import (
    DENSE,
    alone,
    groups,
    meshes,
    parallel,
    policy,
    ranks_of,
    run_world,
    sharded,
)
from trainer import policy as policies
from trainer.config import LoraConfig, ObjectiveConfig
from trainer.distributed import load
from trainer.distributed.fsdp import shard, whole
from trainer.distributed.publish import published_slices
from trainer.learning.lora import Adapters
from trainer.policy.errors import PolicyUnreadable
from trainer.policy.names import load_checkpoint_state
from trainer.policy.slices import WeightFiles
from trainer.weights import RankPublisher, WeightStore

KL = ObjectiveConfig(loss_divisor=64.0, router_replay_threshold=0.0, kl_coefficient=0.1)
FAMILIES = ("qwen3", "llama", "qwen3-moe", "mixtral", "deepseek-v3")


def is_cut(tensor: object) -> bool:
    return any(isinstance(placement, Shard) for placement in getattr(tensor, "placements", ()))


def stored(family: str, folder: Path, *, files: str = "50GB", seed: int = 0) -> Path:
    """A policy as a checkpoint has it, in files of that size."""
    policy(family, seed).save_pretrained(folder / family, max_shard_size=files)
    return folder / family


def nothing_on_meta(model: PreTrainedModel) -> None:
    left = [n for n, t in (*model.named_parameters(), *model.named_buffers()) if t.is_meta]
    assert not left, left


def same_words(model: PreTrainedModel, other: PreTrainedModel) -> None:
    """Parameters and buffers, those that no file has too."""
    for found, wanted in ((model.named_parameters, other.named_parameters), (model.named_buffers, other.named_buffers)):
        mine, theirs = dict(found(remove_duplicate=False)), dict(wanted(remove_duplicate=False))
        assert mine.keys() == theirs.keys()
        for name, tensor in theirs.items():
            assert mine[name].dtype == tensor.dtype, name
            assert torch.equal(whole(mine[name]), tensor.detach()), name


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("files", ["50GB", "20KB"])
def test_uncut_it_is_what_the_library_reads(tmp_path: Path, family: str, files: str) -> None:
    folder = stored(family, tmp_path, files=files)
    assert (folder / "model.safetensors.index.json").exists() == (files == "20KB")
    model, wanted = load.model_of(folder), policies.load_model(folder)
    assert {tensor.device.type for tensor in model.parameters()} == {"meta"}
    load.fill(model, folder, torch.device("cpu"))
    nothing_on_meta(model)
    same_words(model, wanted)
    assert not model.training
    assert model.config.to_dict() == wanted.config.to_dict()
    assert model.generation_config.to_dict() == wanted.generation_config.to_dict()
    tokens = torch.arange(12)[None]
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, wanted(tokens).logits)


def changed(folder: Path, edit: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def says(folder: Path, read: Any) -> str:
    with pytest.raises(PolicyUnreadable) as caught:
        read(folder)
    return str(caught.value)


@pytest.mark.parametrize("family", ["llama", "qwen3-moe"])
def test_a_wrong_file_is_refused_in_the_words_of_one_process(tmp_path: Path, family: str) -> None:
    good = stored(family, tmp_path)
    name = next(n for n in load_file(good / "model.safetensors") if "experts.3.up" in n or "layers.1.mlp.up" in n)

    def missing(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[name]

    def misshapen(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name] = tensors[name][:-1].clone()

    def surplus(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.extra.weight"] = torch.zeros(2)

    for number, edit in enumerate((missing, misshapen, surplus)):
        bad = Path(shutil.copytree(good, tmp_path / f"bad-{number}"))
        changed(bad, edit)
        assert says(bad, load.model_of) == says(bad, policies.load_model)
    cut = Path(shutil.copytree(good, tmp_path / "short"))
    whole_file = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(whole_file[: len(whole_file) // 2])
    assert says(cut, load.model_of) == says(cut, policies.load_model)
    gone = Path(shutil.copytree(good, tmp_path / "gone"))
    (gone / "model.safetensors").unlink()
    assert says(gone, load.model_of) == says(gone, policies.load_model)


def test_half_precision_files_are_read_as_the_library_reads_them(tmp_path: Path) -> None:
    policy("qwen3").to(torch.bfloat16).save_pretrained(tmp_path / "half")
    model = load.model_of(tmp_path / "half")
    read = load.fill(model, tmp_path / "half", torch.device("cpu"))
    same_words(model, policies.load_model(tmp_path / "half"))
    assert read == sum(tensor.numel() for tensor in model.parameters()) * 2


def test_a_file_with_tied_weights_twice_and_another_kind_of_numbers_is_left_to_the_library(tmp_path: Path) -> None:
    folder = stored("qwen3", tmp_path)

    def twice(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    changed(folder, twice)
    nothing_on_meta(load.model_of(folder))
    folder = stored("llama", tmp_path)

    def integers(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.int32)

    changed(folder, integers)
    same_words(load.model_of(folder), policies.load_model(folder))


def held(model: PreTrainedModel) -> int:
    """Bytes of what this rank has of the policy, parts and whole tensors; tied weights count once."""
    own = {id(tensor): tensor for tensor in model.state_dict(keep_vars=True).values()}
    return sum(t.to_local().nbytes if is_cut(t) else t.nbytes for t in own.values())


def read_by_ranks(family: str, folder: Path, sizes: dict[str, Any]) -> None:
    """This rank reads the bytes that it holds, which are about its share of the policy."""
    model = load.model_of(folder)
    counted: list[int] = []
    fill = load.fill

    def noted(*args: Any) -> int:
        counted.append(fill(*args))
        return counted[-1]

    load.fill = noted  # type: ignore[assignment]
    try:
        shard(model, meshes(parallel(distributed.get_world_size(), **sizes)), folder=folder)
    finally:
        load.fill = fill
    nothing_on_meta(model)
    with WeightFiles(folder) as files:
        total = sum(4 * torch.Size(shape).numel() for shape in files.shapes.values())
    whole_ones = sum(t.nbytes for t in model.state_dict(keep_vars=True).values() if not is_cut(t))
    share = total / (distributed.get_world_size() / sizes.get("dp_replicate", 1))
    assert counted == [held(model)], family
    assert counted[0] <= 1.05 * share + whole_ones, (family, sizes, counted, share, whole_ones)
    same_words(model, policies.load_model(folder))


def trained(family: str, folder: Path, sizes: dict[str, Any], *, lora: bool = False) -> None:
    """Two steps with a reference, from files read by ranks and from a policy in one process."""
    gradients: list[dict[str, torch.Tensor]] = []

    def adapters(model: PreTrainedModel) -> Adapters | None:
        with load.as_if_there(model):
            return Adapters(model, LoraConfig(rank=4, alpha=8.0), seed=0) if lora else None

    model, reference = load.model_of(folder), load.model_of(folder).requires_grad_(False)
    mine = sharded(
        model,
        parallel(distributed.get_world_size(), **sizes),
        objective=KL,
        reference=reference,
        adapters=adapters(model),
        folder=folder,
        reference_folder=folder,
    )
    one = policies.load_model(folder)
    other = alone(
        one, objective=KL, reference=policies.load_model(folder).requires_grad_(False), adapters=adapters(one)
    )
    if mine.adapters and other.adapters:  # drawn as on one process
        for name, drawn in other.adapters.own().items():
            assert torch.equal(whole(mine.adapters.own()[name]), drawn), name
        assert not any(p.requires_grad for name, p in model.named_parameters() if "lora_" not in name)
    keep_gradients(mine, gradients)
    keep_gradients(other, gradients)
    for read in (model, reference):
        nothing_on_meta(read)
    assert not any(parameter.requires_grad for parameter in reference.parameters())
    for step in (1, 2):
        found, wanted = mine.train(groups(seed=step), step=step), other.train(groups(seed=step), step=step)
        for name in ("optim/loss", "optim/grad_norm", "policy/entropy"):
            assert found[name] == pytest.approx(wanted[name], rel=1e-3, abs=2e-5), f"{family} {step}: {name}"
        first, second = gradients
        if step == 1:
            assert first.keys() == second.keys()
            scale = max(float(gradient.abs().max()) for gradient in second.values())
            for name, gradient in second.items():
                torch.testing.assert_close(first[name], gradient, rtol=1e-4, atol=2e-6 * scale, msg=f"{family}: {name}")
        gradients.clear()


def two_ranks(rank: int, folder: str) -> None:
    for family, sizes in (
        ("qwen3", {}),
        ("qwen3", {"dp_replicate": 2}),
        ("qwen3-moe", {}),
        ("qwen3-moe", {"ep": 2}),
        ("deepseek-v3", {"ep": 2, "cp": 2}),
    ):
        read_by_ranks(family, Path(folder, family), sizes)
    trained("qwen3", Path(folder, "qwen3"), {"cp": 2})
    trained("qwen3", Path(folder, "qwen3"), {}, lora=True)
    trained("qwen3-moe", Path(folder, "qwen3-moe"), {"ep": 2})


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_two_ranks_read_their_parts_and_train_as_one_process(tmp_path: Path) -> None:
    for family in FAMILIES:
        stored(family, tmp_path, files="20KB")
    assert json.loads((tmp_path / "qwen3" / "model.safetensors.index.json").read_text())["weight_map"]
    run_world(2, two_ranks, tmp_path, str(tmp_path))


def four_ranks(rank: int, folder: str) -> None:
    for family, sizes in (
        ("llama", {"dp_replicate": 2}),
        ("mixtral", {"ep": 2}),
        ("qwen3-moe", {"ep": 2, "dp_replicate": 2}),
        ("deepseek-v3", {"ep": 4}),
    ):
        model = load.model_of(Path(folder, family))
        shard(model, meshes(parallel(4, **sizes)), folder=Path(folder, family))
        nothing_on_meta(model)
        same_words(model, policies.load_model(Path(folder, family)))
    read_by_ranks("qwen3-moe", Path(folder, "qwen3-moe"), {"ep": 2})
    trained("deepseek-v3", Path(folder, "deepseek-v3"), {"ep": 2, "cp": 2})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_ranks_read_their_parts(tmp_path: Path) -> None:
    for family in FAMILIES:
        stored(family, tmp_path)
    run_world(4, four_ranks, tmp_path, str(tmp_path), deadline=800.0)


def peak(rank: int, folder: str, out: str) -> None:
    """Memory that reading added at its highest, against what the rank holds afterwards. Pages of the files are not counted:
    they are the kernel's, shared by all ranks of a machine, and go when somebody needs memory."""
    before, most = _own_memory(), [0]
    read_into = WeightFiles.read_into

    def noted(*args: Any) -> None:
        read_into(*args)
        most.append(_own_memory() - before)

    WeightFiles.read_into = noted  # type: ignore[method-assign]
    model = load.model_of(Path(folder))
    shard(model, meshes(parallel(distributed.get_world_size())), folder=Path(folder))
    most.append(_own_memory() - before)
    Path(out, str(rank)).write_text(json.dumps([max(most), held(model)]))


def _own_memory() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(row for row in status if row.startswith("RssAnon")).split()[1])


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_reading_never_needs_the_whole_policy(tmp_path: Path) -> None:
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "vocab_size": 4096}
    model = LlamaForCausalLM(LlamaConfig(**DENSE | sizes))
    total = sum(4 * parameter.numel() for parameter in model.parameters())
    model.save_pretrained(tmp_path / "large", max_shard_size="100MB")
    del model
    run_world(2, peak, tmp_path, str(tmp_path / "large"), str(tmp_path))
    for rank in range(2):
        most, kept = json.loads((tmp_path / str(rank)).read_text())
        assert kept < 0.51 * total
        assert most < 1.2 * kept, (most, kept, total)


CUTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("qwen3", {}, {}),
    ("qwen3", {}, {"dp_replicate": 2}),
    ("llama", {"dp_replicate": 2}, {}),
    ("qwen3-moe", {"ep": 2}, {"ep": 2}),
    ("qwen3-moe", {}, {"ep": 2}),
    ("deepseek-v3", {"ep": 2, "cp": 2}, {}),
]
"""Family, how the ranks that published were cut, and how those are that read."""


def follows(rank: int, folder: str) -> None:
    for number, (family, published_as, read_as) in enumerate(CUTS):
        store = WeightStore(Path(folder, str(number)), dtype="float32")
        learner = sharded(policy(family), parallel(2, **published_as))
        publisher = RankPublisher(store.versions, rank, 2, dtype="float32", timeout=60)
        for version in range(3):
            publisher.publish(version, published_slices(learner.model, ranks_of(learner).meshes))
            learner.train(groups(seed=version), step=version + 1)
        reader = policy(family, seed=5)
        shard(reader, meshes(parallel(2, **read_as)))
        for version in (2, 0):
            read = load.follow(reader, store, version)
            wanted = policy(family, seed=6)
            load_checkpoint_state(wanted, store.load(version).state)
            same_words(reader, wanted)
        anchor = sum(shard.bytes for shard in store.manifest(0).shards)
        if published_as == read_as:  # every rank what it published itself
            assert read < 0.6 * anchor, (family, read, anchor)
        distributed.barrier()


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_ranks_follow_a_published_version_by_their_parts(tmp_path: Path) -> None:
    run_world(2, follows, tmp_path, str(tmp_path))
