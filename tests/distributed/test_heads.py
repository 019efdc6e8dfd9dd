"""A policy that is cut over ranks teaches a head what it would teach it on one process, and checkpoints of ranks hold it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import distributed

from tests.distributed.worlds import meshes, parallel, policy, run_world
from tests.trainer.router_replay.moe import VOCAB
from tests.trainer.router_replay.test_training import policy_with_experts
from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, MTPConfig, OptimizerConfig, ParallelConfig
from trainer.distributed.draft_heads import OnRanks
from trainer.distributed.fsdp import shard
from trainer.distributed.parallel_dims import Meshes
from trainer.distributed.rl import OfFirst, ShardedRL
from trainer.distributed.supervised import ShardedTrainee
from trainer.inference.embedded.factory import build_decoder, read_shape
from trainer.inference.embedded.model import read_state
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.embedded.speculative import load_drafter
from trainer.inference.mtp.distil import Distillation, Here, distil
from trainer.midtrain.stage import run_midtrain
from trainer.rl.backend import SingleProcess
from trainer.rl.stage import run_rl
from trainer.stages.supervised_loop import Alone
from trainer.toy.preset import toy_midtrain
from trainer.weights import WeightStore
from trainer.weights import subscriber as subscribers

HOW = Distillation(ahead=2, width=24, steps=5, batch=3, learning_rate=1e-2)


def same_lessons(rank: int) -> None:
    draw = torch.Generator().manual_seed(0)
    sequences = torch.randint(VOCAB, (6, 21), generator=draw)
    for family, sizes in (
        ("qwen3", {"dp_shard": 2}),
        ("llama", {"cp": 2}),
        ("mixtral", {"dp_shard": 2}),
        ("qwen3-moe", {"dp_shard": 2, "ep": 2}),
        ("deepseek-v3", {"cp": 2, "ep": 2}),
    ):
        one = Here(policy(family).eval())
        head, loss = distil(one, sequences.tolist(), HOW)
        world = meshes(parallel(2, **sizes))
        model = policy(family).eval()
        both = OnRanks(shard(model, world), world)
        mine, found = distil(both, sequences.tolist(), HOW)
        assert found == pytest.approx(loss, rel=1e-4), family
        for name, tensor in head.state_dict().items():
            torch.testing.assert_close(mine.state_dict()[name], tensor, rtol=1e-2, atol=2e-4, msg=f"{family}: {name}")
        for count in (1, 2, 3):  # the first leaves a rank without a sequence
            wanted = one.teach(head, sequences[:count], 2, learn=False)
            assert both.teach(head, sequences[:count], 2, learn=False) == pytest.approx(wanted, rel=1e-4), (
                family,
                count,
            )


def near_in_half_precision() -> None:
    sequences = torch.randint(VOCAB, (4, 21), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)  # ranks have the same head
    head = MultiToken(32, 24)
    torch.nn.init.normal_(head.back.weight, std=0.1)
    world = meshes(parallel(2, ep=2, precision="bfloat16"))
    both = OnRanks(shard(policy("qwen3-moe").eval(), world), world)
    found = both.teach(head, sequences, 2, learn=True)
    mine = [parameter.grad for parameter in head.parameters()]
    wanted = Here(policy("qwen3-moe").eval()).teach(head, sequences, 2, learn=True)
    assert found.loss == pytest.approx(wanted.loss, rel=0.1)
    for gradient, parameter in zip(mine, head.parameters(), strict=True):
        assert gradient is not None and parameter.grad is not None
        assert float(torch.cosine_similarity(gradient.flatten(), parameter.grad.flatten(), 0)) > 0.95


def stage(rank: int, folder: str) -> None:
    """A stage with a head, stopped and resumed, whose checkpoints of before are gone; then one that only keeps it; then one of
    a policy with experts, whose head an engine loads."""
    worlds = {1: meshes(parallel(2)), 2: meshes(parallel(2, ep=2))}

    def run(root: str, start: Path, heads: MTPConfig, sink: MemorySink, *, ep: int = 1) -> None:
        world = worlds[ep]
        config = toy_midtrain(
            steps=4, batch_tokens=300, source_share=0.0, parallel=world.config, mtp=heads,
            checkpoint=CheckpointConfig(every_steps=1, keep=1), optimizer=OptimizerConfig(learning_rate=1e-5, warmup_steps=0),
        )  # fmt: skip
        run_midtrain(
            policy_dir=start, config=config, seed=0, sink=OfFirst(world, None, sink if rank == 0 else None),
            checkpoints=CheckpointStore(Path(folder) / root, keep=1), trainee_of=partial(ShardedTrainee, world),
        )  # fmt: skip

    sink = MemorySink()
    heads = MTPConfig(
        num_speculative_tokens=2, schedule="end", train_tokens=600, seq_len=32, hidden_size=16, steps=3, batch_size=3
    )
    run("first", BASE_POLICY, heads, sink)
    trained = Path(folder) / "first" / "step-000004" / "policy"
    stopped, rest = MemorySink(stop_after=1), MemorySink()
    run("next", trained, MTPConfig(), stopped)
    run("next", trained, MTPConfig(), rest)
    if rank == 0:
        assert sink.values[4]["heads/loss"] > 0 and "heads/loss" not in sink.values[3]
        kept = Path(folder) / "next" / "step-000004" / "policy"
        file = Path("mtp") / "mtp.safetensors"
        assert (kept / file).read_bytes() == (trained / file).read_bytes()
        head = MultiToken.load(trained, int(policies.load_model(trained).config.hidden_size))
        assert head is not None and bool(head.back.weight.any())
    with_experts = MemorySink()
    run("experts", Path(folder) / "with-experts", heads, with_experts, ep=2)
    if rank == 0:
        assert with_experts.values[4]["heads/loss"] > 0
        trained = Path(folder) / "experts" / "step-000004" / "policy"
        shape, state = read_shape(trained), read_state(trained)
        drafter = load_drafter(trained, build_decoder(shape, state, 64), 2)
        assert drafter is not None and bool(drafter.head.back.weight.any())


JOINT = MTPConfig(
    num_speculative_tokens=2, tokens_per_step=128, seq_len=16, hidden_size=16, batch_size=3, learning_rate=1e-2
)


def joint(rank: int, folder: str) -> None:
    """Heads that train at every step, in mid-training and in RL: on ranks stopped and resumed, and on one process."""
    world = meshes(parallel(2))
    root = Path(folder) / "joint"

    def supervised(place: str, sink: MemorySink, ranks: Meshes | None) -> None:
        config = toy_midtrain(
            steps=3, batch_tokens=300, source_share=0.0, parallel=ranks.config if ranks else ParallelConfig(), mtp=JOINT,
            checkpoint=CheckpointConfig(every_steps=1, keep=1), optimizer=OptimizerConfig(learning_rate=1e-5, warmup_steps=0),
        )  # fmt: skip
        run_midtrain(
            policy_dir=BASE_POLICY, config=config, seed=0,
            sink=OfFirst(ranks, None, sink if rank == 0 else None) if ranks else sink,
            checkpoints=CheckpointStore(root / place, keep=1),
            trainee_of=partial(ShardedTrainee, ranks) if ranks else Alone,
        )  # fmt: skip

    groups = [make_group(policies.load_model(BASE_POLICY), index) for index in range(4)]

    def reinforced(place: str, sink: MemorySink, ranks: Meshes | None) -> None:
        config = small_config(
            groups_per_step=1, max_in_flight_groups=1, mtp=JOINT, parallel=ranks.config if ranks else ParallelConfig(),
        )  # fmt: skip
        source = ListSource(groups, 1)
        outside = OfFirst(ranks, source if rank == 0 else None, sink if rank == 0 else None) if ranks else None
        run_rl(
            policy_dir=BASE_POLICY, config=config, seed=0, source=outside or source, sink=outside or sink,
            store=WeightStore(root / place / "weights", dtype="float32"),
            checkpoints=CheckpointStore(root / place, keep=1),
            backend_of=partial(ShardedRL, ranks) if ranks else SingleProcess,
        )  # fmt: skip

    for name, run, steps in (("supervised", supervised, 3), ("rl", reinforced, 4)):
        whole, cut = MemorySink(), MemorySink()
        run(f"{name}-ranks", whole, world)
        run(f"{name}-cut", MemorySink(stop_after=2), world)
        run(f"{name}-cut", cut, world)
        if rank:
            continue
        one = MemorySink()
        run(f"{name}-one", one, None)
        for step in range(1, steps + 1):
            for key in ("heads/loss", "heads/accepted"):
                assert whole.values[step][key] == pytest.approx(one.values[step][key], rel=1e-2, abs=1e-2), (name, step)
        last = Path(f"step-{steps:06d}") / "policy" / "mtp" / "mtp.safetensors"
        on_ranks, resumed, alone = (root / f"{name}-{kind}" / last for kind in ("ranks", "cut", "one"))
        assert resumed.read_bytes() == on_ranks.read_bytes(), name
        for key, tensor in load_file(alone).items():
            torch.testing.assert_close(load_file(on_ranks)[key], tensor, rtol=1e-2, atol=2e-3, msg=f"{name}: {key}")
    if rank == 0:
        newest = subscribers.load(WeightStore(root / "rl-ranks" / "weights").versions)
        head = load_file(root / "rl-ranks" / "step-000004" / "policy" / "mtp" / "mtp.safetensors")
        assert newest.version == 4 and all(torch.equal(newest.draft_head()[key], head[key]) for key in head)


def two_ranks(rank: int, folder: str) -> None:
    same_lessons(rank)
    near_in_half_precision()
    stage(rank, folder)


def two_joint_ranks(rank: int, folder: str) -> None:
    joint(rank, folder)
    distributed.barrier()  # the first computes alone at the end


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_ranks_teach_a_head_as_one_process_does(tmp_path: Path) -> None:
    policy_with_experts(tmp_path / "with-experts")
    run_world(2, two_ranks, tmp_path, str(tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_ranks_train_a_head_at_every_step_as_one_process_does(tmp_path: Path) -> None:
    run_world(2, two_joint_ranks, tmp_path, str(tmp_path))
