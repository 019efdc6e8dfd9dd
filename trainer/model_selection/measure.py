"""One measurement in a process of its own, so that whoever asked can end it, and lives on when it dies.

    python -m trainer.model_selection.measure

reads one line of JSON (`Asked`) and writes lines of JSON (`Told`): how far it is, and at the end what was found or why
nothing was. It ends by itself when its standard input closes: whoever asked is gone then.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from trainer.model_selection.codebase import CHANGES, ITEMS, MAX_BYTES, WINDOW
from trainer.model_selection.scores import Questions, Selection

APART = 0.5
"""Seconds between two lines that only say how far it is."""


class Asked(BaseModel):
    """Which policy folder on which codebase, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    folder: Path
    policy: str
    path: Path
    codebase: str
    commits: int | None = None
    since: str = ""
    window: int = WINDOW
    max_bytes: int = Field(default=MAX_BYTES, validation_alias=AliasChoices("max_bytes", "most_bytes"))
    items: int = ITEMS
    changes: int = CHANGES
    questions: Questions = "codebase"
    device: Literal["auto", "cpu", "cuda"] = "auto"


class Told(BaseModel):
    """One line of the answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    doing: str = ""
    share: float = 0.0
    found: Selection | None = None
    refused: str = ""
    """Why nothing was found, with the remedy."""


class Voice:
    """Writes lines, those of progress no faster than every APART seconds."""

    def __init__(self) -> None:
        self._last, self._at = "", 0.0

    def __call__(self, doing: str, share: float) -> None:
        now = time.monotonic()
        if doing != self._last or now - self._at >= APART:
            self._last, self._at = doing, now
            say(Told(doing=doing, share=share))


def say(told: Told) -> None:
    sys.stdout.write(told.model_dump_json() + "\n")
    sys.stdout.flush()


def _end_with(asker: int) -> None:
    """Runs until nobody holds the other end of standard input."""
    while os.read(asker, 1 << 12):
        pass
    os._exit(1)


def measured(asked: Asked) -> Told:
    from trainer.errors import StageError
    from trainer.model_selection.selection import asked_codebase, select
    from trainer.policy import PolicyUnreadable

    voice = Voice()
    voice("collects the files", 0.0)
    try:
        codebase = asked_codebase(
            asked.path, commits=asked.commits, since=asked.since, window=asked.window,
            max_bytes=asked.max_bytes, items=asked.items, name=asked.codebase,
        )  # fmt: skip
        found = select(
            asked.folder, codebase, name=asked.policy, window=asked.window, items=asked.items, changes=asked.changes,
            questions=asked.questions, device=asked.device, said=voice,
        )  # fmt: skip
    except (ValueError, StageError, PolicyUnreadable) as error:  # each names what was found, and the remedy
        return Told(refused=str(error))
    return Told(found=found)


def main() -> None:
    asked = Asked.model_validate_json(sys.stdin.readline())
    threading.Thread(target=_end_with, args=(sys.stdin.fileno(),), daemon=True).start()
    say(measured(asked))


if __name__ == "__main__":
    main()
