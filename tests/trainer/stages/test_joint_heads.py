"""A head that trains beside its policy: it learns, the policy does not notice, and a resumed stage goes on with it; engines
that follow the versions of a run draft with the head of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from tests.trainer.stages.test_draft_heads import answers, mid_trained
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import MTPConfig, OptimizerConfig, RLConfig
from trainer.errors import BatchTimeout
from trainer.inference.client import InferenceAdmin
from trainer.inference.contract import DeploymentSpec
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.inference.mtp.distil import Distillation, Here, measure, windows
from trainer.learning.metrics import describe
from trainer.policy import Policy
from trainer.policy.names import checkpoint_state
from trainer.rl.stage import run_rl
from trainer.stages.joint_heads import JointHeads, apart, joint_heads
from trainer.types import TrainGroup
from trainer.weights import WeightStore
from trainer.weights import subscriber as subscribers
from trainer.weights.patch import between

pytestmark = pytest.mark.integration

HEADS = MTPConfig(
    num_speculative_tokens=2, tokens_per_step=256, seq_len=16, hidden_size=32, batch_size=4, learning_rate=1e-2
)
OPENINGS = (
    "def total(values):\n",
    "def total(values):\n    return sum(values)\n",
    "def largest(items):\n    best = items[0]\n    for item in items:\n",
    "# Return the number of even items.\ndef count(items):\n",
)
STEADY = OptimizerConfig(learning_rate=1e-3, warmup_steps=0, decay_start=1.0)


@pytest.fixture(scope="module")
def base() -> Policy:
    return policies.load(BASE_POLICY)


@pytest.fixture(scope="module")
def groups(base: Policy) -> list[TrainGroup]:
    return [make_group(base.model, index) for index in range(8)]


@pytest.fixture(scope="module")
def texts(base: Policy) -> list[list[int]]:
    """What the base policy says after some openings, several times each."""
    said: list[list[int]] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for opening in OPENINGS:
            asked = torch.tensor([base.tokenizer(opening)["input_ids"]] * 16)
            found = base.model.generate(asked, max_new_tokens=40, do_sample=True, eos_token_id=None)
            said += [row.tolist() for row in found]
    return said


def heads_of(policy: Policy, config: MTPConfig = HEADS, *, seed: int = 0) -> JointHeads:
    made = joint_heads(policy, Here(policy.model), config, optimizer=STEADY, total_steps=200, seed=seed)
    assert made is not None
    return made


def test_the_head_learns_from_a_bounded_part_of_each_step(base: Policy, texts: list[list[int]]) -> None:
    heads = heads_of(base)
    weights = {name: tensor.clone() for name, tensor in base.model.state_dict().items()}
    pieces, how, teacher = windows(texts, HEADS.seq_len), Distillation(ahead=2), Here(base.model)
    before = measure(teacher, heads.head, pieces, how)
    first = heads.train(texts, step=1)
    assert first["heads/loss"] == pytest.approx(before.loss, rel=0.4)
    for step in range(2, 61):
        heads.train(texts, step=step)
    after = measure(teacher, heads.head, pieces, how)
    assert after.loss < 0.5 * before.loss and after.stood > before.stood + 0.1
    assert all(torch.equal(tensor, weights[name]) for name, tensor in base.model.state_dict().items())
    assert all(parameter.grad is None for parameter in base.model.parameters())
    assert heads.train([[1], [2]], step=61) == {}, "too short for two tokens ahead"


def test_a_policys_own_head_goes_on_where_it_has_the_configured_size(base: Policy, texts: list[list[int]]) -> None:
    heads = heads_of(base)
    heads.train(texts, step=1)
    trained = heads.beside(base)
    same = {name: tensor.clone() for name, tensor in heads.head.state_dict().items()}
    for name, tensor in heads_of(trained).head.state_dict().items():
        assert torch.equal(tensor, same[name])
    wider = heads_of(trained, HEADS.model_copy(update={"hidden_size": 48})).head
    assert len(wider.mix.weight) == 48 and not wider.back.weight.any()
    broken = replace(base, heads={"mtp.safetensors": b"nothing"})
    assert not heads_of(broken).head.back.weight.any()


def test_state_restores_the_next_step_and_no_other_heads(base: Policy, texts: list[list[int]]) -> None:
    first, second = heads_of(base), heads_of(base)
    first.train(texts, step=1)
    beside, mine = apart({"model.norm.weight|exp_avg": torch.ones(2), **first.state_tensors()})
    assert list(beside) == ["model.norm.weight|exp_avg"]
    second.load_state_tensors({name: tensor.clone() for name, tensor in mine.items()})
    assert first.train(texts, step=2) == second.train(texts, step=2)
    assert first.head.files() == second.head.files()
    second.load_state_tensors({})
    assert first.head.files() == second.head.files()
    other = heads_of(base, HEADS.model_copy(update={"hidden_size": 48}))
    with pytest.raises(ValueError, match=r"mtp\.hidden_size was changed"):
        other.load_state_tensors(mine)


def reinforced(
    root: Path, groups: list[TrainGroup], mtp: MTPConfig, *, start: Path = BASE_POLICY
) -> tuple[Path, MemorySink, WeightStore]:
    config: RLConfig = small_config(mtp=mtp)
    sink, store = MemorySink(), WeightStore(root / "weights", dtype="float32")
    result = run_rl(
        policy_dir=start, config=config, seed=0, source=ListSource(groups, 2), sink=sink, store=store,
        checkpoints=CheckpointStore(root / "checkpoints", keep=1),
    )  # fmt: skip
    assert result.checkpoint is not None
    return result.checkpoint, sink, store


def test_a_run_publishes_the_head_of_each_version_and_resumes_to_the_same_bits(
    tmp_path: Path, base: Policy, groups: list[TrainGroup]
) -> None:
    plain, _, without = reinforced(tmp_path / "plain", groups, MTPConfig())
    whole, sink, store = reinforced(tmp_path / "whole", groups, HEADS)
    for step in range(1, 5):
        assert {"heads/loss", "heads/accepted", "time/heads"} <= sink.values[step].keys()
        for name in sink.values[step]:
            describe(name)
    mirrors = [subscribers.load(store.versions, version) for version in range(5)]
    published = [mirror.draft_head() for mirror in mirrors]
    assert not published[0]["back.weight"].any(), "there is one before the first step"
    for before, after in pairwise(published):
        assert not torch.equal(before["back.weight"], after["back.weight"])
    saved = MultiToken.load(whole / "policy", int(base.model.config.hidden_size))
    assert saved is not None and torch.equal(saved.mix.weight, published[4]["mix.weight"])
    assert store.manifest(3).kind == "delta"
    patched = between(mirrors[2], mirrors[3]).words
    assert patched and patched.keys() <= without.load(3).state.keys(), "vLLM's live weights have no head"

    for version in range(5):
        known, mine = without.load(version).state, store.load(version).state
        assert known.keys() == mine.keys() and all(torch.equal(mine[name], known[name]) for name in known)
    ours = load_file(plain / "optimizer.safetensors")
    theirs, of_heads = apart(load_file(whole / "optimizer.safetensors"))
    assert of_heads and theirs.keys() == ours.keys() and all(torch.equal(theirs[name], ours[name]) for name in ours)

    with pytest.raises(BatchTimeout):
        reinforced(tmp_path / "cut", groups[:6], HEADS)
    resumed, later, again = reinforced(tmp_path / "cut", groups, HEADS)
    assert sorted(later.values) == [3, 4] and again.manifest(4).digest == store.manifest(4).digest
    assert later.values[4]["heads/loss"] == sink.values[4]["heads/loss"]
    for file in ("policy/model.safetensors", "policy/mtp/mtp.safetensors", "optimizer.safetensors"):
        assert (resumed / file).read_bytes() == (whole / file).read_bytes(), file


def test_a_supervised_stage_trains_the_head_and_resumes_to_the_same_bits(tmp_path: Path) -> None:
    sink = MemorySink()
    whole = mid_trained(tmp_path / "whole", HEADS, sink)
    plain = mid_trained(tmp_path / "plain", MTPConfig(), MemorySink())
    assert (whole / "model.safetensors").read_bytes() == (plain / "model.safetensors").read_bytes()
    assert {"heads/loss", "time/heads"} <= sink.values[1].keys() & sink.values[2].keys()
    mid_trained(tmp_path / "cut", HEADS, MemorySink(stop_after=1))
    cut = mid_trained(tmp_path / "cut", HEADS, MemorySink())
    for file in ("policy/mtp/mtp.safetensors", "optimizer.safetensors"):
        assert (cut.parent / file).read_bytes() == (whole.parent / file).read_bytes(), file


def test_a_checkpoint_without_a_head_gets_one(tmp_path: Path) -> None:
    """A run of before, which resumes under a version that trains heads jointly."""
    mid_trained(tmp_path, MTPConfig(), MemorySink(stop_after=1))
    policy = mid_trained(tmp_path, HEADS, MemorySink())
    assert (policy / "mtp" / "mtp.safetensors").exists()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path / "engine") as made:
        yield made


def test_an_engine_drafts_with_the_head_of_the_version_that_it_serves(
    server: EmbeddedServer, base: Policy, texts: list[list[int]], tmp_path: Path
) -> None:
    heads = heads_of(base, HEADS.model_copy(update={"tokens_per_step": 512, "hidden_size": 64}))
    state = checkpoint_state(base.model, base.model.state_dict())
    store = WeightStore(tmp_path / "weights")
    store.publish(0, state)
    prompts = [base.tokenizer(opening)["input_ids"] for opening in OPENINGS for _ in range(4)]

    def accepted(admin: InferenceAdmin, version: int) -> float:
        """Share of the drafts of that version that stood; its answers are those of an engine that does not draft."""
        for name in ("plain", "drafting"):
            admin.update(name, version)
        before = {status.name: status for status in admin.deployments()}["drafting"]
        drafted_for, plain = (answers(server.url, name, prompts, temperature=1.0) for name in ("drafting", "plain"))
        assert drafted_for == plain
        after = {status.name: status for status in admin.deployments()}
        assert after["plain"].draft_tokens == 0 and after["drafting"].version == version
        drafted = after["drafting"].draft_tokens - before.draft_tokens
        return (after["drafting"].accepted_tokens - before.accepted_tokens) / drafted if drafted else -1.0

    with InferenceAdmin(server.url) as admin:
        for name, ahead in (("plain", None), ("drafting", 2)):
            admin.deploy(
                DeploymentSpec(
                    name=name, policy_dir=str(BASE_POLICY), store=str(tmp_path / "weights"), version=0, follow=False,
                    num_speculative_tokens=ahead,
                )
            )  # fmt: skip
        assert accepted(admin, 0) == -1.0, "neither the policy nor the version has a head"
        store.publish(1, state | heads.published())
        early = accepted(admin, 1)
        for step in range(1, 151):
            heads.train(texts, step=step)
        store.publish(2, state | heads.published())
        late = accepted(admin, 2)
        assert late > 1.5 * early
        store.publish(3, state)
        assert accepted(admin, 3) == pytest.approx(late), "a version without a head leaves the last one"
