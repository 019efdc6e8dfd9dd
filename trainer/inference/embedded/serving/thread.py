"""The engine thread: serves deployments round-robin, runs control work between steps, and measures its load.

When idle it prepares memory for future requests, one piece at a time, so a new request waits for at most one piece.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Runner
from trainer.inference.errors import ServerError, Unavailable

log = logging.getLogger(__name__)
T = TypeVar("T")

EXPIRE_EVERY = 0.05
WINDOW_SECONDS = 10.0


class EngineThread:
    def __init__(self) -> None:
        self.runners: dict[str, Runner] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._before_step: deque[Callable[[], None]] = deque()
        """Callbacks that complete work done between steps; they run when the next step may begin."""
        self._wake = threading.Condition()
        self._stopping = False
        self._window: deque[tuple[float, float, int]] = deque()
        self.busy_seconds, self.sampled_tokens = 0.0, 0
        self._thread = threading.Thread(target=self.serve, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Fail remaining requests with `unavailable` and end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, runner: Runner, job: Job) -> None:
        self._post(lambda: runner.submit(job))

    def call(self, work: Callable[[], T], *, then: Callable[[], None] | None = None) -> Future[T]:
        """Run `work` between two steps, and `then` after all such work, when the next step may begin."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return  # nobody waits for it any more
            try:
                made = work()
            except Exception as error:  # noqa: BLE001 - handed to whoever asked
                future.set_exception(error)
                return
            if then is None:
                future.set_result(made)
            else:
                self._before_step.append(lambda: end(then, made))

        def end(then: Callable[[], None], made: T) -> None:
            then()
            future.set_result(made)

        self._post(run)
        return future

    def load(self) -> tuple[float, float]:
        """Busy share and sampled tokens per second of the last ten seconds."""
        horizon = time.monotonic() - WINDOW_SECONDS
        recent = [entry for entry in list(self._window) if entry[0] >= horizon]
        return (
            min(1.0, sum(seconds for _, seconds, _ in recent) / WINDOW_SECONDS),
            sum(tokens for _, _, tokens in recent) / WINDOW_SECONDS,
        )

    def _post(self, work: Callable[[], None]) -> None:
        with self._wake:
            if self._stopping:
                raise Unavailable("the server is stopping; retry in a moment")
            self._inbox.append(work)
            self._wake.notify()

    def serve(self) -> None:
        expired = 0.0
        while not self._stopping:
            self._between()
            now = time.monotonic()
            if now - expired >= EXPIRE_EVERY:
                expired = now
                self._tend(now)
            if not self._step_all() and not self._prepare():
                with self._wake:
                    if not self._inbox and not self._stopping:
                        stuck = any(runner.busy for runner in self.runners.values())
                        self._wake.wait(EXPIRE_EVERY if stuck else None)
        self._between()
        for runner in self.runners.values():
            runner.fail_all(Unavailable("the server is stopping; retry in a moment"))

    def _between(self) -> None:
        for waiting in (self._inbox, self._before_step):
            while waiting:
                waiting.popleft()()

    # Methods of their own, because a variable of `serve` would keep the cache of a removed deployment while it waits.

    def _tend(self, now: float) -> None:
        for runner in self.runners.values():
            runner.expire(now)
            runner.look(now)

    def _step_all(self) -> bool:
        stepped = [self._step(name, runner) for name, runner in list(self.runners.items())]
        return any(stepped)

    def _prepare(self) -> bool:
        return any(runner.prepare() for runner in self.runners.values())

    def _step(self, name: str, runner: Runner) -> bool:
        began = time.monotonic()
        try:
            tokens = runner.step()
        except Exception as error:  # a failed step must not take the other deployments with it
            log.exception("step of deployment %s failed", name)
            runner.fail_all(ServerError(f"a step of deployment {name} failed ({error}); see the server's log"))
            return True
        if tokens < 0:
            return False
        ended = time.monotonic()
        self._window.append((ended, ended - began, tokens))
        self.busy_seconds += ended - began
        self.sampled_tokens += tokens
        while self._window and self._window[0][0] < ended - WINDOW_SECONDS:
            self._window.popleft()
        return True
