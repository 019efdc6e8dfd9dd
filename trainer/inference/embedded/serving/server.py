"""HTTP server of the inference contract: `python -m trainer.inference.embedded.serving.server --host H --port P`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from pathlib import Path

import torch

from trainer.inference.contract import (
    DeploymentSpec,
    DeploymentStatus,
    GenerateRequest,
    GenerateResponse,
    PartialResponse,
    ServerHealth,
    SyncTimings,
)
from trainer.inference.embedded.devices import CPU, DEVICE, place
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits
from trainer.inference.embedded.serving.deployments import Deployments
from trainer.inference.embedded.serving.thread import EngineThread
from trainer.inference.errors import ServerError
from trainer.inference.service import at_version, serve
from trainer.inference.verify_weights import AGAIN_PATIENCE, AGAIN_SECONDS, WeightMismatch, meanwhile, verify_weights
from trainer.weights import WeightError

log = logging.getLogger(__name__)


class EmbeddedEngine:
    """The process' engine behind the HTTP service. `memory` stores its deployments across restarts."""

    def __init__(
        self,
        *,
        memory: Path,
        limits: Limits,
        poll_seconds: float = 0.2,
        device: torch.device = CPU,
        verify_seconds: float = AGAIN_SECONDS,
    ) -> None:
        self._verify_seconds = verify_seconds
        self._thread = EngineThread()
        self._deployments = Deployments(self._thread, limits, memory, device)
        self._poll_seconds = poll_seconds
        self._jobs: dict[tuple[str, str], Job] = {}
        """The newest unanswered request of each deployment and session."""

    async def start(self) -> None:
        self._thread.start()
        self._deployments.restore()
        self._tasks = [
            asyncio.create_task(self._deployments.follow(self._poll_seconds)),
            asyncio.create_task(self._prove_again()),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self._thread.stop)

    def health(self) -> ServerHealth:
        busy, speed = self._thread.load()
        ended = "" if self._thread.alive else "the engine thread ended; see the server's log and start it again"
        differs = [deployment.error for deployment in self._deployments.all.values() if deployment.refused]
        return ServerHealth(
            ok=self._thread.alive and not differs,
            engine="embedded",
            busy_share=busy,
            tokens_per_second=speed,
            busy_seconds=self._thread.busy_seconds,
            sampled_tokens=self._thread.sampled_tokens,
            max_context=self._deployments.limits.max_context,
            kv_bytes=self._deployments.limits.kv_bytes,
            deployments=self.statuses(),
            error=ended or "; ".join(differs),
        )

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        deployment = self._deployments.get(request.deployment)
        if deployment.refused:
            raise WeightMismatch(deployment.error)
        if request.min_version:
            request = await at_version(request, lambda: deployment.runner.version)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[GenerateResponse | ServerError] = loop.create_future()

        def settle(result: GenerateResponse | ServerError) -> None:
            if not answer.done():
                answer.set_result(result)

        def deliver(result: GenerateResponse | ServerError) -> None:
            loop.call_soon_threadsafe(settle, result)

        job = Job(request, time.monotonic() + request.timeout_seconds, deliver)
        self._thread.submit(deployment.runner, job)
        place = (request.deployment, request.session) if request.session is not None else None
        if place is not None:
            self._jobs[place] = job
        try:
            result = await answer
        except asyncio.CancelledError:
            job.cancelled = True
            raise
        finally:
            if place is not None and self._jobs.get(place) is job:
                del self._jobs[place]
        if isinstance(result, ServerError):
            raise result
        return result

    async def partial(self, deployment: str, session: str) -> PartialResponse:
        job = self._jobs.get((deployment, session))
        # The engine thread only appends to the list, so that its step need not wait for the copy.
        return PartialResponse(token_ids=list(job.token_ids) if job is not None else [])

    async def _prove_again(self) -> None:
        """Loop forever: repeat weight verification among the other requests; a correct engine may fail later."""
        while True:
            await asyncio.sleep(min(self._verify_seconds, 1.0))
            for deployment in list(self._deployments.all.values()):
                due = time.monotonic() >= deployment.well_at + self._verify_seconds
                if not (due and deployment.loaded) or deployment.refused or deployment.runner.paused:
                    continue
                before, deployment.well_at = deployment.well_at, time.monotonic()
                weights = deployment.runner.version, deployment.digest
                try:
                    async with asyncio.timeout(AGAIN_PATIENCE):
                        probe = await asyncio.to_thread(self._deployments.known, deployment)
                        if probe is not None:
                            name, where = deployment.spec.name, "the embedded engine"
                            await verify_weights(probe, self.generate, deployment=name, version=weights[0], where=where)
                except WeightMismatch as error:
                    if (deployment.runner.version, deployment.digest) == weights and not deployment.refused:
                        found = meanwhile(error, time.monotonic() - before)
                        self._deployments.refuse(deployment, weights, found)
                        log.warning("%s", found)
                except (ServerError, WeightError, OSError, TimeoutError) as error:
                    log.info("deployment %s is compared later: %r", deployment.spec.name, error)

    def statuses(self) -> list[DeploymentStatus]:
        return [deployment.status() for deployment in self._deployments.all.values()]

    async def deploy(self, spec: DeploymentSpec) -> DeploymentStatus:
        return (await self._deployments.create(spec)).status()

    async def remove(self, name: str) -> None:
        await self._deployments.delete(name)

    async def pause(self, name: str) -> DeploymentStatus:
        return (await self._deployments.pause(name)).status()

    async def resume(self, name: str) -> DeploymentStatus:
        return (await self._deployments.resume(name)).status()

    async def update(self, name: str, version: int | None) -> SyncTimings:
        return await self._deployments.update(name, version)


