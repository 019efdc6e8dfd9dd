"""Requests of a study: lists searched by name, and waits that have a deadline and outlive a restart of the product."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from opencomposer import ApiError, Client, Unreachable
from scripts.study.errors import StudyError

POLL_SECONDS = 5.0
AWAY_SECONDS = 600.0
"""How long a product that does not answer is waited for."""
T = TypeVar("T", bound="Answer")


class Answer(BaseModel):
    """Fields of an answer that the study reads."""

    model_config = ConfigDict(extra="ignore")


class Job(Answer):
    """Anything that a worker carries out."""

    state: str
    failure: str = ""
    cause: str = ""
    why: str = ""

    @property
    def reason(self) -> str:
        return self.failure or self.cause or self.why or "no reason is recorded"


J = TypeVar("J", bound=Job)


class Requests:
    """`wait_seconds` is the deadline of each wait; `say` hears how far the work is."""

    def __init__(
        self, client: Client, *, wait_seconds: float, say: Callable[[str], None], poll: float = POLL_SECONDS
    ) -> None:
        self.client, self.say = client, say
        self._wait_seconds, self._poll = wait_seconds, poll

    def found(self, kind: type[T], path: str, **parts: Any) -> T | None:
        """The object at a path. None where there is none."""
        try:
            return kind.model_validate(self.client.get(path, **parts))
        except ApiError as error:
            if error.http_status == 404:
                return None
            raise

    def listed(self, kind: type[T], path: str, **query: Any) -> Iterator[T]:
        """Items of a list, newest first."""
        for item in self.client.pages(path, params=query):
            yield kind.model_validate(item)

    def wait(
        self,
        kind: type[J],
        path: str,
        *,
        what: str,
        good: Collection[str],
        bad: Collection[str],
        tell: Callable[[J], str],
        **parts: Any,
    ) -> J:
        """The job once its state is `good`. Raises StudyError: `bad`, or not there before the deadline."""
        end = time.monotonic() + self._wait_seconds
        away: float | None = None
        while True:
            try:
                job = kind.model_validate(self.client.get(path, **parts))
                away = None
            except Unreachable as error:
                away = away or time.monotonic()
                if time.monotonic() > away + AWAY_SECONDS:
                    raise StudyError(
                        what, f"the product has not answered for {AWAY_SECONDS:.0f} s", str(error)
                    ) from error
                time.sleep(self._poll)
                continue
            if job.state in good:
                return job
            if job.state in bad:
                raise StudyError(
                    what, f"it is {job.state}: {job.reason}", "Correct the cause, and run the study again."
                )
            self.say(tell(job))
            if time.monotonic() > end:
                hours = self._wait_seconds / 3600
                raise StudyError(
                    what,
                    f"it is {job.state} after {hours:.1f} hours",
                    "It goes on in the product: run the study again to wait for it.",
                )
            time.sleep(self._poll)
