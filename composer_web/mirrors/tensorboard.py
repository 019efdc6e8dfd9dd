"""TensorBoard: one event file per run, truncated to its recorded length before appending to avoid duplicates."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from composer_web.mirrors.base import About, Kept, MirrorError, Point

try:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter
except ImportError as error:
    raise MirrorError("TensorBoard is not installed: pip install 'opencomposer[tensorboard]'") from error


class TensorBoard:
    """`to` is the log folder that `tensorboard --logdir` is given."""

    def __init__(self, about: About, to: str) -> None:
        self.folder = Path(to) / f"run-{about.id}"
        self.file = self.folder / "events.out.tfevents.0.opencomposer"

    def write(self, points: Sequence[Point], kept: Kept) -> Kept:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.file.open("ab") as file:
            file.truncate(int(kept.get("bytes", 0)))
            file.seek(0, os.SEEK_END)
            writer = RecordWriter(file)
            if not file.tell():
                writer.write(
                    Event(wall_time=points[0].at.timestamp(), file_version="brain.Event:2").SerializeToString()
                )
            for point in points:
                value = Summary.Value(tag=point.name, simple_value=point.value)
                event = Event(wall_time=point.at.timestamp(), step=point.step, summary=Summary(value=[value]))
                writer.write(event.SerializeToString())
            file.flush()
            os.fsync(file.fileno())
            return {"bytes": file.tell()}
