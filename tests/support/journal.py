"""The group buffer on disk: what was dispatched, what came back, which step took it.

    groups.jsonl           one event a line, synced before it counts; a torn last line is an event that never was
    groups/000007.json.gz  an accepted group, whole before its event is written

One process writes. Whoever opens the folder after a crash finds every group in exactly one state, and every step with
exactly the groups that it was given.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sandbox.grading.verdict.outcomes import UNRECORDED, Loss
from trainer.errors import StageError
from trainer.orchestrator.batch_scheduler import BufferEntry
from trainer.types import TrainGroup

State = Literal["open", "accepted", "consumed", "dropped"]


class JournalError(StageError):
    """The group buffer contradicts itself or cannot be read. The message names the file."""


@dataclass(slots=True)
class Entry:
    state: State
    dispatched_version: int
    dispatches: int = 1
    oldest_version: int = -1
    """Oldest version of a finished group's tokens; -1 in older journals."""
    cause: str = ""
    outcome: str = ""
    """`sandbox.grading.verdict.outcomes.Cause` of a dropped group; "" in journals of before it was kept."""

    @property
    def version(self) -> int:
        """Version of its oldest token; the version at dispatch where that is unknown."""
        return self.oldest_version if self.oldest_version >= 0 else self.dispatched_version


class Journal:
    """Groups and batches of one run. Every method that writes is durable when it returns."""

    def __init__(self, root: Path) -> None:
        """Raises JournalError when an event before the last one cannot be read."""
        self.root = Path(root)
        (self.root / "groups").mkdir(parents=True, exist_ok=True)
        self._path = self.root / "groups.jsonl"
        self.entries: dict[int, Entry] = {}
        self.batches: dict[int, list[int]] = {}
        self._replay()
        self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        self._file.close()

    def dispatched(self, prompt: int, *, version: int) -> None:
        """A group is on its way; again after a crash or a loss."""
        self._write({"event": "dispatched", "prompt": prompt, "version": version})

    def accepted(self, group: TrainGroup) -> None:
        path = self._group_file(group.prompt_index)
        scratch = path.with_suffix(".partial")
        with scratch.open("wb") as file:
            file.write(gzip.compress(group.model_dump_json().encode(), compresslevel=1, mtime=0))
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
        self._write({"event": "accepted", "prompt": group.prompt_index, "oldest": group.oldest_version})

    def dropped(self, prompt: int, loss: Loss) -> None:
        event = {"event": "dropped", "prompt": prompt, "cause": loss.message[:500], "outcome": str(loss.outcome)}
        self._write(event)

    def consumed(self, step: int, prompts: Sequence[int]) -> None:
        """The batch of `step`: accepted groups that no other step has (else JournalError)."""
        wrong = [prompt for prompt in prompts if self.entries[prompt].state != "accepted"]
        if wrong or step in self.batches:
            raise JournalError(
                f"step {step} cannot take groups {wrong or list(prompts)}: they are taken, or it has its own"
            )
        self._write({"event": "consumed", "step": step, "prompts": list(prompts)})

    def load(self, prompts: Sequence[int]) -> list[TrainGroup]:
        """Accepted groups, in this order. Raises JournalError."""
        out = []
        for prompt in prompts:
            path = self._group_file(prompt)
            try:
                out.append(TrainGroup.model_validate_json(gzip.decompress(path.read_bytes())))
            except (OSError, EOFError, ValueError) as error:
                raise JournalError(f"{path} cannot be read: {error}") from error
        return out

    def buffer(self) -> list[BufferEntry]:
        """All groups that were not dropped, in prompt order, from the oldest that no step has."""
        kept = [(p, e) for p, e in sorted(self.entries.items()) if e.state != "dropped"]
        first = next((i for i, (_, entry) in enumerate(kept) if entry.state != "consumed"), len(kept))
        return [BufferEntry(p, e.state, e.version) for p, e in kept[first:] if e.state != "dropped"]

    def in_state(self, state: State) -> list[int]:
        return sorted(prompt for prompt, entry in self.entries.items() if entry.state == state)

    @property
    def next_prompt(self) -> int:
        return max(self.entries, default=-1) + 1

    def flow(self) -> dict[str, float]:
        """Counts since the run began, under the names of `learning/metrics.py`."""
        of = {state: len(self.in_state(state)) for state in ("open", "accepted", "consumed", "dropped")}
        out = {
            "groups/dispatched": float(len(self.entries)),
            "groups/accepted": float(of["accepted"] + of["consumed"]),
            "groups/dropped": float(of["dropped"]),
            "groups/in_flight": float(of["open"]),
            "groups/surplus": float(of["accepted"]),
        }
        for entry in self.entries.values():
            if entry.state == "dropped":
                name = f"groups/dropped/{entry.outcome or UNRECORDED}"
                out[name] = out.get(name, 0.0) + 1.0
        return out

    def _group_file(self, prompt: int) -> Path:
        return self.root / "groups" / f"{prompt:06d}.json.gz"

    def _write(self, event: dict[str, Any]) -> None:
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._apply(event)

    def _apply(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "dispatched":
                before = self.entries.get(event["prompt"])
                count = before.dispatches + 1 if before else 1
                self.entries[event["prompt"]] = Entry("open", event["version"], count)
            case "accepted":
                entry = self.entries[event["prompt"]]
                entry.state, entry.oldest_version = "accepted", event.get("oldest", -1)
            case "dropped":
                entry = self.entries[event["prompt"]]
                entry.state, entry.cause, entry.outcome = "dropped", event["cause"], event.get("outcome", "")
            case "consumed":
                self.batches[event["step"]] = event["prompts"]
                for prompt in event["prompts"]:
                    self.entries[prompt].state = "consumed"

    def _replay(self) -> None:
        if not self._path.exists():
            return
        data = self._path.read_bytes()
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            with self._path.open("r+b") as file:
                file.truncate(len(data) - len(torn))
                os.fsync(file.fileno())
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise JournalError(
                    f"{self._path}, line {number} is damaged ({error!r}); restore it from a backup"
                ) from error
