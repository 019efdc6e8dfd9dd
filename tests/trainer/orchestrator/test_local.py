"""The asynchronous loop in one process, on groups without an engine: features, faults and resumes."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass

import numpy as np
import pytest

from sandbox.grading.verdict.outcomes import Cause, Loss
from tests.support.journal import Journal, JournalError
from tests.support.local_loop import LocalSource
from tests.trainer.orchestrator.groups import accepted, group_of, lost, shuffled
from tests.trainer.stages.memory import BASE_POLICY, MemorySink, small_config
from trainer.checkpoint.store import CheckpointStore
from trainer.config import OrchestratorConfig
from trainer.errors import BatchTimeout, StageError
from trainer.orchestrator.concurrency import EngineLoad
from trainer.rl.learner import build_learner
from trainer.rl.rl_sync import SyncRun, build_reference, learn, policies, publish
from trainer.rl.stage import run_rl
from trainer.routed_experts import RoutedExperts
from trainer.router_replay.validate import shape_of
from trainer.toy.preset import toy_sampling
from trainer.weights import WeightStore


@dataclass
class Ended:
    sink: MemorySink
    journal: Journal
    store: WeightStore
    limits: list[int]


def run(root, config, play, *, load=None) -> Ended:
    store = WeightStore(root / "weights", dtype="float32")
    sink, limits = MemorySink(), []
    source = LocalSource(
        config=config,
        journal=Journal(root / "groups"),
        play=play,
        published=lambda: max(store.versions.all(), default=-1),
        shape=shape_of(BASE_POLICY),
        load=load,
    )
    sink.heard = source.version_published
    with source:
        run_rl(
            policy_dir=BASE_POLICY,
            config=config,
            seed=0,
            source=source,
            sink=sink,
            store=store,
            checkpoints=CheckpointStore(root / "checkpoints", keep=1),
        )
        limits.append(source.limit)
    return Ended(sink, source.journal, store, limits)


def everything_on(**changes):
    return OrchestratorConfig(
        adaptive_concurrency=True,
        straggler_policy="trim",
        max_non_finite_steps=2,
        circuit_breaker_losses=5,
        group_seconds=900.0,
        **changes,
    )


async def test_at_lag_zero_with_everything_on_it_is_the_synchronous_loop(tmp_path):
    config = small_config(max_off_policy_steps=0, orchestrator=everything_on())
    # Later prompts end first, and one is lost and played again.
    ended: dict[int, asyncio.Event] = {}

    async def play(ticket):
        if ticket.prompt == 2 and ticket.attempt == 0:
            return lost(Cause.SANDBOX_LOST, "a sandbox died")
        mine = ended.setdefault(ticket.prompt, asyncio.Event())
        if ticket.prompt % 2 == 0:
            await ended.setdefault(ticket.prompt + 1, asyncio.Event()).wait()
        mine.set()
        return accepted(ticket.prompt, ticket.version)

    ours = await asyncio.to_thread(run, tmp_path / "async", config, play, load=lambda: EngineLoad(4, 0, 8))

    store = WeightStore(tmp_path / "sync", dtype="float32")
    policy = policies.load(BASE_POLICY)
    reference = build_reference(config, BASE_POLICY, store)
    learner = build_learner(policy, config, seed=0, reference=reference)
    steps = []

    async def nothing(version):
        pass

    sync = SyncRun(config, 0, policy, learner, reference, store, None, nothing)  # type: ignore[arg-type]

    await publish(sync)
    for first in range(0, config.steps * config.groups_per_step, config.groups_per_step):
        prompts = range(first, first + config.groups_per_step)
        steps.append(await learn(sync, [group_of(prompt, sync.version) for prompt in prompts]))

    assert [ours.journal.batches[step] for step in range(1, 5)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    for step in steps:
        mine = ours.sink.values[step.step]
        assert mine["staleness/max"] == 0.0
        for name in ("optim/loss", "optim/grad_norm", "policy/entropy", "mismatch/k3_mean", "reward/mean"):
            assert mine[name] == step.metrics[name], name
    for version in range(5):
        assert ours.store.manifest(version).digest == store.manifest(version).digest


def test_the_surplus_is_trained_in_the_next_step_and_nothing_twice(tmp_path):
    config = small_config(
        steps=5, max_off_policy_steps=1, max_in_flight_groups=4, orchestrator=OrchestratorConfig(over_sampling=1.0)
    )
    ours = run(tmp_path, config, shuffled(3))
    consumed = [prompt for step in range(1, 6) for prompt in ours.journal.batches[step]]
    assert sorted(consumed) == list(range(10)) == sorted(ours.journal.entries)
    flows = [ours.sink.values[step] for step in range(1, 6)]
    for step, flow in enumerate(flows, start=1):
        # Count in = count out: what was dispatched is trained, ready, in flight or dropped.
        assert flow["groups/dispatched"] == 2 * step + flow["groups/surplus"] + flow["groups/in_flight"]
        assert flow["groups/accepted"] == 2 * step + flow["groups/surplus"]
        assert flow["staleness/max"] <= config.staleness_limit == 2
        assert sum(value for name, value in flow.items() if name.startswith("staleness/at/")) == pytest.approx(1.0)
    # (v + O + 1) P + surplus groups are out after the first step, as far as the run needs them.
    assert flows[1]["groups/dispatched"] > 2 * 2 + 2


@pytest.mark.parametrize(("ready", "oldest", "most"), [(1.0, (1,), (2,)), (0.0, (3,), (6, 8))])
def test_what_is_finished_does_not_grow_old_while_it_waits(tmp_path, ready, oldest, most):
    """Groups that end at once: a step's worth waits, or as many as staleness allows. Without the bound it makes a step's
    difference whether a version is written by the time that the next batch is taken."""
    asynchrony = OrchestratorConfig(max_buffered_steps=ready)
    config = small_config(steps=6, max_off_policy_steps=3, max_in_flight_groups=2, orchestrator=asynchrony)

    async def play(ticket):
        return accepted(ticket.prompt, ticket.version)

    ours = run(tmp_path, config, play)
    assert max(ours.sink.values[step]["staleness/max"] for step in range(1, 7)) in oldest
    assert max(ours.sink.values[step]["groups/surplus"] for step in range(1, 7)) in most


def test_a_group_whose_engine_lags_is_played_again_and_never_trained_too_old(tmp_path):
    """Dispatched at the newest version, and its tokens are of version 0."""
    config = small_config(steps=5, max_off_policy_steps=1)
    lagged = []

    async def play(ticket):
        if ticket.version >= 2 and not lagged:
            lagged.append(ticket.prompt)
            return accepted(ticket.prompt, ticket.version, oldest_version=0)
        assert ticket.prompt not in lagged or ticket.attempt == 1
        return accepted(ticket.prompt, ticket.version)

    ours = run(tmp_path, config, play)
    assert lagged and lagged[0] in [prompt for batch in ours.journal.batches.values() for prompt in batch]
    assert max(ours.sink.values[step]["staleness/max"] for step in range(1, 6)) <= config.staleness_limit == 1


def test_a_lie_about_versions_is_named_and_survived(tmp_path):
    config = small_config(steps=2, max_off_policy_steps=0)

    async def play(ticket):
        if ticket.prompt == 0:
            return accepted(0, ticket.version, newest_version=ticket.version + 9)
        if ticket.prompt == 1 and ticket.attempt == 0:
            return accepted(1, ticket.version, newest_version=77)
        return accepted(ticket.prompt, ticket.version)

    ours = run(tmp_path, config, play)
    assert ours.journal.batches[1] == [1, 2]
    assert ours.journal.entries[0].state == "dropped"
    assert "names policy version 9 and the newest that was published is 0" in ours.journal.entries[0].cause
    assert ours.sink.values[2]["groups/dropped/invalid_engine_response"] == 1.0


def test_a_group_that_never_ends_is_given_up_and_replaced(tmp_path):
    config = small_config(
        steps=2,
        max_off_policy_steps=0,
        orchestrator=OrchestratorConfig(group_seconds=0.02),
        sampling=toy_sampling(episode_seconds=0.01, engine_seconds=0.01),
    )

    async def play(ticket):
        if ticket.prompt == 0:
            await asyncio.Event().wait()
        return accepted(ticket.prompt, ticket.version)

    ours = run(tmp_path, config, play)
    assert ours.journal.batches[1] == [1, 2]
    assert "did not end within 0.02 s" in ours.journal.entries[0].cause
    assert ours.sink.values[1]["groups/dropped/group_deadline"] == 1.0


def test_a_reward_part_that_always_raises_stops_the_run_with_its_name_and_nothing_is_lost(tmp_path):
    config = small_config(steps=4)
    broken = True

    async def play(ticket):
        if broken and ticket.version >= 1:
            return lost(Cause.REWARD_FAILED, "reward part 'style' failed on task t: ZeroDivisionError()")
        return accepted(ticket.prompt, ticket.version)

    with pytest.raises(StageError, match=r"last \d+ groups were all lost.*reward part 'style'"):
        run(tmp_path, config, play)
    broken = False
    ours = run(tmp_path, config, play)
    batches = [ours.journal.batches[step] for step in range(1, 5)]
    consumed = [prompt for batch in batches for prompt in batch]
    assert len(set(consumed)) == 8
    assert ours.sink.values[4]["groups/dropped/reward_failed"] >= 5


def test_groups_that_another_policy_made_are_tried_again_and_never_reach_a_batch(tmp_path):
    def spoilt(prompt, version, **changes):
        made = accepted(prompt, version)
        bad = made.train_group.samples[0].model_copy(update=changes)
        return accepted(prompt, version, samples=[bad, *made.train_group.samples[1:]])

    async def play(ticket):
        if ticket.prompt == 1 and ticket.attempt == 0:
            return spoilt(1, ticket.version, tokens=[5000] * len(accepted(1, 0).train_group.samples[0].tokens))
        if ticket.prompt == 3:
            return spoilt(3, ticket.version, experts=RoutedExperts.pack(np.zeros((2, 2, 2), np.uint16)))
        return accepted(ticket.prompt, ticket.version)

    config = small_config(steps=3, orchestrator=OrchestratorConfig(circuit_breaker_losses=5))
    ours = run(tmp_path, config, play)
    consumed = [prompt for step in (1, 2, 3) for prompt in ours.journal.batches[step]]
    assert 1 in consumed and 3 not in consumed and len(consumed) == 6
    assert "routed experts are of 2 layers" in ours.journal.entries[3].cause
    assert ours.sink.values[3]["groups/dropped/invalid_engine_response"] == 1.0
    # A resume replays what was assigned and never meets them again.
    for step in sorted((tmp_path / "checkpoints").iterdir())[1:]:
        shutil.rmtree(step)
    again = run(tmp_path, config, play)
    assert [again.journal.batches[step] for step in (1, 2, 3)] == [ours.journal.batches[step] for step in (1, 2, 3)]
    assert again.sink.values[3]["optim/loss"] == ours.sink.values[3]["optim/loss"]


def test_a_fault_of_the_program_stops_the_run_at_once(tmp_path):
    async def play(ticket):
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        run(tmp_path, small_config(), play)


def test_prompts_that_run_out_are_an_error_not_a_wait(tmp_path):
    store = WeightStore(tmp_path / "weights", dtype="float32")
    config = small_config()
    with LocalSource(
        config=config,
        journal=Journal(tmp_path / "g"),
        play=shuffled(0),
        published=lambda: 0,
        prompts=1,
        shape=shape_of(BASE_POLICY),
    ) as source:
        source.version_published(0)
        with pytest.raises(StageError, match="prompts ran out after 1"):
            source.next_batch(1, timeout=60)
    assert store.latest() is None


def test_a_wait_in_vain_names_what_it_waits_for(tmp_path):
    async def play(ticket):
        await asyncio.Event().wait()

    with LocalSource(
        config=small_config(),
        journal=Journal(tmp_path),
        play=play,
        published=lambda: 0,
        shape=shape_of(BASE_POLICY),
    ) as source:
        source.version_published(0)
        with pytest.raises(BatchTimeout, match=r"step 1: .* waits for prompts \[0\] and 2 groups run"):
            source.next_batch(1, timeout=0.05)


def test_an_engine_with_a_queue_gets_fewer_groups(tmp_path):
    config = small_config(steps=6, max_off_policy_steps=4, max_in_flight_groups=10)
    assert run(tmp_path / "a", config, shuffled(1), load=lambda: EngineLoad(8, 40, 8)).limits == [2]
    assert run(tmp_path / "b", config, shuffled(1), load=lambda: EngineLoad(2, 0, 8)).limits == [10]


def test_a_torn_line_never_was_and_a_damaged_one_is_named(tmp_path):
    journal = Journal(tmp_path)
    journal.dispatched(0, version=0)
    journal.dispatched(1, version=0)
    journal.close()
    path = tmp_path / "groups.jsonl"
    path.write_text(path.read_text() + '{"event": "accep')
    again = Journal(tmp_path)
    assert again.in_state("open") == [0, 1]
    again.dropped(0, Loss(Cause.HOST_FAILED, "test"))
    again.close()
    assert Journal(tmp_path).in_state("dropped") == [0]
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(JournalError, match="line 1 is damaged"):
        Journal(tmp_path)


def test_a_group_belongs_to_one_step(tmp_path):
    journal = Journal(tmp_path)
    journal.dispatched(0, version=0)
    with pytest.raises(JournalError):
        journal.consumed(1, [0])
    journal.accepted(accepted(0, 0).train_group)
    journal.consumed(1, [0])
    with pytest.raises(JournalError):
        journal.consumed(2, [0])
    assert journal.load([0]) == [accepted(0, 0).train_group]
    journal.close()
