"""State of one vLLM server: polling it, loading weights into it, and verifying that it computes the published ones.

No request is admitted until the server is known to hold its assigned weights: it may have restarted, or may be in the
middle of a load.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from trainer.inference.contract import GenerateRequest, GenerateResponse, SyncTimings, Verification
from trainer.inference.errors import ContextExceeded, ServerError
from trainer.inference.kv_usage import KVCacheUsage
from trainer.inference.verify_weights import AGAIN_PATIENCE, WeightMismatch, meanwhile
from trainer.inference.vllm.api import Served, VllmApi
from trainer.inference.vllm.deployment import Deployment, has_experts, misfit, read_config
from trainer.inference.vllm.probe_client import compare
from trainer.inference.vllm.weight_update import WeightUpdater

log = logging.getLogger(__name__)
UNTOUCHED = "default"
"""Label that a vLLM reports until it is given another."""
WITHOUT_EXPERTS = (
    "sampling.enable_router_replay is on and it does not return the experts of its tokens, which the trainer is to repeat; start "
    "vLLM with --enable-return-routed-experts (on a GPU; compose: VLLM_ROUTED_EXPERTS=true), or set "
    "sampling.enable_router_replay to false and accept that the trainer routes by itself"
)


class EngineState:
    def __init__(self, api: VllmApi, scratch: Path, *, verify_seconds: float, changed: Callable[[], None]) -> None:
        """`changed` is called when requests may proceed or must check again."""
        self.api = api
        self.updater = WeightUpdater(api, scratch)
        self.served: Served | None = None
        self._returns_experts: bool | None = None
        """Whether its answers include routed experts; None: not reported, or not asked."""
        self._asked = False
        """Asked since it was last seen to be down."""
        self.deployment: Deployment | None = None
        """Deployment whose weights the server holds."""
        self.admitting = False
        self.kv_usage = KVCacheUsage()
        self.well_at = 0.0
        """Time of the last verification that succeeded, or had nothing to compare with."""
        self.verify_seconds = verify_seconds
        self._changed = changed
        self._label = ""
        """Label last given to the server; empty while its contents are unknown."""
        self._since = ("", -1)
        """Label and version under which requests began; kept until the next load has ended."""
        self._preempted: int | None = None
        """Value of its preemption counter at the last look."""
        self._verifying: asyncio.Event | None = None
        """Set when the last loaded weights have been verified or refused."""
        self._verification: Verification = ""
        """Verification result of the last full load."""
        self._unverified = False
        """Its deployment was paused during the load, so the server could not be asked."""

    def serves(self, deployment: Deployment) -> bool:
        """Whether requests to `deployment` may go to the server now."""
        return self.admitting and self.deployment is deployment and not deployment.paused

    async def generate(self, request: GenerateRequest, *, until: float) -> GenerateResponse:
        """Generate with the current weights, which newer ones may replace meanwhile. Raises ServerError. `until`: when a
        partial answer must be there, by the event loop's clock."""
        assert self.served is not None
        if self.served.context is not None and len(request.prompt_ids) >= self.served.context:
            raise ContextExceeded(tokens=len(request.prompt_ids), context=self.served.context)
        salt, before = self._since
        return await self.api.generate(request, model=self.served.name, salt=salt, before=before, until=until)

    async def wait_verified(self) -> None:
        """Wait until the last load has been verified or refused: an answer's last tokens may come from it."""
        if self._verifying is not None:
            await self._verifying.wait()

    def vacate(self) -> None:
        """Detach the deployment: the weights stay loaded, and no request is answered with them."""
        self.deployment, self.admitting = None, False

    def lost(self, *, known: bool) -> None:
        """Admit no request until the server is seen to hold its weights; unless `known`, it may hold something else."""
        self.admitting = self._asked = False
        if not known:
            self._label = ""

    # -- looking --------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Query what the server is. Raises Unavailable."""
        self.served = await self.api.served()
        if not self._asked:
            routed = has_experts(read_config(self.served.folder)) if self._visible else False
            self._returns_experts = await self.api.returns_experts() if routed else None
            self._asked = True

    async def watch(self) -> bool:
        """Check that the server answers and holds its weights. True: it is a new process that holds nothing of ours.

        Raises Unavailable.
        """
        if self.served is None:
            await self.look()
        holds = await self.api.held()
        room = await self.api.room()
        if room.used is not None:
            self.kv_usage.saw(room.used, time.monotonic())
        self.count_preemptions(room.preemptions)
        if not self._label or holds != self._label:
            self._forget()
            await self.look()
        elif self.deployment is not None and not self.admitting:
            self.admitting = True
            self._changed()
        return holds == UNTOUCHED

    def count_preemptions(self, total: int | None) -> None:
        """Attribute preemptions since the last look to the current deployment. A counter that fell was reset."""
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
        """Whether the folder that the server was started with is visible here."""
        return self.served is not None and (self.served.folder / "config.json").is_file()

    def _forget(self) -> None:
        self.vacate()
        self._label = ""
        self.updater.lost()

    # -- other weights --------------------------------------------------------------------------------

    async def load(self, deployment: Deployment, timings: SyncTimings) -> None:
        """Load the deployment's weights unless the server holds them. Requests in flight continue under the new
        weights."""
        if deployment is self.deployment and deployment.label == self._label:
            return
        began = time.perf_counter()
        prepared: Path | None = None
        self._verifying = verifying = asyncio.Event()
        try:
            prepared = await self.updater.prepare(deployment)
            asked = time.perf_counter()
            timings.decode += asked - began
            self._label = ""  # until the load has ended well, nobody knows what the server holds
            await self.api.pause()
            stood = time.perf_counter()
            timings.patched = await self.updater.apply(deployment, prepared)
            went_on = held = time.perf_counter()
            if not deployment.paused:
                await self.api.resume()
                went_on = time.perf_counter()
            timings.swapped(asked=asked, stood=stood, held=held, went_on=went_on)
            if timings.patched:  # the weights were verified before, and so was each changed word
                deployment.proof = self._verification
            else:
                await self._verify_weights(deployment)
        except ServerError as error:
            deployment.note(str(error))
            raise
        finally:
            self.updater.clear(deployment, prepared)
            verifying.set()
        self.deployment, self._label, self.admitting = deployment, deployment.label, True
        self._since = (deployment.label, deployment.version)
        deployment.error, deployment.refused, deployment.last_sync = "", "", timings
        how = "in place" if timings.patched else "whole"
        log.info("server %s holds %s (%s, %.2f s still)", self.api.url, deployment.label, how, timings.pause)
        self._changed()

    # -- weight verification ---------------------------------------------------------------------------

    async def verify_again(self) -> None:
        """Repeat verification between loads: a correct engine may fail later. Raises WeightMismatch."""
        deployment, before = self.deployment, self.well_at
        due = time.monotonic() >= before + self.verify_seconds
        if not due or deployment is None or not self.serves(deployment) or deployment.proof != "proven":
            return
        self.well_at = time.monotonic()
        try:
            async with asyncio.timeout(AGAIN_PATIENCE):
                await self._compare(deployment, f"{deployment.label}~{before:.0f}")  # not what its prefix cache has
        except TimeoutError:
            log.info("server %s is too busy to be compared again; later", self.api.url)
        except WeightMismatch as error:
            found = meanwhile(error, time.monotonic() - before)
            deployment.note(str(found))
            raise found from error

    async def resumed(self, deployment: Deployment) -> None:
        """Its deployment resumed: run a verification that the pause prevented. Raises WeightMismatch."""
        if self._unverified:
            await self._verify_weights(deployment)

    async def _verify_weights(self, deployment: Deployment) -> None:
        """Verify the server's outputs; status 200 for a load proves nothing. Raises WeightMismatch."""
        self._verification = ""
        if deployment.paused:  # nothing is answered meanwhile; `resume` comes back to it
            self._unverified = True
            return
        self._unverified = False
        self._verification = await self._compare(deployment, deployment.label)
        deployment.proof, self.well_at = self._verification, time.monotonic()

    async def _compare(self, deployment: Deployment, salt: str) -> Verification:
        """Compare with the reference probe. Raises WeightMismatch: then no request is answered with these weights."""
        assert self.served is not None
        try:
            return await compare(self.api, self.served, deployment, salt=salt)
        except WeightMismatch:
            deployment.refused = deployment.label
            self._forget()
            self._changed()
            raise
