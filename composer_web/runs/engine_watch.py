"""Engines that compute something else than the run published: an event of the run, as soon as anybody is seen to know.

Engines compare themselves with what was published when they load weights, and again while they serve (docs/inference.md).
The trainer looks at what they say after each step, and while it waits for the next one: with no engine left it would wait
for ever without a word.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from composer_web.ops import inference
from trainer.inference.contract import DeploymentStatus, InferenceError, ServerHealth

log = logging.getLogger(__name__)
WATCH_SECONDS = 10.0
PATIENCE = 2.0
"""Seconds that the inference server has to answer."""


class Event(Protocol):
    def __call__(
        self, level: Literal["info", "warning", "error"], message: str, data: Mapping[str, Any] | None = None
    ) -> None: ...


class EngineWatch:
    def __init__(self, deployment: str, event: Event, in_store: Callable[[int], bool]) -> None:
        """`in_store` says of a version whether it is published: engines see it there, maybe before `published` is called."""
        self._deployment, self._event, self._in_store = deployment, event, in_store
        self._digests: dict[int, str] = {}
        """Of the versions published by this process."""
        self._lies: set[int] = set()
        self._differ: set[tuple[str, str]] = set()
        """Engines that were reported for what they compute, by address and words."""
        self._looked = time.monotonic()

    def published(self, version: int, digest: str) -> None:
        self._digests = self._digests | {version: digest}  # whole at any moment: this comes from another thread

    def waiting(self) -> None:
        """Called often while a step waits for rollouts."""
        if time.monotonic() - self._looked >= WATCH_SECONDS:
            self.look()

    def look(self) -> tuple[ServerHealth, DeploymentStatus | None] | None:
        """What the server says, and of the run's deployment there; None while it does not answer: absent, not zero."""
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
        """Tell what is wrong with the run's deployment and was not told yet."""
        self._left_out(served)
        self._names_another(served)

    def _left_out(self, served: DeploymentStatus) -> None:
        """Those that were seen to compute something else, each once for its words."""
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

    def _names_another(self, served: DeploymentStatus) -> None:
        """One that names a version and holds other weights, once a version."""
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
