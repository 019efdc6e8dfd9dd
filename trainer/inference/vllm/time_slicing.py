"""One vLLM server and the deployments that share it.

A vLLM server holds one set of weights, so its deployments take turns. While one holds the server, requests for the
others wait. At the end of a turn, running requests finish and the server loads other weights. New versions of the
active deployment are swapped in flight, between two tokens of running requests. This file decides which deployment
holds the server; `engine_state.py` manages the weights in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from trainer.inference.contract import GenerateRequest, GenerateResponse, ServerStatus, SyncTimings
from trainer.inference.discovery import ReplicaSpec
from trainer.inference.errors import DeploymentMoved, PausedTooLong, QueueFull, ServerError, SyncFailed, Unavailable
from trainer.inference.verify_weights import AGAIN_SECONDS, WeightMismatch
from trainer.inference.vllm.api import VllmApi, WeightsLost
from trainer.inference.vllm.deployment import Deployment
from trainer.inference.vllm.engine_state import EngineState
from trainer.weights import WeightError

log = logging.getLogger(__name__)


class Worker:
    def __init__(
        self,
        spec: ReplicaSpec,
        *,
        scratch: Path,
        turn_seconds: float,
        poll_seconds: float,
        max_queue: int,
        verify_seconds: float = AGAIN_SECONDS,
    ) -> None:
        self.spec = spec
        self.draining = False
        """Removed from the list: running requests finish, its deployments move elsewhere."""
        self.api = VllmApi(spec.url)
        self.turn_seconds = turn_seconds
        self.poll_seconds = poll_seconds
        self.max_queue = max_queue
        self.placed: list[Deployment] = []
        self._wanted_elsewhere: set[Deployment] = set()
        self._here: Counter[Deployment] = Counter()
        """Requests in progress, including those of deployments that moved elsewhere meanwhile."""
        self.error = "not asked yet"
        self.engine_state = EngineState(self.api, scratch, verify_seconds=verify_seconds, changed=self._signal)
        self._turn_began = 0.0
        self._changing = asyncio.Lock()
        """Serialises changes of the server's weights."""
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()

    # -- requests -------------------------------------------------------------------------------------

    async def generate(self, deployment: Deployment, request: GenerateRequest, *, until: float) -> GenerateResponse:
        """Generate one response; may be cancelled. Raises ServerError. `until`: when a partial one must be there, by the
        event loop's clock."""
        async with self._turn_of(deployment):
            try:
                answer = await self.engine_state.generate(request, until=until)
            except Unavailable as error:
                self._lost(str(error), known=not isinstance(error, WeightsLost))
                raise
            await self.engine_state.wait_verified()
            if deployment.differs:
                raise WeightMismatch(deployment.error)
            if answer.finish_reason == "abort" and deployment.paused:  # its time is not the policy's
                raise self.why_waiting(deployment, request)
            deployment.generated += len(answer.token_ids)
            deployment.read += len(request.prompt_ids)
            deployment.reused += answer.reused_tokens
            return answer

    @contextlib.asynccontextmanager
    async def _turn_of(self, deployment: Deployment) -> AsyncIterator[None]:
        """Hold the server with the weights of `deployment` (or newer ones of it) inside the block. Raises QueueFull."""
        if deployment.waiting >= self.max_queue:
            raise QueueFull(f"{deployment.waiting} requests wait for {deployment.name!r}; try again later")
        if deployment.waiting == 0:
            deployment.asked_at = time.monotonic()
        deployment.waiting += 1
        try:
            while not self.engine_state.serves(deployment):
                if deployment.differs:
                    raise WeightMismatch(deployment.error)
                if deployment not in self.placed:
                    raise DeploymentMoved(f"deployment {deployment.name!r} is not on {self.api.url} any more")
                if self._held is not deployment:
                    self._wake.set()
                await self._changed.wait()
        finally:
            deployment.waiting -= 1
        deployment.running += 1
        self._here[deployment] += 1
        try:
            yield
        finally:
            deployment.running -= 1
            self._here[deployment] -= 1
            self._here += Counter()  # forgets what is at 0
            self._signal()

    @property
    def _held(self) -> Deployment | None:
        return self.engine_state.deployment

    @property
    def running(self) -> int:
        return self._here.total()

    def why_waiting(self, deployment: Deployment, request: GenerateRequest) -> ServerError:
        """Error for a request that passed its deadline without an answer."""
        if deployment.paused:
            return PausedTooLong(f"deployment {deployment.name!r} is paused; resume it")
        problem = deployment.error or self.error
        if problem:
            return Unavailable(f"deployment {deployment.name!r}: {problem}")
        seconds = f"{request.timeout_seconds:.3g}"
        return Unavailable(f"deployment {deployment.name!r} got no turn on {self.api.url} within {seconds} s")

    # -- the loop -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Loop forever: watch the server, assign turns, follow weight stores."""
        while True:
            try:
                async with self._changing:  # in the middle of a load nobody can tell what the server holds
                    self._let_go()
                    await self._watch()
                    await self._give_turn()
                    await self._follow()
                    await self.engine_state.verify_again()
            except (SyncFailed, WeightMismatch):
                self._signal()  # noted with its deployment; the server itself answers
            except ServerError as error:
                self._lost(str(error))
            except Exception as error:
                # A defect must not leave requests waiting for ever without a word.
                log.exception("server %s", self.api.url)
                self._lost(f"{type(error).__name__}: {error}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.poll_seconds):  # 3.11's wait_for may swallow a cancellation
                    await self._wake.wait()
            self._wake.clear()

    async def _watch(self) -> None:
        """Poll the server; a restarted process may compute correctly where the previous one did not."""
        if await self.engine_state.watch():
            for deployment in self.placed:
                deployment.refused = ""
        if self.error:
            log.info("server %s answers", self.api.url)
        self.error = ""

    async def _give_turn(self) -> None:
        target = self._next()
        if target is None or target is self._held:
            return
        if not target.ready:
            return
        self.engine_state.admitting = False
        if self.engine_state.deployment is not None:
            await self._run_dry(self.engine_state.deployment)
        self.engine_state.vacate()
        if self.draining:
            return
        await self.engine_state.load(target, SyncTimings(version=target.version, kind="anchor"))
        self._turn_began = time.monotonic()

    def _next(self) -> Deployment | None:
        """Deployment with the next turn: the one that has waited longest, once the present turn is over."""
        now = time.monotonic()
        able = [d for d in self.placed if d.ready and not d.paused and not d.differs and d.retry_at <= now]
        if self._held is None:
            able.sort(key=lambda d: (d.waiting == 0, d.asked_at))
            return able[0] if able else None
        asking = [d for d in able if d.waiting and d is not self._held]
        stuck = self._held.paused and self._here[self._held] > 0
        if not asking or stuck or now - self._turn_began < self.turn_seconds:
            return self._held
        return min(asking, key=lambda d: d.asked_at)

    async def _follow(self) -> None:
        """Fetch first weights and new versions; the deployment that holds the server gets new versions now."""
        for deployment in list(self.placed):
            if time.monotonic() < deployment.retry_at:
                continue
            try:
                if not deployment.ready:
                    await deployment.refresh(deployment.spec.version)
                    self._wake.set()
                elif deployment.behind():
                    timings = await deployment.refresh(None)
                    if deployment is self._held:
                        await self.engine_state.load(deployment, timings)
            except (ServerError, WeightError, OSError) as error:
                deployment.note(str(error))
                if isinstance(error, Unavailable):
                    raise

    async def _run_dry(self, deployment: Deployment) -> None:
        """Wait for requests in progress. Each has its own deadline, so this ends."""
        while self._here[deployment]:
            await self._changed.wait()

    # -- weights --------------------------------------------------------------------------------------

    async def update(self, deployment: Deployment, version: int | None) -> SyncTimings:
        """Move a deployment to `version` (None: newest) now, in flight if it holds the server. Raises SyncFailed."""
        async with self._changing:
            timings = await deployment.refresh(version)
            if deployment is self._held:
                await self.engine_state.load(deployment, timings)
            return timings

    async def settled(self, deployment: Deployment, seconds: float) -> None:
        """Wait until the deployment's weights are loaded or fail; does not wait for its turn. Raises WeightMismatch."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while deployment in self.placed and not deployment.error and self._held in (None, deployment):
                    if not deployment.ready or (self._held is deployment and self.engine_state.admitting):
                        break
                    await self._changed.wait()
        if deployment.differs:
            raise WeightMismatch(deployment.error)

    def _lost(self, problem: str, *, known: bool = True) -> None:
        """Admit no request until the server is seen to hold its weights."""
        if problem != self.error:
            log.warning("server %s: %s", self.api.url, problem)
        self.error = problem
        self.engine_state.lost(known=known)
        self._wake.set()

    # -- deployments ----------------------------------------------------------------------------------

    def place(self, deployment: Deployment) -> None:
        self.placed.append(deployment)
        self._wake.set()

    async def displace(self, deployment: Deployment) -> None:
        self.placed.remove(deployment)
        if self._held is deployment:
            if deployment.paused:
                await self.resume(deployment)
            self.engine_state.vacate()
        deployment.forget()
        self._signal()

    def spare(self) -> list[Deployment]:
        """Deployments that only wait for their turn here and may move to an idle server."""
        return [d for d in self.placed if d is not self._held and d not in self._wanted_elsewhere]

    def give(self, deployment: Deployment) -> None:
        """Request the release of a deployment that only waits here."""
        self._wanted_elsewhere.add(deployment)
        self._wake.set()

    def _let_go(self) -> None:
        """Release deployments that move elsewhere. Their requests in progress finish here; waiting ones get
        `DeploymentMoved`."""
        wanted, self._wanted_elsewhere = self._wanted_elsewhere, set()
        going = [d for d in self.placed if (d in wanted and d is not self._held) or self.draining]
        for deployment in going:
            if deployment.paused and self._here[deployment]:
                continue  # they can end only here, once it is resumed
            self.placed.remove(deployment)
            if self._held is deployment:
                self.engine_state.vacate()
            deployment.moved()
        if going:
            self._signal()

    async def pause(self, deployment: Deployment) -> None:
        deployment.paused = True
        if self._held is deployment:
            await self.api.pause()

    async def resume(self, deployment: Deployment) -> None:
        if self._held is deployment:
            await self.api.resume()
        deployment.paused = False
        if self._held is deployment:
            await self.engine_state.resumed(deployment)
        self._signal()

    def _signal(self) -> None:
        """Wake all waiting requests."""
        self._changed.set()
        self._changed = asyncio.Event()

    def status(self) -> ServerStatus:
        served, reason = self.engine_state.served, self.engine_state.updater.reason
        return ServerStatus(
            url=self.api.url,
            ok=not self.error,
            deployment=self._held.name if self._held else "",
            model=str(served.folder) if served else "",
            weights=f"whole checkpoints: {reason}" if reason else "changed words in place",
            leaving=self.draining,
            running=self.running,
            error=self.error,
        )
