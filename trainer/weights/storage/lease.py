"""The right to write to a bucket: an object, each change of which is conditional on what it was before.

Its owner renews it for as long as it works, and gives it back by marking it free: nobody ever deletes it, so that nobody can
delete another's. Who finds it old takes it over. How old it is says the store's own clock, in one answer, so that the clocks
of machines need not agree; the owner counts from before it asked, and so knows of its end before anybody else may use it.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from threading import Event, Lock, Thread
from typing import Any

from pydantic import BaseModel, ValidationError

from trainer.errors import BlobChanged, BlobMissing, LeaseLost, StoreBusy, StoreUnavailable, WeightError
from trainer.weights.storage.s3 import named

LEASE_SECONDS = 60.0
"""What a killed publisher holds others up for. Renewal is tried after a third of it, then again and again."""
_DATES = 1.0
"""Seconds by which the difference of two HTTP dates can be wrong."""
_AGAIN_SECONDS = 0.5


class Note(BaseModel):
    """What the object says. No two that were ever written are alike, so that its ETag stands for it."""

    owner: str
    holder: str = "unknown"
    """The owner, for a person."""
    seconds: float = LEASE_SECONDS
    turn: int = 0
    free: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    note: Note
    etag: str
    age: float
    """Seconds since it was written, by the store's clock."""


class Lease:
    def __init__(self, client: Any, bucket: str, key: str, *, seconds: float) -> None:
        self._client, self._bucket, self._key = client, bucket, key
        self._place = f"s3://{bucket}/{key}"
        holder = f"{socket.gethostname()}, process {os.getpid()}"
        self._note = Note(owner=uuid.uuid4().hex, holder=holder, seconds=seconds)
        self._as_it_was: dict[str, str] = {}
        """What the next note is conditional on: that the object is what we know of it."""
        self._until = 0.0
        self._problem: WeightError | None = None
        self._one_at_a_time = Lock()
        self._over = Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises StoreBusy at once when another has it, StoreUnavailable."""
        self._take()
        renewal = Thread(target=self._keep, name="weights-lease", daemon=True)
        renewal.start()
        try:
            yield
        finally:
            self._over.set()
            renewal.join()
            with suppress(WeightError):  # lost: nothing to give back; out of reach: it ends by itself
                self._write(free=True)

    def check(self) -> None:
        """Raises LeaseLost once another may have taken it. Asks nobody."""
        if _now() >= self._until:
            why = f" ({self._problem})" if self._problem else ""
            raise LeaseLost(
                f"the right to write under {self._place} was lost{why}: nothing more was written; see that one process alone "
                "publishes there and that it reaches the store, then resume"
            )

    def prove(self) -> None:
        """Renews it now, for as long as it lasts. Raises LeaseLost."""
        while True:
            self.check()
            try:
                return self._write()
            except StoreUnavailable as error:
                self._problem = error
                if self._over.wait(_AGAIN_SECONDS):
                    return
            except (BlobChanged, BlobMissing) as error:
                self._problem, self._until = error, 0.0

    def _keep(self) -> None:
        while not self._over.wait(self._note.seconds / 3):
            try:
                self.prove()
            except LeaseLost:  # whoever writes next hears of it
                return

    def _take(self) -> None:
        found = self._read()
        if found and not found.note.free and found.age <= found.note.seconds + _DATES:
            raise StoreBusy(
                f"another process ({found.note.holder}) is writing under {self._place}; stop it first (a killed one is "
                f"forgotten after {found.note.seconds:g} s)"
            )
        self._as_it_was = {"IfMatch": found.etag} if found else {"IfNoneMatch": "*"}
        try:
            self._write()
        except (BlobChanged, BlobMissing) as error:
            raise StoreBusy(f"another process began to write under {self._place} just now; stop it first") from error

    def _write(self, *, free: bool = False) -> None:
        """The next note. Raises BlobChanged, BlobMissing (another's lies there, or none), StoreUnavailable."""
        with self._one_at_a_time:
            began = _now()
            self._note = self._note.model_copy(update={"turn": self._note.turn + 1, "free": free})
            body = self._note.model_dump_json().encode()
            try:
                with named(self._place, "written"):
                    answer = self._client.put_object(Bucket=self._bucket, Key=self._key, Body=body, **self._as_it_was)
                etag, there = answer["ETag"], self._note
            except (BlobChanged, BlobMissing):
                found = self._read()
                if found is None or found.note.owner != self._note.owner:
                    raise
                etag, there = found.etag, found.note  # ours: an answer was lost on the way
            self._as_it_was = {"IfMatch": etag}
            if there != self._note:
                raise StoreUnavailable(f"weights at {self._place} could not be written: an older one came late")
            self._until = began + self._note.seconds

    def _read(self) -> Found | None:
        try:
            with named(self._place, "read"):
                answer = self._client.get_object(Bucket=self._bucket, Key=self._key)
                text = answer["Body"].read()
        except BlobMissing:
            return None
        try:
            note = Note.model_validate_json(text)
        except ValidationError as error:
            raise WeightError(
                f"{self._place} is not of this version of OpenComposer; see that nobody writes there, then remove it"
            ) from error
        asked = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return Found(note, answer["ETag"], (asked - answer["LastModified"]).total_seconds())


def _now() -> float:
    """Seconds, those during which the machine was asleep too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
