"""Engines that compute something else than the run published: an event of the run, as soon as anybody is seen to know.

Engines compare themselves with what was published when they load weights, and again while they serve (docs/design/inference.md).
The trainer looks at what they say after each step, and while it waits for the next one: with no engine left it would wait
for ever without a word.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from composer_web.core import inference
from composer_web.runs.engine_lag import lagging
from trainer.inference.contract import DeploymentStatus, InferenceError, ServerHealth

log = logging.getLogger(__name__)
WATCH_SECONDS = 10.0
PATIENCE = 2.0
"""Timeout of the inference server in seconds."""


class Event(Protocol):
    def __call__(
        self, level: Literal["info", "warning", "error"], message: str, data: Mapping[str, Any] | None = None
    ) -> None: ...


class EngineWatch:
    def __init__(self, deployment: str, event: Event, in_store: Callable[[int], bool], *, max_lag: int = 1) -> None:
        """`in_store` tells whether a version is published: engines may see it in the store before `published` is
        called. `max_lag` is the number of versions that an engine may lag behind the newest before it is reported."""
        self._deployment, self._event, self._in_store = deployment, event, in_store
        self._digests: dict[int, str] = {}
        """Digests of the versions published by this process."""
        self._lies: set[int] = set()
        self._differ: set[tuple[str, str]] = set()
        """Engines already reported as failing weight verification, as (address, error)."""
        self._max_lag = max_lag
        self._lagging: set[str] = set()
        """Addresses of engines reported as lagging, until they catch up."""
        self._looked = time.monotonic()

    def published(self, version: int, digest: str) -> None:
        self._digests = self._digests | {version: digest}  # whole at any moment: this comes from another thread

    def waiting(self) -> None:
        """Called often while a step waits for rollouts."""
        if time.monotonic() - self._looked >= WATCH_SECONDS:
            self.look()

    def look(self) -> tuple[ServerHealth, DeploymentStatus | None] | None:
        """Query the status of the server and of the run's deployment. None if the server does not answer: no data,
        not zero."""
        try:
            health = inference.health(timeout=PATIENCE)
        except InferenceError as error:
            log.info("no engine figures: %s", error)
            return None
        finally:
            self._looked = time.monotonic()
        served = next((d for d in health.deployments if d.name == self._deployment), None)
        if served is not None:
            self.saw(served)
        return health, served

    def saw(self, served: DeploymentStatus) -> None:
        """Report new problems of the run's deployment."""
        self._left_out(served)
        self._names_another(served)
        self._lags(served)

    def _left_out(self, served: DeploymentStatus) -> None:
        """Report engines that fail weight verification, once per error."""
        for engine in served.by_engine:
            if engine.proof != "differs" or (engine.url, engine.error) in self._differ:
                continue
            self._differ.add((engine.url, engine.error))
            others = sum(one.proof not in ("", "differs") for one in served.by_engine)
            rest = (
                f"{others} of {len(served.by_engine)} engines go on"
                if others
                else "no engine is left, so rollouts wait"
            )
            self._event(
                "error", f"an engine is left out: {engine.error}; {rest}", {"engine": engine.url or "the engine"}
            )

    def _lags(self, served: DeploymentStatus) -> None:
        """Report engines that lag behind the weight store, once until they catch up."""
        newest = max(self._digests, default=-1)
        late = lagging(served, newest=newest, max_lag=self._max_lag)
        self._lagging &= {engine.url for engine in late}
        for engine in late:
            if engine.url not in self._lagging:
                self._lagging.add(engine.url)
                who = f"the engine {engine.url}" if engine.url else "the engine"
                self._event(
                    "error",
                    f"{who} serves version {engine.version} and {newest} is published: rollouts go to others or wait for it; "
                    f"look at its log and at its way to the weight store{': ' + engine.error if engine.error else ''}",
                    {"engine": engine.url or "the engine", "version": engine.version, "published": newest},
                )

    def _names_another(self, served: DeploymentStatus) -> None:
        """Report engines whose weights do not match the version that they name, once per version."""
        if served.version in self._lies:
            return
        known = self._digests.get(served.version)
        newest = max(self._digests, default=-1)
        if known is not None and served.digest and served.digest != known:
            wrong = f"other weights (digest {served.digest[:19]}, published {known[:19]})"
        elif self._digests and served.version > newest and not self._in_store(served.version):
            wrong = f"a version that was never published (the newest is {newest})"
        else:
            return
        self._lies.add(served.version)
        self._event(
            "error", f"the engine says that it serves version {served.version} and holds {wrong}; remove its deployment"
        )
