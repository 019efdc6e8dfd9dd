"""Metrics in TensorBoard, MLflow and W&B: each point once, also when the process dies before it notes what it did."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from composer_web.mirrors import feeding
from composer_web.mirrors.base import Kept, MirrorError, Point
from composer_web.mirrors.feeding import Feeder, place_of
from composer_web.runs import metrics
from composer_web.runs.management.commands import mirror
from composer_web.runs.models import Run

pytestmark = pytest.mark.django_db
NOW = timedelta(0)
EXPECTED = {("reward/mean", s): s / 4 for s in range(1, 7)} | {("loss/policy", s): -s / 8 for s in range(1, 7)}


def step(run: Run, number: int) -> None:
    metrics.record(run=run, step=number, values={"reward/mean": number / 4, "loss/policy": -number / 8})


def read_tensorboard(folder: Path) -> list[tuple[str, int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return [(tag, e.step, e.value) for tag in events.Tags()["scalars"] for e in events.Scalars(tag)]


def read_mlflow(uri: str) -> list[tuple[str, int, float]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("OpenComposer")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return [
        (m.key, m.step, m.value) for key in run.data.metrics for m in client.get_metric_history(run.info.run_id, key)
    ]


def wandb_records(file: Path) -> Iterator[bytes]:
    """Its offline file is a LevelDB log behind seven bytes: blocks of 32 KiB, records in full or in pieces."""
    data, at, pieces = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        if left < 7 or kind == 0:
            at += left
            continue
        pieces += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # full, last
            yield pieces
            pieces = b""


def read_wandb(folder: Path) -> list[tuple[str, int, float]]:
    """Rows of the offline files by their number: W&B keeps the first of a number."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows: dict[int, dict[str, Any]] = {}
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns):
        for data in wandb_records(file):
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "history":
                row = {(i.key or "/".join(i.nested_key)): json.loads(i.value_json) for i in record.history.item}
                rows.setdefault(int(row["_step"]), row)
    return [(k, r["step"], v) for r in rows.values() for k, v in r.items() if k != "step" and not k.startswith("_")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tensorboard", "mlflow", "wandb"])
def test_each_point_is_there_once_over_restarts(
    kind: str, running: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(kind, reason=f"the extra `{kind}` is not installed")
    to = (tmp_path / "there").as_uri() if kind == "mlflow" else str(tmp_path / "there")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for number in (1, 2, 3):
        step(running, number)
    assert Feeder(kind, to).feed(settled=NOW) == 6
    # The next process stores two steps and dies before it notes that it did.
    for number in (4, 5):
        step(running, number)
    with monkeypatch.context() as dying:
        dying.setattr(feeding, "note_place", _die)
        with pytest.raises(KeyboardInterrupt):
            Feeder(kind, to).feed(settled=NOW)
    step(running, 6)
    last = Feeder(kind, to)
    assert last.feed(settled=NOW) == 6  # steps 4 and 5 again, and 6
    assert last.feed(settled=NOW) == 0
    if kind == "tensorboard":
        found = read_tensorboard(tmp_path / "there" / f"run-{running.pk}")
    elif kind == "mlflow":
        found = read_mlflow(to)
    else:
        found = read_wandb(tmp_path / "there")
    assert Counter((name, number) for name, number, _ in found) == Counter(list(EXPECTED))
    assert {(name, number): pytest.approx(value) for name, number, value in found} == EXPECTED


def _die(*_: Any) -> None:
    raise KeyboardInterrupt


class Counting:
    """A mirror that only remembers."""

    def __init__(self) -> None:
        self.points: list[Point] = []

    def write(self, points: list[Point], kept: Kept) -> Kept:
        self.points += points
        return {"points": len(self.points)}


def test_points_come_in_order_and_moments_are_never_split(running: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "MAX_POINTS", 3)
    for number in range(1, 6):
        step(running, number)
    feeder, kept = Feeder("tensorboard", ""), Counting()
    feeder.mirrors[running.pk] = kept  # type: ignore[assignment]
    assert feeder.feed(settled=NOW) == 10
    assert [p.step for p in kept.points] == [n for n in range(1, 6) for _ in range(2)]
    assert place_of("tensorboard", running.pk).kept == {"points": 10}


def test_what_is_too_young_waits(running: Run) -> None:
    step(running, 1)
    feeder, kept = Feeder("tensorboard", ""), Counting()
    feeder.mirrors[running.pk] = kept  # type: ignore[assignment]
    assert feeder.feed(settled=timedelta(hours=1)) == 0
    assert feeder.feed(settled=NOW) == 2


def test_two_processes_do_not_feed_the_same(running: Run, tmp_path: Path) -> None:
    with Feeder("tensorboard", "").alone(), pytest.raises(CommandError, match="another process feeds tensorboard"):
        call_command("mirror", "tensorboard", str(tmp_path), "--once")
    step(running, 1)
    call_command("mirror", "tensorboard", str(tmp_path), "--once")


def test_a_tool_that_is_away_is_waited_for(
    running: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command goes on after a failed try, with a new connection, and ends when it is told to."""
    step(running, 1)
    tries: list[Counting] = []
    stopping = threading.Event()

    class Away(Counting):
        def __init__(self, *_: object) -> None:
            super().__init__()
            tries.append(self)

        def write(self, points: list[Point], kept: Kept) -> Kept:
            if len(tries) == 1:
                raise MirrorError("nobody is there")
            stopping.set()
            return super().write(points, kept)

    monkeypatch.setattr(feeding, "maker", lambda kind: Away)
    monkeypatch.setattr(Feeder.feed, "__kwdefaults__", {"settled": NOW})
    mirror.Command()._go_on(Feeder("tensorboard", str(tmp_path)), stopping, 0.01)
    assert [len(one.points) for one in tries] == [0, 2]
    assert "nobody is there; it is tried again in 0.01 s" in capsys.readouterr().err


def test_an_unknown_mirror_is_named() -> None:
    with pytest.raises(MirrorError, match="there is no mirror 'csv'; there are tensorboard"):
        feeding.maker("csv")
