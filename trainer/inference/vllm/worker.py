"""One vLLM server and the deployments that share it.

A vLLM server holds one set of weights. The deployments that are placed on it take turns: while one holds it, requests
for the others wait; when a turn is over, the server runs dry and is given other weights. New versions of the
deployment that holds it are swapped in flight, between two tokens of the requests that run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from trainer.inference.contract import GenerateRequest, GenerateResponse, Proof, ServerStatus, SyncTimings
from trainer.inference.errors import Displaced, PausedTooLong, QueueFull, ServerError, SyncFailed, Unavailable
from trainer.inference.filling import Filling
from trainer.inference.members import MemberSpec
from trainer.inference.proving import AGAIN_PATIENCE, AGAIN_SECONDS, EngineDiffers, meanwhile
from trainer.inference.vllm.api import Served, VllmApi, WeightsLost
from trainer.inference.vllm.comparing import compare
from trainer.inference.vllm.deployment import Deployment, misfit, read_config
from trainer.inference.vllm.moving import Clock, Mover
from trainer.weights import WeightError

log = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
UNTOUCHED = "default"
"""What a vLLM says that it holds, until it is told."""


class Worker:
    def __init__(
        self,
        spec: MemberSpec,
        *,
        scratch: Path,
        turn_seconds: float,
        poll_seconds: float,
        max_queue: int,
        prove_seconds: float = AGAIN_SECONDS,
    ) -> None:
        self.spec = spec
        self.draining = False
        """It left the list: what runs there ends, its deployments go elsewhere."""
        self.api = VllmApi(spec.url)
        self.turn_seconds = turn_seconds
        self.poll_seconds = poll_seconds
        self.prove_seconds = prove_seconds
        self.max_queue = max_queue
        self.placed: list[Deployment] = []
        self._wanted_elsewhere: set[Deployment] = set()
        self._here: Counter[Deployment] = Counter()
        """Requests in progress; also of deployments that went elsewhere meanwhile."""
        self.served: Served | None = None
        self.error = "not asked yet"
        self.filling = Filling()
        self.mover = Mover(self.api, scratch)
        self._held: Deployment | None = None
        self._label = ""
        """What the server was last told that it holds; empty while nobody can know."""
        self._preempted: int | None = None
        """As its counter stood when it was looked at last."""
        self._since = ("", -1)
        """Label and version that requests began under: kept until the next load has ended."""
        self._admitting = False
        self._turn_began = 0.0
        self._proving: asyncio.Event | None = None
        """Set when the weights that were loaded last have been proven, or refused."""
        self._changing = asyncio.Lock()
        """One change of the server's weights at a time."""
        self._proof: Proof = ""
        """Of what it loaded whole last."""
        self._well_at = 0.0
        """When it was last seen to compute what was published, or asked in vain."""
        self._unproven = False
        """Its deployment was paused when it was loaded, so that it could not be asked."""
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()

    # -- requests -------------------------------------------------------------------------------------

    async def generate(self, deployment: Deployment, request: GenerateRequest) -> GenerateResponse:
        """Raises ServerError in words; may be cancelled."""
        async with self._turn_of(deployment):
            assert self.served is not None
            salt, before = self._since
            try:
                answer = await self.api.generate(request, model=self.served.name, salt=salt, before=before)
            except Unavailable as error:
                self._lost(str(error), known=not isinstance(error, WeightsLost))
                raise
            if self._proving is not None:  # its last tokens may be of weights that are not proven yet
                await self._proving.wait()
            if deployment.differs:
                raise EngineDiffers(deployment.error)
            deployment.generated += len(answer.token_ids)
            deployment.read += len(request.prompt_ids)
            deployment.reused += answer.reused_tokens
            return answer

    @contextlib.asynccontextmanager
    async def _turn_of(self, deployment: Deployment) -> AsyncIterator[None]:
        """Inside, the server holds the weights of `deployment` (or newer ones of it). Raises QueueFull."""
        if deployment.waiting >= self.max_queue:
            raise QueueFull(f"{deployment.waiting} requests wait for {deployment.name!r}; try again later")
        if deployment.waiting == 0:
            deployment.asked_at = time.monotonic()
        deployment.waiting += 1
        try:
            while not (self._admitting and self._held is deployment and not deployment.paused):
                if deployment.differs:
                    raise EngineDiffers(deployment.error)
                if deployment not in self.placed:
                    raise Displaced(f"deployment {deployment.name!r} is not on {self.api.url} any more")
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
    def running(self) -> int:
        return self._here.total()

    def why_waiting(self, deployment: Deployment, request: GenerateRequest) -> ServerError:
        """What a request that passed its deadline without an answer is told."""
        if deployment.paused:
            return PausedTooLong(f"deployment {deployment.name!r} is paused; resume it")
        problem = deployment.error or self.error
        if problem:
            return Unavailable(f"deployment {deployment.name!r}: {problem}")
        seconds = f"{request.timeout_seconds:.3g}"
        return Unavailable(f"deployment {deployment.name!r} got no turn on {self.api.url} within {seconds} s")

    # -- the loop -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """For ever: watches the server, gives turns, follows weight stores."""
        while True:
            try:
                async with self._changing:  # in the middle of a load nobody can tell what the server holds
                    self._let_go()
                    await self._watch()
                    await self._give_turn()
                    await self._follow()
                    await self._prove_again()
            except (SyncFailed, EngineDiffers):
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

    async def look(self) -> None:
        """Learn what the server is. Raises Unavailable."""
        self.served = await self.api.served()

    async def _watch(self) -> None:
        """Whether it answers and still holds what it was given: a server that was started again does not."""
        if self.served is None:
            await self.look()
        holds = await self.api.held()
        room = await self.api.room()
        if room.used is not None:
            self.filling.saw(room.used, time.monotonic())
        self._count_preemptions(room.preemptions)
        if holds == UNTOUCHED:  # another process than the one that computed something else
            for deployment in self.placed:
                deployment.refused = ""
        if self.error:
            log.info("server %s answers", self.api.url)
        self.error = ""
        if not self._label or holds != self._label:
            self._held, self._label, self._admitting = None, "", False
            self.mover.lost()
            self.served = await self.api.served()
        elif self._held is not None and not self._admitting:
            self._admitting = True
            self._signal()

    def _count_preemptions(self, total: int | None) -> None:
        """Those since the last look are of the deployment that holds the server; a counter that fell began anew."""
        if total is None:
            return
        before, self._preempted = self._preempted, total
        if before is not None and self._held is not None:
            self._held.preemptions += total - before if total >= before else total

    async def _give_turn(self) -> None:
        target = self._next()
        if target is None or target is self._held:
            return
        if not target.ready:
            return
        self._admitting = False
        if self._held is not None:
            await self._run_dry(self._held)
        self._held = None
        if self.draining:
            return
        await self._load(target, SyncTimings(version=target.version, kind="anchor"))
        self._turn_began = time.monotonic()

    def _next(self) -> Deployment | None:
        """Whose turn it is: the one that has waited longest once the present turn is over."""
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
        """First weights for deployments that have none yet, and new versions; the one that holds the server gets them now."""
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
                        await self._load(deployment, timings)
            except (ServerError, WeightError, OSError) as error:
                self._note(deployment, str(error))
                if isinstance(error, Unavailable):
                    raise

    @staticmethod
    def _note(deployment: Deployment, problem: str) -> None:
        """Shown with the deployment, and tried again later."""
        if problem != deployment.error:
            log.warning("deployment %s: %s", deployment.name, problem)
        deployment.error = problem
        deployment.retry_at = time.monotonic() + RETRY_SECONDS

    async def _run_dry(self, deployment: Deployment) -> None:
        """Each request in progress has a deadline of its own, so this ends."""
        while self._here[deployment]:
            await self._changed.wait()

    # -- weights --------------------------------------------------------------------------------------

    async def update(self, deployment: Deployment, version: int | None) -> SyncTimings:
        """Move a deployment to `version` (None: newest) now, in flight if it holds the server. Raises SyncFailed."""
        async with self._changing:
            timings = await deployment.refresh(version)
            if deployment is self._held and deployment.label != self._label:
                await self._load(deployment, timings)
            return timings

    async def _load(self, deployment: Deployment, timings: SyncTimings) -> None:
        """Give the server the weights at hand. Generation stands still from `wait` to `resume`."""
        clock = Clock()
        prepared: Path | None = None
        self._proving = proving = asyncio.Event()
        try:
            prepared = await self.mover.prepare(deployment)
            timings.decode += clock.lap()
            self._label = ""  # until the load has ended well, nobody knows what the server holds
            await self.api.pause()
            timings.wait = clock.lap()
            timings.patched = await self.mover.apply(deployment, prepared)
            timings.apply = timings.pause = clock.lap()
            if not deployment.paused:
                await self.api.resume()
            timings.resume = clock.lap()
            if timings.patched:  # words of weights that were proven, each proven to be the published one
                deployment.proof = self._proof
            else:
                await self._prove(deployment)
        except ServerError as error:
            self._note(deployment, str(error))
            raise
        finally:
            self.mover.clear(deployment, prepared)
            proving.set()
        self._held, self._label, self._admitting = deployment, deployment.label, True
        self._since = (deployment.label, deployment.version)
        deployment.error, deployment.refused, deployment.last_sync = "", "", timings
        how = "in place" if timings.patched else "whole"
        log.info("server %s holds %s (%s, %.2f s still)", self.api.url, deployment.label, how, timings.pause)
        self._signal()

    async def _prove_again(self) -> None:
        """In the middle of a step: what it computed well it may compute wrongly now. Raises EngineDiffers."""
        deployment, before = self._held, self._well_at
        due = time.monotonic() >= before + self.prove_seconds
        if not due or deployment is None or not self._admitting or deployment.paused or deployment.proof != "proven":
            return
        self._well_at = time.monotonic()
        try:
            async with asyncio.timeout(AGAIN_PATIENCE):
                await self._compare(deployment, f"{deployment.label}~{before:.0f}")  # not what its prefix cache has
        except TimeoutError:
            log.info("server %s is too busy to be compared again; later", self.api.url)
        except EngineDiffers as error:
            found = meanwhile(error, time.monotonic() - before)
            self._note(deployment, str(found))
            raise found from error

    async def _prove(self, deployment: Deployment) -> None:
        """That the server answered 200 to a load proves nothing: it must say what the weights say. Raises EngineDiffers."""
        self._proof = ""
        if deployment.paused:  # nothing is answered meanwhile; `resume` comes back to it
            self._unproven = True
            return
        self._unproven = False
        self._proof = await self._compare(deployment, deployment.label)
        deployment.proof, self._well_at = self._proof, time.monotonic()

    async def _compare(self, deployment: Deployment, salt: str) -> Proof:
        """Raises EngineDiffers: then nobody is answered with these weights."""
        assert self.served is not None
        try:
            return await compare(self.api, self.served, deployment, salt=salt)
        except EngineDiffers:
            deployment.refused = deployment.label
            self._held, self._label, self._admitting = None, "", False
            self.mover.lost()
            self._signal()
            raise

    async def settled(self, deployment: Deployment, seconds: float) -> None:
        """Until the server has the weights of a deployment, or says why not; not for its turn. Raises EngineDiffers."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while deployment in self.placed and not deployment.error and self._held in (None, deployment):
                    if not deployment.ready or (self._held is deployment and self._admitting):
                        break
                    await self._changed.wait()
        if deployment.differs:
            raise EngineDiffers(deployment.error)

    def _lost(self, problem: str, *, known: bool = True) -> None:
        """Nobody is admitted until the server has been seen to hold what it was given."""
        if problem != self.error:
            log.warning("server %s: %s", self.api.url, problem)
        self.error, self._admitting = problem, False
        if not known:
            self._label = ""
        self._wake.set()

    # -- deployments ----------------------------------------------------------------------------------

    def misfit(self, deployment: Deployment) -> str:
        """Why this server cannot hold a policy; empty when it can. Raises UnsupportedModel for a broken folder."""
        assert self.served is not None
        wanted = read_config(Path(deployment.spec.policy_dir))
        folder = self.served.folder
        if not (folder / "config.json").is_file():
            return (
                f"its --model {folder} is no folder that is seen here; mount the data folder at the same path on both"
            )
        return misfit(wanted, read_config(folder))

    def place(self, deployment: Deployment) -> None:
        self.placed.append(deployment)
        self._wake.set()

    async def displace(self, deployment: Deployment) -> None:
        self.placed.remove(deployment)
        if self._held is deployment:
            if deployment.paused:
                await self.resume(deployment)
            self._held, self._admitting = None, False
        deployment.forget()
        self._signal()

    def spare(self) -> list[Deployment]:
        """What only waits for its turn here, and may as well go to a server that has nothing to do."""
        return [d for d in self.placed if d is not self._held and d not in self._wanted_elsewhere]

    def give(self, deployment: Deployment) -> None:
        """Ask it to let go of a deployment that only waits here."""
        self._wanted_elsewhere.add(deployment)
        self._wake.set()

    def _let_go(self) -> None:
        """Of what goes elsewhere. Its requests in progress end here; those that wait are told (`Displaced`)."""
        wanted, self._wanted_elsewhere = self._wanted_elsewhere, set()
        going = [d for d in self.placed if (d in wanted and d is not self._held) or self.draining]
        for deployment in going:
            if deployment.paused and self._here[deployment]:
                continue  # they can end only here, once it is resumed
            self.placed.remove(deployment)
            if self._held is deployment:
                self._held, self._admitting = None, False
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
        if self._held is deployment and self._unproven:
            await self._prove(deployment)
        self._signal()

    def _signal(self) -> None:
        """Everybody who waits looks again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def status(self) -> ServerStatus:
        return ServerStatus(
            url=self.api.url,
            ok=not self.error,
            deployment=self._held.name if self._held else "",
            model=str(self.served.folder) if self.served else "",
            weights=f"whole checkpoints: {self.mover.reason}" if self.mover.reason else "changed words in place",
            leaving=self.draining,
            running=self.running,
            error=self.error,
        )