def main() -> None:
    parser = argparse.ArgumentParser(description="Embedded inference server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("OPENCOMPOSER_DATA", ".data")))
    parser.add_argument("--max-queue", type=int, default=Limits.max_queue, help="waiting requests a deployment")
    parser.add_argument(
        "--max-context",
        type=int,
        default=int(os.environ.get("OPENCOMPOSER_ENGINE_CONTEXT") or Limits.max_context),
        help="tokens of one sequence, as far as a policy's positions reach (OPENCOMPOSER_ENGINE_CONTEXT)",
    )
    parser.add_argument(
        "--max-num-seqs", type=int, default=Limits.max_num_seqs, help="sequences that a deployment computes at once"
    )
    parser.add_argument(
        "--kv-mib",
        type=int,
        default=int(os.environ.get("OPENCOMPOSER_KV_CACHE_MIB") or Limits.kv_bytes >> 20),
        help="memory of one deployment's KV cache, where it names none (OPENCOMPOSER_KV_CACHE_MIB)",
    )
    parser.add_argument(
        "--speculate", type=int, default=0, help="draft tokens per step, where a policy has a draft head"
    )
    parser.add_argument(
        "--device", default=os.environ.get(DEVICE) or "cpu", help=f"cpu, cuda, cuda:N or cuda:N,N ({DEVICE})"
    )
    parser.add_argument("--poll-seconds", type=float, default=0.2, help="how often weight stores are looked at")
    parser.add_argument(
        "--verify-seconds",
        "--prove-seconds",
        type=float,
        default=AGAIN_SECONDS,
        help="how often what is served is compared again",
    )
    arguments = parser.parse_args()
    try:
        # Of the product's folder, which engines of this machine share; `--data` may be an engine's own.
        device = place(arguments.device, Path(os.environ.get("OPENCOMPOSER_DATA") or arguments.data) / "run" / "gpus")
    except ValueError as error:
        parser.error(str(error))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.info("this engine computes on %s", device)
    sys.setswitchinterval(0.001)  # the engine thread asks for the interpreter at every operation
    torch.set_num_threads(int(os.environ.get("OPENCOMPOSER_TORCH_THREADS") or os.environ.get("OMP_NUM_THREADS") or 1))
    limits = Limits(
        max_queue=arguments.max_queue,
        max_context=arguments.max_context,
        max_num_seqs=arguments.max_num_seqs,
        kv_bytes=arguments.kv_mib << 20,
        speculate=arguments.speculate,
    )
    memory = arguments.data / "run" / "inference-deployments.json"
    engine = EmbeddedEngine(
        memory=memory,
        limits=limits,
        poll_seconds=arguments.poll_seconds,
        device=device,
        verify_seconds=arguments.verify_seconds,
    )
    serve(engine, host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()
