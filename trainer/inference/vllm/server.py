"""Front end of vLLM servers for the inference contract:
`python -m trainer.inference.vllm.server --servers URL,URL --port P`.

Workers and the control plane talk to this process only, and only it loads weights into the vLLM servers. The list of
servers (`../discovery.py`) is reread when it changes, so servers can join and leave during runs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from trainer.inference.contract import (
    DeploymentSpec,
    DeploymentStatus,
    GenerateRequest,
    GenerateResponse,
    PartialResponse,
    ServerHealth,
    SyncTimings,
)
from trainer.inference.discovery import ReplicaRegistry, ReplicaSpec, fixed_replicas, replica_arguments
from trainer.inference.errors import (
    DeadlinePassed,
    DeploymentMoved,
    ServerError,
    SyncFailed,
    Unavailable,
    UnknownDeployment,
    UnsupportedModel,
)
from trainer.inference.registry import remember, remembered
from trainer.inference.service import at_version, serve
from trainer.inference.verify_weights import AGAIN_SECONDS, WeightMismatch
from trainer.inference.vllm.api import refuse_unsupported
from trainer.inference.vllm.deployment import Deployment
from trainer.inference.vllm.load import Meter
from trainer.inference.vllm.streaming import spare
from trainer.inference.vllm.time_slicing import Worker

log = logging.getLogger(__name__)
TURN_SECONDS = 20.0
PLACE_SECONDS = 0.5
SETTLE_SECONDS = 30.0
"""Maximum wait for a new deployment, so that its creator learns of failed verification at once."""


class VllmEngine:
    """Deployments, each placed on the compatible vLLM server with the fewest deployments."""

    def __init__(
        self,
        servers: Sequence[ReplicaSpec],
        *,
        replicas: Path | None = None,
        data: Path,
        turn_seconds: float = TURN_SECONDS,
        poll_seconds: float = 0.5,
        max_queue: int = 4096,
        verify_seconds: float = AGAIN_SECONDS,
    ) -> None:
        """Servers come from `servers` and the file `replicas`. They must see `data` under the same path: weights pass
        through `data`/vllm.
        """
        self._memory = data / "run" / "inference-deployments.json"
        self._scratch, numbers = data / "vllm", count()

        def worker(spec: ReplicaSpec) -> Worker:
            return Worker(
                spec,
                scratch=self._scratch / str(next(numbers)),
                turn_seconds=turn_seconds,
                poll_seconds=poll_seconds,
                max_queue=max_queue,
                verify_seconds=verify_seconds,
            )

        self._registry: ReplicaRegistry[Worker] = ReplicaRegistry(worker, file=replicas, fixed=servers)
        self._loops: dict[Worker, asyncio.Task[None]] = {}
        self._deployments: dict[str, Deployment] = {}
        self._changing = asyncio.Lock()
        """Serialises creation and removal of deployments: many workers request the same one at once."""
        self._moved = asyncio.Event()
        """Set, and replaced, whenever a deployment gets a server or is removed."""
        self._meter = Meter()

    @property
    def workers(self) -> list[Worker]:
        return self._registry.replicas

    async def start(self) -> None:
        for spec in remembered(self._memory):
            self._deployments[spec.name] = Deployment(spec)
        await self._refresh()
        self._tending = asyncio.create_task(self._tend())

    async def stop(self) -> None:
        tasks = [self._tending, *self._loops.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for worker in self.workers:
            await worker.api.aclose()
        self._registry.close()

    def health(self) -> ServerHealth:
        busy, speed = self._meter.load()
        servers = [worker.status() for worker in self.workers]
        differs = [deployment.error for deployment in self._deployments.values() if deployment.differs]
        usable = any(server.ok for server in servers)
        nobody = f"no vLLM server can be used: {'; '.join(server.error for server in servers) or self._nobody}"
        return ServerHealth(
            ok=usable and not differs,
            engine="vllm",
            busy_share=busy,
            tokens_per_second=speed,
            busy_seconds=self._meter.busy_seconds,
            sampled_tokens=self._meter.sampled_tokens,
            deployments=self.statuses(),
            servers=servers,
            error="; ".join(filter(None, [self._registry.problem, *(differs or ["" if usable else nobody])])),
        )

    @property
    def _nobody(self) -> str:
        return f"there is none in {self._registry.where}; add one"

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        deployment = self._get(request.deployment)
        if request.min_version:
            request = await at_version(request, lambda: deployment.version)
        until = asyncio.get_running_loop().time() + request.timeout_seconds - spare(request.timeout_seconds)
        with self._meter.request() as count:
            try:
                async with asyncio.timeout(request.timeout_seconds):
                    answer = await self._generate(deployment, request, until)
            except TimeoutError:
                worker = self._worker_of(deployment)
                if worker is None:
                    raise self._homeless(deployment) from None
                if deployment.paused or deployment.error or worker.error:
                    raise worker.why_waiting(deployment, request) from None
                seconds = f"{request.timeout_seconds:.3g}"
                raise DeadlinePassed(
                    f"no answer of {request.max_tokens} tokens within {seconds} s; ask for fewer, or give it more time"
                ) from None
            count.tokens = len(answer.token_ids)
            return answer

    async def _generate(self, deployment: Deployment, request: GenerateRequest, until: float) -> GenerateResponse:
        """Generate on the deployment's server, also when it changes while the request waits."""
        while True:
            worker = self._worker_of(deployment)
            if worker is None:
                if self._deployments.get(deployment.name) is not deployment:
                    raise Unavailable(f"deployment {deployment.name!r} was removed or replaced")
                if deployment.error:
                    raise self._homeless(deployment)
                await self._moved.wait()
                continue
            try:
                return await worker.generate(deployment, request, until=until)
            except DeploymentMoved as error:
                log.info("%s", error)

    async def partial(self, deployment: str, session: str) -> PartialResponse:
        # Of all servers: a request ends where it began, also when its deployment has moved.
        found = (worker.api.partial(deployment, session) for worker in self.workers)
        return PartialResponse(token_ids=next(filter(None, found), []))

    def statuses(self) -> list[DeploymentStatus]:
        return [self._status(deployment) for deployment in self._deployments.values()]

    def _status(self, deployment: Deployment) -> DeploymentStatus:
        """Status, including what only its server knows."""
        worker = self._worker_of(deployment)
        return deployment.status().model_copy(
            update={"cache_share": worker.engine_state.kv_usage.peak() if worker else None}
        )

    async def deploy(self, spec: DeploymentSpec) -> DeploymentStatus:
        refuse_unsupported(spec)
        async with self._changing:
            there = self._deployments.get(spec.name)
            if there is not None and there.spec == spec and there.ready:
                return there.status()
            deployment = Deployment(spec)
            worker = await self._choose(deployment)
            await deployment.refresh(spec.version)
            if there is not None:
                await self._remove(there)
            self._deployments[spec.name] = deployment
            self._place(deployment, worker)
            self._remember()
        try:
            await worker.settled(deployment, SETTLE_SECONDS)
        except WeightMismatch:
            async with self._changing:
                if self._deployments.get(spec.name) is deployment:
                    await self._remove(deployment)
                    self._remember()
            raise
        return deployment.status()

    async def remove(self, name: str) -> None:
        async with self._changing:
            await self._remove(self._get(name))
            self._remember()

    async def _remove(self, deployment: Deployment) -> None:
        del self._deployments[deployment.name]
        worker = self._worker_of(deployment)
        if worker is not None:
            await worker.displace(deployment)
        self._tell()

    async def pause(self, name: str) -> DeploymentStatus:
        deployment, worker = self._placed(name)
        await worker.pause(deployment)
        return deployment.status()

    async def resume(self, name: str) -> DeploymentStatus:
        deployment, worker = self._placed(name)
        await worker.resume(deployment)
        return deployment.status()

    async def update(self, name: str, version: int | None) -> SyncTimings:
        deployment = self._get(name)
        if deployment.spec.store is None:
            raise SyncFailed(f"deployment {name!r} has no weight store; create it with one")
        return await self._placed(name)[1].update(deployment, version)

    # -- placing --------------------------------------------------------------------------------------

    async def _choose(self, deployment: Deployment) -> Worker:
        """The compatible server with the fewest deployments. Raises Unavailable, UnsupportedModel."""
        able, problems, refused = [], [], []
        for worker in self.workers:
            if worker.draining:
                continue
            try:
                if worker.engine_state.served is None:
                    await worker.engine_state.look()
            except ServerError as error:
                problems.append(str(error))
                continue
            if why := worker.engine_state.misfit(deployment):
                refused.append(f"{worker.api.url}: {why}")
            else:
                able.append(worker)
        if able:
            return min(able, key=lambda worker: (bool(worker.error), len(worker.placed)))
        if refused and not problems:
            raise UnsupportedModel(
                f"no vLLM server can serve the policy in {deployment.spec.policy_dir}: {'; '.join(refused)}"
            )
        raise Unavailable("; ".join([*problems, *refused]) or f"no vLLM server: {self._nobody}")

    def _place(self, deployment: Deployment, worker: Worker) -> None:
        worker.place(deployment)
        self._tell()

    def _tell(self) -> None:
        done, self._moved = self._moved, asyncio.Event()
        done.set()

    async def _tend(self) -> None:
        """Loop forever: follow the list of servers, place deployments without a server, and give idle servers work."""
        while True:
            try:
                await self._refresh()
                await self._place_rest()
                self._spread()
            except Exception:
                log.exception("tending the servers failed; it is tried again")
            await asyncio.sleep(PLACE_SECONDS)

    async def _refresh(self) -> None:
        await self._registry.refresh()
        for worker in [worker for worker in self.workers if worker not in self._loops]:
            self._loops[worker] = asyncio.create_task(worker.run())
        for worker in [w for w in self.workers if w.draining and not w.placed and not w.running]:
            self._registry.forget(worker)
            loop = self._loops.pop(worker)
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
            await worker.api.aclose()
            shutil.rmtree(worker.engine_state.updater.scratch, ignore_errors=True)
            log.info("server %s is gone from the list", worker.spec.url)

    async def _place_rest(self) -> None:
        """Place deployments that were restored, or whose server left, on a server that answers."""
        for deployment in [d for d in self._deployments.values() if self._worker_of(d) is None]:
            try:
                worker = await self._choose(deployment)
            except ServerError as error:
                deployment.error = str(error)
                self._tell()
                continue
            there = self._deployments.get(deployment.name) is deployment
            if there and self._worker_of(deployment) is None and not worker.draining:
                deployment.error = ""
                self._place(deployment, worker)

    def _spread(self) -> None:
        """Where deployments share a server while another has none, move one there."""
        staying = [worker for worker in self.workers if not worker.draining]
        for idle in [w for w in staying if not w.placed and w.engine_state.served and not w.error]:
            for fullest in sorted(staying, key=lambda w: len(w.placed), reverse=True):
                movable = (
                    [d for d in fullest.spare() if not idle.engine_state.misfit(d)] if len(fullest.placed) > 1 else []
                )
                if movable:
                    fullest.give(max(movable, key=lambda d: d.waiting))
                    return  # one at a time: it is placed before the next look

    def _get(self, name: str) -> Deployment:
        try:
            return self._deployments[name]
        except KeyError:
            known = ", ".join(sorted(self._deployments)) or "none"
            raise UnknownDeployment(f"no deployment {name!r} (there is: {known}); create it first") from None

    def _worker_of(self, deployment: Deployment) -> Worker | None:
        return next((worker for worker in self.workers if deployment in worker.placed), None)

    def _placed(self, name: str) -> tuple[Deployment, Worker]:
        deployment = self._get(name)
        worker = self._worker_of(deployment)
        if worker is None:
            raise self._homeless(deployment)
        return deployment, worker

    @staticmethod
    def _homeless(deployment: Deployment) -> Unavailable:
        return Unavailable(f"deployment {deployment.name!r} has no server yet: {deployment.error or 'starting'}")

    def _remember(self) -> None:
        remember(self._memory, [deployment.spec for deployment in self._deployments.values()])


def main() -> None:
    parser = argparse.ArgumentParser(description="Inference contract in front of vLLM servers")
    replica_arguments(parser)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("OPENCOMPOSER_DATA", ".data")))
    parser.add_argument(
        "--turn-seconds", type=float, default=TURN_SECONDS, help="shortest turn of a deployment that shares a server"
    )
    parser.add_argument("--poll-seconds", type=float, default=0.5, help="how often servers and stores are looked at")
    parser.add_argument(
        "--verify-seconds",
        "--prove-seconds",
        type=float,
        default=AGAIN_SECONDS,
        help="how often servers that serve are compared again",
    )
    parser.add_argument("--max-queue", type=int, default=4096, help="waiting requests a deployment")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    engine = VllmEngine(
        fixed_replicas(parser, arguments),
        replicas=arguments.replicas,
        data=arguments.data.resolve(),
        turn_seconds=arguments.turn_seconds,
        poll_seconds=arguments.poll_seconds,
        max_queue=arguments.max_queue,
        verify_seconds=arguments.verify_seconds,
    )
    serve(engine, host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()
