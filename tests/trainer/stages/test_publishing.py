"""Versions are written beside training: in order, before their checkpoints, and what goes wrong there ends the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, ObjectiveConfig, RLConfig
from trainer.errors import BatchTimeout
from trainer.learning.metrics import describe
from trainer.rl.backend import SingleProcess
from trainer.rl.stage import run_rl
from trainer.types import TrainGroup
from trainer.weights import StoreUnavailable, WeightStore
from trainer.weights.async_publish import Background

SECONDS = 120.0


@pytest.fixture(scope="module")
def groups() -> list[TrainGroup]:
    model = policies.load_model(BASE_POLICY)
    return [make_group(model, index) for index in range(8)]


class Store(WeightStore):
    """Before a version is written, `before` is called in the thread that writes it."""

    def __init__(self, root: Path, before: Callable[[int], None] = lambda version: None) -> None:
        super().__init__(root / "weights", dtype="float32")
        self.before = before
        self.writing = 0

    def write(self, version: int, *args: Any, **options: Any) -> Any:
        self.writing += 1
        assert self.writing == 1, "one version at a time"
        self.before(version)
        try:
            return super().write(version, *args, **options)
        finally:
            self.writing -= 1


def published() -> None:
    """Waits for the thread that publishes now, if one does."""
    for thread in threading.enumerate():
        if thread.name == "publishing":
            thread.join(SECONDS)


class Source(ListSource):
    """Calls `before` as it is asked for a step."""

    before: Callable[[int], None] = staticmethod(lambda step: None)

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        self.before(step)
        return super().next_batch(step, timeout=timeout)


def run(
    root: Path,
    groups: list[TrainGroup],
    store: WeightStore,
    *,
    sink: MemorySink | None = None,
    config: RLConfig | None = None,
    before: Callable[[int], None] = lambda step: None,
    trained: Callable[[int], None] = lambda step: None,
    checkpoints: CheckpointStore | None = None,
    backend_of: Callable[..., SingleProcess] = SingleProcess,
) -> MemorySink:
    """`before` a batch is given; `trained`: just before the version of the step is handed over."""
    sink, config = sink or MemorySink(), config or small_config()
    source = Source(groups, config.groups_per_step)
    source.before = before
    run_rl(
        policy_dir=BASE_POLICY,
        config=config,
        seed=0,
        source=source,
        sink=sink,
        store=store,
        checkpoints=checkpoints or CheckpointStore(root / "checkpoints", keep=1),
        keep_streams=lambda kept: trained(kept[0].step),
        backend_of=backend_of,
    )
    return sink


def test_training_goes_on_while_a_slow_store_writes(tmp_path: Path, groups: list[TrainGroup]) -> None:
    """No version is written before the next step is trained, where nothing waits for it."""
    config = small_config(checkpoint=CheckpointConfig(every_steps=4, keep=1))
    steps = [threading.Event() for _ in range(6)]

    def slow(version: int) -> None:
        if 0 < version < config.steps:
            assert steps[version + 1].wait(SECONDS), f"step {version + 1} waits for version {version}"

    store = Store(tmp_path, slow)

    def trained(step: int) -> None:
        assert store.latest() == max(0, step - 2), "the version before is not written yet"
        steps[step].set()

    sink = run(tmp_path, groups, store, config=config, trained=trained)
    alone = run(tmp_path / "alone", groups, WeightStore(tmp_path / "alone", dtype="float32"), config=config)
    assert sink.versions == alone.versions and [version for version, _ in sink.versions] == [0, 1, 2, 3, 4]
    for step, values in sink.values.items():
        assert values["optim/loss"] == alone.values[step]["optim/loss"]


def test_what_a_version_weighs_is_told_with_its_step(tmp_path: Path, groups: list[TrainGroup]) -> None:
    store = Store(tmp_path)
    sink = run(tmp_path, groups, store)
    assert sorted(sink.values) == [1, 2, 3, 4]
    for step, values in sink.values.items():
        manifest = store.manifest(step)
        assert values["weights/bytes"] == manifest.payload_bytes and values["weights/changed"] == manifest.density
        assert values["time/publish_background"] > 0 and 0 < values["time/publish"] < values["time/step"]
        for name in values:
            describe(name)


class Telling(Background):
    """Says so when it waits for work that is not done."""

    def __init__(self, waits: threading.Event) -> None:
        super().__init__("publishing")
        self.waits = waits

    def wait(self) -> None:
        if self._thread is not None:
            self.waits.set()
        super().wait()


def test_a_checkpoint_has_its_name_only_when_its_version_is_in_the_store(
    tmp_path: Path, groups: list[TrainGroup]
) -> None:
    waits = threading.Event()

    def slow(version: int) -> None:
        waits.clear()
        assert waits.wait(SECONDS), f"nobody waits for version {version}"

    store, named = Store(tmp_path, slow), []

    class Checkpoints(CheckpointStore):
        def complete(self, *args: Any) -> Path:
            path = super().complete(*args)
            named.append((path.name, store.latest()))
            return path

    def backend_of(**options: Any) -> SingleProcess:
        backend = SingleProcess(**options)
        backend.publishing = Telling(waits)
        return backend

    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    run(tmp_path, groups, store, checkpoints=checkpoints, backend_of=backend_of)
    assert named == [("step-000002", 2), ("step-000004", 4)]


def test_without_lag_a_batch_is_asked_for_when_the_version_before_is_published(
    tmp_path: Path, groups: list[TrainGroup]
) -> None:
    store, sink = Store(tmp_path), MemorySink()
    config = small_config(max_off_policy_steps=0)
    asked = []

    def before(step: int) -> None:
        asked.append((step, store.latest(), sink.versions[-1][0]))

    run(tmp_path, groups, store, sink=sink, config=config, before=before)
    assert asked == [(step, step - 1, step - 1) for step in range(1, 5)]


def test_a_reference_that_follows_waits_for_the_version_that_it_becomes(
    tmp_path: Path, groups: list[TrainGroup]
) -> None:
    objective = ObjectiveConfig(loss_divisor=32.0, kl_coefficient=0.5, reference="lagged", reference_steps=1)
    sink = run(tmp_path, groups, Store(tmp_path), config=small_config(objective=objective))
    assert all(abs(values["kl/k1"]) < 1e-6 for values in sink.values.values())


FULL = "weights could not be written: No space left on device; free space there"


def full(version: int) -> None:
    if version == 2:
        raise StoreUnavailable(FULL)


def test_a_version_that_cannot_be_written_ends_the_run_before_the_next_step_is_trained(
    tmp_path: Path, groups: list[TrainGroup]
) -> None:
    steps: list[int] = []
    sink = MemorySink()
    config = small_config(checkpoint=CheckpointConfig(every_steps=4, keep=1))
    store = Store(tmp_path, full)
    with pytest.raises(StoreUnavailable, match="No space left on device") as raised:
        run(tmp_path, groups, store, sink=sink, config=config, before=lambda step: published(), trained=steps.append)
    assert str(raised.value) == FULL
    assert steps == [1, 2] and [version for version, _ in sink.versions] == [0, 1]
    # Nothing is lost: it goes on once there is room.
    again = run(tmp_path, groups, Store(tmp_path), config=config)
    assert [version for version, _ in again.versions] == [0, 1, 2, 3, 4]


def test_no_checkpoint_is_of_a_version_that_could_not_be_written(tmp_path: Path, groups: list[TrainGroup]) -> None:
    sink = MemorySink()
    with pytest.raises(StoreUnavailable, match="No space left on device"):
        run(tmp_path, groups, Store(tmp_path, full), sink=sink)
    assert sink.checkpoints == [] and list((tmp_path / "checkpoints").glob("*")) == []


def test_it_is_named_before_what_came_of_it(tmp_path: Path, groups: list[TrainGroup]) -> None:
    """Rollouts that wait in vain for a version would else be blamed on rollout workers."""
    config = small_config(checkpoint=CheckpointConfig(every_steps=4, keep=1))
    with pytest.raises(StoreUnavailable, match="No space left on device") as raised:
        run(tmp_path, groups[:4], Store(tmp_path, full), config=config, before=lambda step: published())
    assert isinstance(raised.value.__context__, BatchTimeout)


def test_what_the_sink_raises_there_ends_the_run_as_itself(tmp_path: Path, groups: list[TrainGroup]) -> None:
    class Fenced(Exception):
        """An error of the sink's own."""

    class Sink(MemorySink):
        def version_published(self, version: int, digest: str, values: Mapping[str, float]) -> None:
            assert threading.current_thread() is not threading.main_thread()
            if version == 3:
                raise Fenced("another trainer has the run")
            super().version_published(version, digest, values)

    with pytest.raises(Fenced, match="another trainer has the run"):
        run(tmp_path, groups, Store(tmp_path), sink=Sink())
    assert not any(thread.name == "publishing" for thread in threading.enumerate())
