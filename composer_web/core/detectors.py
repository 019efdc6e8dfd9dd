"""Detectors: conditions that need a person, such as a collapsed entropy or a full disk. One registry for all uses.

"Needs attention" on the home page asks every detector; each ships as an alert rule that is on by default
(`composer_web.alerts.rules.builtin`); a run's overview, API and command line ask those that look at one run (`about_run`). An
app registers its detectors in `AppConfig.ready()`, so this module imports no app. Detectors read through the managers of models
and so see the request's project only; without a request they see all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

T = TypeVar("T")
Severity = Literal["high", "medium", "low"]
ORDER: dict[Severity, int] = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True)
class Insight:
    """A condition that holds now. `about`: run:12, worker:NAME, disk or review:NAME, as alerts name it."""

    about: str
    title: str
    message: str
    """What was measured, with the numbers."""
    remedy: str
    url: str
    """Page that shows the cause."""
    run: str = ""
    """Name of the run that it is about, if it is about one."""


@dataclass(frozen=True)
class Detector:
    name: str
    title: str
    meaning: str
    """What it looks for and why that matters, for the help beside it."""
    severity: Severity
    look: Callable[[], Iterable[Insight]]
    of_run: Callable[[Any], Iterable[Insight]] | None = None
    """What it sees in one `Run`, which may have ended. None if it does not look at runs."""


@dataclass(frozen=True)
class Found:
    """An insight with its detector."""

    detector: Detector
    insight: Insight


_detectors: dict[str, Detector] = {}


def register(detector: Detector) -> None:
    """Add a detector. A second one of the same name is an error of the code."""
    assert detector.name not in _detectors, f"two detectors are called {detector.name!r}"
    _detectors[detector.name] = detector


def detectors() -> list[Detector]:
    """All of them, the most severe first."""
    return sorted(_detectors.values(), key=lambda detector: (ORDER[detector.severity], detector.title))


def detector(name: str) -> Detector | None:
    return _detectors.get(name)


def found() -> list[Found]:
    """What holds now, the most severe first."""
    with sharing():
        return [Found(one, insight) for one in detectors() for insight in one.look()]


def about_run(run: Any) -> list[Found]:
    """What holds of one `Run`, the most severe first."""
    with sharing():
        return [Found(one, insight) for one in detectors() if one.of_run is not None for insight in one.of_run(run)]


_reads: ContextVar[dict[str, Any] | None] = ContextVar("detector_reads", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Within this block, detectors share what they read by `shared`."""
    token = _reads.set({})
    try:
        yield
    finally:
        _reads.reset(token)


def shared(name: str, read: Callable[[], T]) -> T:
    """What `read` returns; within `sharing` it is called once for each `name`."""
    reads = _reads.get()
    if reads is None:
        return read()
    if name not in reads:
        reads[name] = read()
    known: T = reads[name]
    return known
