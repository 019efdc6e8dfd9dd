"""A run as it goes: state, step, metrics and events until it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oc.client import PAGE, Client

FINAL = ("finished", "failed", "cancelled")
POLL = 1.0
"""Seconds between two looks; each is two requests."""


class FollowTimeout(Exception):
    """The run did not end in time. The message says where it was."""


@dataclass(frozen=True)
class Seen:
    """One thing to print: words for people, and the same as data."""

    words: str
    data: dict[str, Any]


def follow(client: Client, pk: int, *, metrics: Sequence[str], timeout: float, poll: float = POLL) -> Iterator[Seen]:
    """What is new at each look, until the run has ended. Raises FollowTimeout, ApiError, Unreachable."""
    end = time.monotonic() + timeout
    step, event, state = -1, 0, ""
    while True:
        found = client.runs.get_metrics(pk, name=metrics, after=step, buckets=2000)
        fresh: dict[int, dict[str, float]] = {}
        for name, buckets in found.series.items():
            for bucket in buckets:
                fresh.setdefault(bucket.last, {})[name] = bucket.value
        for at, values in sorted(fresh.items()):
            step = max(step, at)
            words = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
            yield Seen(f"step {at}  {words}", {"step": at, "metrics": values})
        for one in sorted(client.runs.get_events(pk, after=event, limit=PAGE), key=lambda one: one.id):
            event = one.id
            yield Seen(f"{one.level}: {one.message}", {"event": one.model_dump(mode="json")})
        if found.state != state:
            state = found.state
            yield Seen(f"{state} at step {found.step}", {"state": state, "step": found.step})
        if state in FINAL:
            return
        if time.monotonic() > end:
            raise FollowTimeout(
                f"run {pk} is {state} at step {found.step} after {timeout:.0f} s; it goes on without us"
            )
        time.sleep(poll)
