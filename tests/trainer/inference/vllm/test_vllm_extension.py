"""Words of a checkpoint in a worker's live weights: where vLLM's loaders put them, exactly, and proven."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings

from tests.trainer.inference.vllm_workers import Worker, gathered
from trainer.inference.vllm.extension import Place, View, carry
from trainer.inference.vllm.weight_patch import Digests, PatchRefused, plans_of, write
from trainer.weights import Mirror, Subscriber, WeightStore

LAYER = "model.layers.0"
SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (13, 8),
    "lm_head.weight": (13, 8),
    f"{LAYER}.input_layernorm.weight": (8,),
    f"{LAYER}.self_attn.q_proj.weight": (16, 8),
    f"{LAYER}.self_attn.k_proj.weight": (8, 8),
    f"{LAYER}.self_attn.v_proj.weight": (8, 8),
    f"{LAYER}.self_attn.o_proj.weight": (8, 16),
    f"{LAYER}.mlp.gate_proj.weight": (12, 8),
    f"{LAYER}.mlp.up_proj.weight": (12, 8),
    f"{LAYER}.mlp.down_proj.weight": (8, 12),
    "model.layers.1.mlp.gate.weight": (4, 8),
    **{f"model.layers.1.mlp.experts.{n}.{p}_proj.weight": (6, 8) for n in range(4) for p in ("gate", "up")},
    **{f"model.layers.1.mlp.experts.{n}.down_proj.weight": (8, 6) for n in range(4)},
}


def state(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def stepped(before: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.where(
            torch.rand(t.shape, generator=generator) < 0.06, t + torch.randn(t.shape, generator=generator), t
        )
        for name, t in before.items()
    }


class Cluster:
    """Workers of one server and a store that is followed."""

    def __init__(self, root: Path, *, world: int, packs: bool, tied: bool = False) -> None:
        self.root = root
        self.workers = [Worker(SHAPES, rank=rank, world=world, packs=packs) for rank in range(world)]
        self.store = WeightStore(root / "store", dtype="float32")
        self.subscriber = Subscriber(self.store.versions)
        self.tied = tied
        self.states: list[dict[str, torch.Tensor]] = []

    def publish(self, new: dict[str, torch.Tensor]) -> Mirror:
        if self.tied:
            new = {**new, "lm_head.weight": new["model.embed_tokens.weight"]}
        self.store.publish(len(self.states), new)
        self.states.append(new)
        fetched = self.subscriber.fetch()
        assert fetched is not None
        self.subscriber.commit(fetched)
        return fetched.mirror

    def load(self, mirror: Mirror) -> Digests:
        folder = self.root / f"v{mirror.version}"
        folder.mkdir()
        whole = {name: tensor.clone() for name, tensor in mirror.state().items()}
        safetensors.torch.save_file(whole, folder / "model.safetensors")
        answers = [worker.opencomposer_load(str(folder), f"v{mirror.version}") for worker in self.workers]
        return Digests(plans_of(json.loads(json.dumps(answers))))

    def patch(self, old: Mirror, new: Mirror, digests: Digests) -> str:
        path = self.root / f"{old.version}-{new.version}.safetensors"
        write(path, old, new, base=f"v{old.version}", target=f"v{new.version}", digests=digests.of(new))
        return str(path)

    def ask(self, method: str, path: str) -> list[dict[str, Any]]:
        return [getattr(worker, method)(path) for worker in self.workers]

    def holds(self, version: int) -> bool:
        return all(torch.equal(tensor, self.states[version][name]) for name, tensor in gathered(self.workers))


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_steps_give_the_words_of_a_fresh_load(tmp_path: Path, world: int, packs: bool, tied: bool) -> None:
    cluster = Cluster(tmp_path, world=world, packs=packs, tied=tied)
    mirror = cluster.publish(state(0))
    digests = cluster.load(mirror)
    assert cluster.holds(0)
    addresses = [p.data_ptr() for w in cluster.workers for p in w.model.parameters()]
    for seed in range(1, 4):
        after = cluster.publish(stepped(cluster.states[-1], seed))
        path = cluster.patch(mirror, after, digests)
        staged = cluster.ask("opencomposer_stage", path)
        assert all(answer["base"] == f"v{seed - 1}" and answer["words"] for answer in staged)
        assert cluster.holds(seed - 1), "staging changes nothing"
        for _ in range(2):  # an answer that was lost is asked for again
            assert cluster.ask("opencomposer_apply", path) == [{"wrong": []}] * world
            assert cluster.holds(seed)
        mirror = after
    if not packs:  # captured graphs read the same memory
        assert addresses == [p.data_ptr() for w in cluster.workers for p in w.model.parameters()]


def test_several_versions_at_once(tmp_path: Path) -> None:
    """A server that was behind, or whose chain lost a link, is moved from what it holds to what was fetched."""
    cluster = Cluster(tmp_path, world=2, packs=False)
    mirror = cluster.publish(state(0))
    digests = cluster.load(mirror)
    for seed in range(1, 3):
        cluster.publish(stepped(cluster.states[-1], seed))
    newest = cluster.publish(stepped(cluster.states[-1], 3))
    assert cluster.ask("opencomposer_apply", cluster.patch(mirror, newest, digests)) == [{"wrong": []}] * 2
    assert cluster.holds(3)


def test_an_apply_that_broke_off_is_written_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, world=1, packs=False)
    mirror = cluster.publish(state(0))
    digests = cluster.load(mirror)
    after = cluster.publish(stepped(cluster.states[-1], 1))
    path = cluster.patch(mirror, after, digests)
    (worker,) = cluster.workers
    worker.opencomposer_stage(path)
    layout = worker.opencomposer_layout
    assert layout is not None and layout.staged is not None
    with torch.no_grad():
        for key, index, words in layout.staged.writes[: len(layout.staged.writes) // 2]:
            layout.homes[key].flat()[index] = words
    assert not cluster.holds(0) and not cluster.holds(1)
    assert worker.opencomposer_apply(path) == {"wrong": []} and cluster.holds(1)


def test_words_that_are_not_the_published_ones_are_named(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, world=2, packs=False)
    mirror = cluster.publish(state(0))
    digests = cluster.load(mirror)
    after = cluster.publish(stepped(cluster.states[-1], 1))
    path = cluster.patch(mirror, after, digests)
    name = f"{LAYER}.mlp.up_proj.weight"
    worker = cluster.workers[1]
    worker.opencomposer_stage(path)
    share = worker.share(name)
    with torch.no_grad():  # somebody else wrote into it; not where the patch does
        same = cluster.states[0][name][share.source] == cluster.states[1][name][share.source]
        row, column = map(int, same.nonzero()[0])
        worker.computes_with(share)[row, column] += 1
    assert cluster.ask("opencomposer_apply", path) == [{"wrong": []}, {"wrong": [name]}]


def test_a_patch_on_other_weights_is_refused(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, world=1, packs=False)
    mirrors = [cluster.publish(state(0))]
    digests = cluster.load(mirrors[0])
    mirrors += [cluster.publish(stepped(cluster.states[-1], seed)) for seed in (1, 2)]
    path = cluster.patch(mirrors[1], mirrors[2], digests)
    (answer,) = cluster.ask("opencomposer_apply", path)
    assert answer["error"] == "the worker holds v0, and the patch is on v1" and cluster.holds(0)


class Transposing(Worker):
    """Its kernels want another layout, which has the shape of the one that was loaded."""

    def reload_weights(self, weights_iterator: Any) -> None:
        super().reload_weights(weights_iterator)
        gate = self.model.get_submodule(f"{LAYER}.mlp.gate_up_proj")
        gate.weight.data = gate.weight.data.flip(0)


class Scaling(Worker):
    """Its loader makes something of the words."""

    def reload_weights(self, weights_iterator: Any) -> None:
        super().reload_weights((n, t * 2 if n.endswith("norm.weight") else t) for n, t in weights_iterator)


class Deriving(Worker):
    def reload_weights(self, weights_iterator: Any) -> None:
        super().reload_weights(weights_iterator)
        self.model.get_submodule(f"{LAYER}.self_attn").W_UV = torch.zeros(1)


class Attention(torch.nn.Module):
    """Latent attention (MLA): it computes with copies that it makes of another layer's weight."""

    def __init__(self, kv_b_proj: torch.nn.Module) -> None:
        super().__init__()
        self.kv_b_proj = kv_b_proj

    def process_weights_after_loading(self, dtype: torch.dtype) -> None:
        words: Any = self.kv_b_proj.weight
        for name, made in (("W_UK_T", words[:4].T.contiguous()), ("W_UV", words[4:].clone())):
            if name in self._parameters:
                getattr(self, name).data.copy_(made)
            else:
                self.register_parameter(name, torch.nn.Parameter(made.to(dtype), requires_grad=False))


