"""What one vLLM server computes with: seen again and again, replaced, and proven to be what was published.

Nobody is admitted while the server is not known to hold what it was given: it may have been started again, or may be in
the middle of a load.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from trainer.inference.contract import GenerateRequest, GenerateResponse, Proof, SyncTimings
from trainer.inference.errors import ServerError
from trainer.inference.filling import Filling
from trainer.inference.proving import AGAIN_PATIENCE, EngineDiffers, meanwhile
from trainer.inference.vllm.api import Served, VllmApi
from trainer.inference.vllm.comparing import compare
from trainer.inference.vllm.deployment import Deployment, has_experts, misfit, read_config
from trainer.inference.vllm.moving import Mover

log = logging.getLogger(__name__)
UNTOUCHED = "default"
"""What a vLLM says that it holds, until it is told."""
WITHOUT_EXPERTS = (
    "sampling.routed_experts is on and it does not return the experts of its tokens, which the trainer is to repeat; start "
    "vLLM with --enable-return-routed-experts (on a GPU; compose: VLLM_ROUTED_EXPERTS=true), or set "
    "sampling.routed_experts to false and accept that the trainer routes by itself"
)


class Holding:
    def __init__(self, api: VllmApi, scratch: Path, *, prove_seconds: float, changed: Callable[[], None]) -> None:
        """`changed` is called when requests may go on, or must look again."""
        self.api = api
        self.mover = Mover(api, scratch)
        self.served: Served | None = None
        self._returns_experts: bool | None = None
        """Whether its answers name experts; None: it does not say, or was not asked."""
        self._asked = False
        """Since it was last seen to be away."""
        self.deployment: Deployment | None = None
        """Whose weights they are."""
        self.admitting = False
        self.filling = Filling()
        self.well_at = 0.0
        """When it was last seen to compute what was published, or asked in vain."""
        self.prove_seconds = prove_seconds
        self._changed = changed
        self._label = ""
        """What the server was last told that it holds; empty while nobody can know."""
        self._since = ("", -1)
        """Label and version that requests began under: kept until the next load has ended."""
        self._preempted: int | None = None
        """As its counter stood when it was looked at last."""
        self._proving: asyncio.Event | None = None
        """Set when the weights that were loaded last have been proven, or refused."""
        self._proof: Proof = ""
        """Of what it loaded whole last."""
        self._unproven = False
        """Its deployment was paused when it was loaded, so that it could not be asked."""

    def serves(self, deployment: Deployment) -> bool:
        """Whether a request to a deployment may go to the server now."""
        return self.admitting and self.deployment is deployment and not deployment.paused

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        """From the weights that it holds, which may be replaced by newer ones meanwhile. Raises ServerError."""
        assert self.served is not None
        salt, before = self._since
        return await self.api.generate(request, model=self.served.name, salt=salt, before=before)

    async def proven(self) -> None:
        """Until what was loaded last has been proven or refused: the last tokens of an answer may be of it."""
        if self._proving is not None:
            await self._proving.wait()

    def vacate(self) -> None:
        """Its deployment goes: the weights stay where they are, and nobody is answered with them."""
        self.deployment, self.admitting = None, False

    def lost(self, *, known: bool) -> None:
        """Nobody is admitted until it has been seen to hold what it was given; not `known`: it may hold something else."""
        self.admitting = self._asked = False
        if not known:
            self._label = ""

    # -- looking --------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Learn what the server is. Raises Unavailable."""
        self.served = await self.api.served()
        if not self._asked:
            routed = has_experts(read_config(self.served.folder)) if self._visible else False
            self._returns_experts = await self.api.returns_experts() if routed else None
            self._asked = True

    async def watch(self) -> bool:
        """Whether it answers and still holds what it was given. True: it is another process, which holds nothing of ours.

        Raises Unavailable."""
        if self.served is None:
            await self.look()
        holds = await self.api.held()
        room = await self.api.room()
        if room.used is not None:
            self.filling.saw(room.used, time.monotonic())
        self.count_preemptions(room.preemptions)
        if not self._label or holds != self._label:
            self._forget()
            await self.look()
        elif self.deployment is not None and not self.admitting:
            self.admitting = True
            self._changed()
        return holds == UNTOUCHED

    def count_preemptions(self, total: int | None) -> None:
        """Those since the last look are of the deployment that holds the server; a counter that fell began anew."""
        if total is None:
            return
        before, self._preempted = self._preempted, total
        if before is not None and self.deployment is not None:
            self.deployment.preemptions += total - before if total >= before else total

    def misfit(self, deployment: Deployment) -> str:
        """Why this server cannot hold a policy; empty when it can. Raises UnsupportedModel for a broken folder."""
        assert self.served is not None
        wanted = read_config(Path(deployment.spec.policy_dir))
        folder = self.served.folder
        if not self._visible:
            return (
                f"its --model {folder} is no folder that is seen here; mount the data folder at the same path on both"
            )
        if found := misfit(wanted, read_config(folder)):
            return f"{found}; start vLLM with --model on a policy of the same architecture"
        if deployment.spec.experts and has_experts(wanted) and self._returns_experts is False:
            return WITHOUT_EXPERTS
        return ""

    @property
    def _visible(self) -> bool:
        """Whether the folder that it was started with is seen here."""
        return self.served is not None and (self.served.folder / "config.json").is_file()

    def _forget(self) -> None:
        self.vacate()
        self._label = ""
        self.mover.lost()

    # -- other weights --------------------------------------------------------------------------------

    async def load(self, deployment: Deployment, timings: SyncTimings) -> None:
        """Give the server the weights at hand, if it has others. Requests in flight go on under the new ones."""
        if deployment is self.deployment and deployment.label == self._label:
            return
        began = time.perf_counter()
        prepared: Path | None = None
        self._proving = proving = asyncio.Event()
        try:
            prepared = await self.mover.prepare(deployment)
            asked = time.perf_counter()
            timings.decode += asked - began
            self._label = ""  # until the load has ended well, nobody knows what the server holds
            await self.api.pause()
            stood = time.perf_counter()
            timings.patched = await self.mover.apply(deployment, prepared)
            went_on = held = time.perf_counter()
            if not deployment.paused:
                await self.api.resume()
                went_on = time.perf_counter()
            timings.swapped(asked=asked, stood=stood, held=held, went_on=went_on)
            if timings.patched:  # words of weights that were proven, each proven to be the published one
                deployment.proof = self._proof
            else:
                await self._prove(deployment)
        except ServerError as error:
            deployment.note(str(error))
            raise
        finally:
            self.mover.clear(deployment, prepared)
            proving.set()
        self.deployment, self._label, self.admitting = deployment, deployment.label, True
        self._since = (deployment.label, deployment.version)
        deployment.error, deployment.refused, deployment.last_sync = "", "", timings
        how = "in place" if timings.patched else "whole"
        log.info("server %s holds %s (%s, %.2f s still)", self.api.url, deployment.label, how, timings.pause)
        self._changed()

    # -- proof ----------------------------------------------------------------------------------------

    async def prove_again(self) -> None:
        """In the middle of a step: what it computed well it may compute wrongly now. Raises EngineDiffers."""
        deployment, before = self.deployment, self.well_at
        due = time.monotonic() >= before + self.prove_seconds
        if not due or deployment is None or not self.serves(deployment) or deployment.proof != "proven":
            return
        self.well_at = time.monotonic()
        try:
            async with asyncio.timeout(AGAIN_PATIENCE):
                await self._compare(deployment, f"{deployment.label}~{before:.0f}")  # not what its prefix cache has
        except TimeoutError:
            log.info("server %s is too busy to be compared again; later", self.api.url)
        except EngineDiffers as error:
            found = meanwhile(error, time.monotonic() - before)
            deployment.note(str(found))
            raise found from error

    async def resumed(self, deployment: Deployment) -> None:
        """Its deployment is not paused any more: what could not be asked is asked now. Raises EngineDiffers."""
        if self._unproven:
            await self._prove(deployment)

    async def _prove(self, deployment: Deployment) -> None:
        """That the server answered 200 to a load proves nothing: it must say what the weights say. Raises EngineDiffers."""
        self._proof = ""
        if deployment.paused:  # nothing is answered meanwhile; `resume` comes back to it
            self._unproven = True
            return
        self._unproven = False
        self._proof = await self._compare(deployment, deployment.label)
        deployment.proof, self.well_at = self._proof, time.monotonic()

    async def _compare(self, deployment: Deployment, salt: str) -> Proof:
        """Raises EngineDiffers: then nobody is answered with these weights."""
        assert self.served is not None
        try:
            return await compare(self.api, self.served, deployment, salt=salt)
        except EngineDiffers:
            deployment.refused = deployment.label
            self._forget()
            self._changed()
            raise
