"""kill -9 at random moments: the run that goes on has trained on every prompt once, and to the same bits."""

from __future__ import annotations

import json
import random
import signal

import pytest

from tests.support.journal import Journal
from tests.support.processes import forkserver
from tests.trainer.orchestrator import victim
from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink
from trainer.checkpoint.store import CheckpointStore
from trainer.rl.stage import run_rl
from trainer.weights import WeightStore

pytestmark = pytest.mark.integration

SECONDS = 120.0
DURABLE = 70
"""About how often a whole run makes something durable: each is a moment to be killed at."""


@pytest.fixture(scope="module")
def processes():
    """Fresh processes that need not import torch again each time."""
    return forkserver()


def run(processes, root, seed, kill_at, only=""):
    process = processes.Process(target=victim.main, args=(root, seed, kill_at, only))
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join(10)
        pytest.fail(f"the run did not end within {SECONDS:g} s")
    return process.exitcode


SLOW = [pytest.param(seed, 4, marks=pytest.mark.slow) for seed in range(5)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "kills"), [(20, 2), *SLOW])
def test_a_killed_run_goes_on_exactly(tmp_path, processes, seed, kills):
    root = tmp_path / "killed"
    root.mkdir()
    chance = random.Random(seed)
    codes = [run(processes, root, 1, chance.randrange(1, DURABLE // 2)) for _ in range(kills)]
    assert codes == [-signal.SIGKILL] * kills
    assert run(processes, root, 1, 0) == 0
    compare(root, tmp_path)


VERSION = 6
"""How often writing a version makes something durable: payload, probe and manifest, each with its folder."""
MANIFEST = [pytest.param(5, 0, marks=pytest.mark.slow), pytest.param(6, 1, marks=pytest.mark.slow)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("place", "visible"), [(2, 0), *MANIFEST])
def test_a_run_killed_while_a_version_is_written_beside_it_goes_on_exactly(tmp_path, processes, place, visible):
    """With the payload alone, before the manifest and behind it: of version 1, then of 3, which is after a checkpoint."""
    root = tmp_path / "killed"
    root.mkdir()
    store, checkpoints = WeightStore(root / "weights", dtype="float32"), CheckpointStore(root / "checkpoints", keep=1)
    assert run(processes, root, 1, VERSION + place, "publishing") == -signal.SIGKILL
    assert (store.versions.all(), checkpoints.steps()) == ([0, 1][: 1 + visible], [])
    # What is there is not written again.
    assert run(processes, root, 1, (2 - visible) * VERSION + place, "publishing") == -signal.SIGKILL
    assert (store.versions.all(), checkpoints.steps()) == ([0, 1, 2, 3][: 3 + visible], [2])
    assert run(processes, root, 1, 0) == 0
    compare(root, tmp_path)


def compare(root, tmp_path):
    """What the run that was killed came to, with one on the same batches that was not."""
    # Each step has its own groups, each group one step; nothing is open, nothing was dropped, nothing is left over.
    journal = Journal(root / "groups")
    journal.close()
    batches = [journal.batches[step] for step in range(1, victim.STEPS + 1)]
    consumed = [prompt for batch in batches for prompt in batch]
    assert len(set(consumed)) == len(consumed) == victim.STEPS * victim.config().groups_per_step
    assert sorted(consumed) == sorted(journal.entries)
    assert {entry.state for entry in journal.entries.values()} == {"consumed"}

    # A step that was trained again had the same loss, and so has a run that was never killed on the same batches.
    losses: dict[int, set[str]] = {}
    for line in (root / "losses.jsonl").read_text().splitlines():
        row = json.loads(line)
        losses.setdefault(row["step"], set()).add(row["loss"])
    store = WeightStore(tmp_path / "again", dtype="float32")
    sink = MemorySink()
    run_rl(
        policy_dir=BASE_POLICY,
        config=victim.config(),
        seed=0,
        source=ListSource(journal.load(consumed), victim.config().groups_per_step),
        sink=sink,
        store=store,
        checkpoints=CheckpointStore(tmp_path / "checkpoints", keep=1),
    )
    assert losses == {step: {values["optim/loss"].hex()} for step, values in sink.values.items()}
    killed = WeightStore(root / "weights", dtype="float32")
    assert killed.manifest(victim.STEPS).digest == store.manifest(victim.STEPS).digest