class Latent(Worker):
    def reload_weights(self, weights_iterator: Any) -> None:
        super().reload_weights(weights_iterator)
        outer = self.model.get_submodule(f"{LAYER}.self_attn")
        if "mla" not in outer._modules:
            outer.add_module("mla", Attention(outer.kv_b_proj))
        outer.mla.process_weights_after_loading(torch.float32)

    def is_derived(self) -> bool:
        mla: Any = self.model.get_submodule(f"{LAYER}.self_attn.mla")
        words = mla.kv_b_proj.weight
        return torch.equal(mla.W_UK_T, words[:4].T) and torch.equal(mla.W_UV, words[4:])


def test_copies_that_attention_makes_of_other_weights_are_made_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, world=1, packs=False)
    shapes = {**SHAPES, f"{LAYER}.self_attn.kv_b_proj.weight": (8, 6)}
    worker = Latent(shapes, rank=0, world=1)
    cluster.workers = [worker]
    first = {**state(0), f"{LAYER}.self_attn.kv_b_proj.weight": torch.randn(8, 6)}
    mirror = cluster.publish(first)
    digests = cluster.load(mirror)
    addresses = [p.data_ptr() for p in worker.model.parameters()]
    after = cluster.publish(stepped(first, 1))
    name = f"{LAYER}.self_attn.kv_b_proj.weight"
    assert not torch.equal(cluster.states[0][name], cluster.states[1][name])
    assert cluster.ask("opencomposer_apply", cluster.patch(mirror, after, digests)) == [{"wrong": []}]
    assert cluster.holds(1) and worker.is_derived()
    assert addresses == [p.data_ptr() for p in worker.model.parameters()]  # captured graphs read the same memory


