"""RPC between the process that owns a run and rank 0 of its training ranks: JSON calls over a local socket.

The run's process keeps its lease, database and files; the ranks know none of them. Each call to a stage's source or
sink goes to that process and returns its answer, or the error that it raised.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from trainer.config import Stage
from trainer.errors import StageError
from trainer.learning.token_export import TrainedGroup
from trainer.stages.base import GroupSource, StageSink
from trainer.types import TrainGroup

KEY = "OPENCOMPOSER_RANKS_KEY"
"""Environment variable with the shared secret (hex) that both ends of the socket prove to each other."""


class Job(BaseModel):
    """The ranks' job; they request everything else."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Stage
    seed: int
    policy_dir: Path
    store: str = ""
    """Weight store for RL: a folder, or an address in a bucket."""
    checkpoints: Path
    corpora: Path | None = None
    """Folder of a configured corpus (mid-training, and SFT replay)."""
    codebase: Path | None = None
    """Place of the codebase whose loss is measured, where it is not in `corpora`."""
    episodes: Path | None = None
    """File of expert episodes (SFT)."""
    dataset: Path | None = None
    """Folder of a prepared dataset (SFT)."""
    socket: Path


class Call(BaseModel):
    name: str
    arguments: list[JsonValue] = []


class Answer(BaseModel):
    value: JsonValue = None
    error: str | None = None


class Remote:
    """The run's source and sink, as rank 0 calls them."""

    def __init__(self, socket: Path) -> None:
        """Raises OSError when the run's process is gone."""
        self._connection = Client(str(socket), family="AF_UNIX", authkey=bytes.fromhex(os.environ[KEY]))

    def call(self, name: str, *arguments: Any) -> Any:
        """Call `name` remotely. Raises StageError with the remote error, EOFError when that process is gone."""
        self._connection.send_bytes(Call(name=name, arguments=list(arguments)).model_dump_json().encode())
        answer = Answer.model_validate_json(self._connection.recv_bytes())
        if answer.error is not None:
            raise StageError(answer.error)
        return answer.value

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        return [TrainGroup.model_validate_json(group) for group in self.call("next_batch", step, timeout)]

    def flow(self) -> Mapping[str, float]:
        flow: Mapping[str, float] = self.call("flow")
        return flow

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.call("metrics", step, dict(values))

    def progress(self, done: int, total: int) -> None:
        self.call("progress", done, total)

    def version_published(self, version: int, digest: str, values: Mapping[str, float]) -> None:
        self.call("version_published", version, digest, dict(values))

    def checkpoint_saved(self, step: int, path: Path, *, final: bool) -> None:
        self.call("checkpoint_saved", step, str(path), final)

    def event(
        self, level: Literal["info", "warning", "error"], message: str, data: Mapping[str, Any] | None = None
    ) -> None:
        self.call("event", level, message, None if data is None else dict(data))

    def should_stop(self) -> bool:
        return bool(self.call("should_stop"))

    def keep_streams(self, groups: Sequence[TrainedGroup]) -> None:
        self.call("keep_streams", [group.model_dump(mode="json") for group in groups])


class Server:
    """Answers rank 0's calls from a real source and sink, one at a time, in the calling thread."""

    def __init__(
        self,
        source: GroupSource | None,
        sink: StageSink,
        keep_streams: Callable[[Sequence[TrainedGroup]], None] | None,
    ) -> None:
        """`source` is for reinforcement learning; other stages need none."""
        self.result: dict[str, Any] | None = None
        """Result of the last `ended` call."""
        self.raised: BaseException | None = None
        """Exception of the source or sink; it ends the stage in this process."""
        self._calls: dict[str, Callable[..., Any]] = {
            "metrics": sink.metrics,
            "progress": sink.progress,
            "version_published": sink.version_published,
            "checkpoint_saved": lambda step, path, final: sink.checkpoint_saved(step, Path(path), final=final),
            "event": sink.event,
            "should_stop": sink.should_stop,
            "keep_streams": lambda groups: (
                keep_streams([TrainedGroup.model_validate(group) for group in groups]) if keep_streams else None
            ),
            "ended": self._ended,
        }
        if source is not None:
            self._calls |= {
                # As text: as values of JSON, each of their numbers would be an object that is validated twice.
                "next_batch": lambda step, timeout: [
                    group.model_dump_json() for group in source.next_batch(step, timeout=timeout)
                ],
                "flow": lambda: dict(source.flow()),
            }

    def answer(self, connection: Connection) -> None:
        """Answer one call. Raises EOFError, OSError when rank 0 is gone."""
        call = Call.model_validate_json(connection.recv_bytes())
        try:
            answer = Answer(value=self._calls[call.name](*call.arguments))
        except Exception as error:  # noqa: BLE001 - raised again in this process, by `launch.py`
            self.raised = error
            answer = Answer(error=str(error) or type(error).__name__)
        connection.send_bytes(answer.model_dump_json().encode())

    def _ended(self, result: dict[str, Any]) -> None:
        self.result = result