class Turned(Worker):
    """Its loader writes a turned copy of each tensor, as vLLM's of gpt-oss does."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], *, rank: int, world: int, packs: bool = False) -> None:
        super().__init__(shapes, rank=rank, world=world, packs=packs)
        for path, param in self.sizes:
            module = self.model.get_submodule(path)
            turned = torch.nn.Parameter(module._parameters[param].detach().T.contiguous(), requires_grad=False)
            module.register_parameter(param, turned)

    def reload_weights(self, weights_iterator: Any) -> None:
        with torch.no_grad():
            for name, tensor in weights_iterator:
                share = self.share(name)
                module = self.model.get_submodule(share.module)
                module._parameters[share.param].copy_(tensor[share.source].permute(1, 0).contiguous())

    def computes_with(self, share: Any) -> torch.Tensor:
        words: torch.Tensor = self.model.get_submodule(share.module)._parameters[share.param].detach()
        return words.T[share.target]


@pytest.mark.parametrize("world", [1, 2])
def test_words_that_a_loader_turns_are_patched_where_they_lie(tmp_path: Path, world: int) -> None:
    cluster = Cluster(tmp_path, world=world, packs=False)
    names = [f"{LAYER}.self_attn.o_proj.weight", "model.layers.1.mlp.gate.weight"]
    shapes = {name: SHAPES[name] for name in names}
    cluster.workers = [Turned(shapes, rank=rank, world=world) for rank in range(world)]
    mirror = cluster.publish({name: state(0)[name] for name in names})
    digests = cluster.load(mirror)
    after = cluster.publish(stepped(cluster.states[-1], 1))
    assert cluster.ask("opencomposer_apply", cluster.patch(mirror, after, digests)) == [{"wrong": []}] * world
    assert cluster.holds(1) and not cluster.holds(0)


class Breaking(Worker):
    def reload_weights(self, weights_iterator: Any) -> None:
        raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Transposing, "gate_up_proj.weight is laid out anew for its kernel"),
        (Scaling, r"input_layernorm.weight is not loaded by copies"),
        (Deriving, "self_attn keeps W_UV, which cannot be made of its weights again"),
        (Breaking, "RuntimeError: out of memory"),
    ],
)
def test_a_layout_that_is_not_known_is_not_patched(tmp_path: Path, kind: type[Worker], words: str) -> None:
    cluster = Cluster(tmp_path, world=1, packs=False)
    cluster.workers = [kind(SHAPES, rank=0, world=1)]
    mirror = cluster.publish(state(0))
    with pytest.raises(PatchRefused, match=words):
        cluster.load(mirror)
    assert "no checkpoint was loaded" in cluster.ask("opencomposer_stage", "x")[0]["error"]


def test_a_server_that_holds_less_than_the_version_is_not_patched(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, world=2, packs=False)
    mirror = cluster.publish(state(0))
    digests = cluster.load(mirror)
    digests.of(mirror)
    with pytest.raises(PatchRefused, match=r"no worker of the server holds word \d+ of"):
        Digests(digests._plans[:1]).of(mirror)
    lacking = [{n: s for n, s in plan.items() if "experts.3" not in n} for plan in digests._plans]
    with pytest.raises(PatchRefused, match=r"no worker of the server holds model.layers.1.mlp.experts.3"):
        Digests(lacking).of(mirror)


def test_a_dense_step_goes_whole(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, world=1, packs=False)
    mirror = cluster.publish(state(0))
    digests = cluster.load(mirror)
    with pytest.raises(PatchRefused, match="100% of the words change; a whole checkpoint is shorter"):
        cluster.patch(mirror, cluster.publish(state(1)), digests)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_carrying_positions_is_what_copying_does(data: st.DataObject) -> None:
    """For any cut, order of axes and padding: the words that arrive are those that a copy would have brought."""
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    source = torch.arange(torch.tensor(shape).prod().item(), dtype=torch.float32).view(shape) + 1
    cut = source
    for axis in range(len(shape)):
        start = data.draw(st.integers(0, shape[axis] - 1))
        cut = cut.narrow(axis, start, data.draw(st.integers(1, shape[axis] - start)))
    if data.draw(st.booleans()) and cut.ndim > 1:
        cut = cut.transpose(0, 1)
    room = torch.zeros([side + data.draw(st.integers(0, 2)) for side in cut.shape])
    target = room[tuple(slice(room.shape[n] - side, None) for n, side in enumerate(cut.shape))]
    place = Place(View.of(cut), View.of(target), ("", ""))
    positions = torch.randperm(source.numel())[: data.draw(st.integers(0, source.numel()))].to(torch.int32)
    inside, index = carry(positions, place)
    got = room.clone().view(-1)
    got[index] = source.view(-1)[positions.long()][inside]
    chosen = torch.zeros(source.numel(), dtype=torch.bool)
    chosen[positions.long()] = True
    masked = torch.where(chosen, source.view(-1), torch.zeros(())).view(shape)
    target.copy_(masked.as_strided(cut.size(), cut.stride(), cut.storage_offset()))
    assert torch.equal(got.view(room.shape), room)
