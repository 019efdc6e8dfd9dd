"""The inference contract in front of vLLM: `python -m trainer.inference.vllm.server --servers URL,URL --port P`.

Workers and the control plane speak to this one process; it alone moves the vLLM servers to other weights.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer.inference.contract import (
    DeploymentSpec,
    DeploymentStatus,
    GenerateRequest,
    GenerateResponse,
    ServerHealth,
    SyncTimings,
)
from trainer.inference.errors import (
    BadRequest,
    DeadlinePassed,
    ServerError,
    SyncFailed,
    Unavailable,
    UnknownDeployment,
    UnsupportedModel,
)
from trainer.inference.memory import remember, remembered
from trainer.inference.proving import EngineDiffers
from trainer.inference.service import serve
from trainer.inference.vllm.addresses import server_urls
from trainer.inference.vllm.deployment import Deployment
from trainer.inference.vllm.meter import Meter
from trainer.inference.vllm.worker import Worker

log = logging.getLogger(__name__)
TURN_SECONDS = 20.0
PLACE_SECONDS = 0.5
SETTLE_SECONDS = 30.0
"""Longest that a new deployment is waited for, so that who asks for one learns at once that the server does not compute it."""


class VllmEngine:
    """Deployments, each placed on the vLLM server with the fewest of those that can hold it."""

    def __init__(
        self,
        servers: Sequence[str],
        *,
        data: Path,
        turn_seconds: float = TURN_SECONDS,
        poll_seconds: float = 0.5,
        max_queue: int = 4096,
    ) -> None:
        """`data` is seen by the vLLM servers at the same path: weights pass through `data`/vllm."""
        self._memory = data / "run" / "inference-deployments.json"
        self.workers = [
            Worker(
                url,
                scratch=data / "vllm" / str(number),
                turn_seconds=turn_seconds,
                poll_seconds=poll_seconds,
                max_queue=max_queue,
            )
            for number, url in enumerate(servers)
        ]
        self._deployments: dict[str, Deployment] = {}
        self._changing = asyncio.Lock()
        """One deployment is created or removed at a time: many workers ask for the same one at once."""
        self._meter = Meter()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for spec in remembered(self._memory):
            self._deployments[spec.name] = Deployment(spec)
        loops = [self._place_rest(), *(worker.run() for worker in self.workers)]
        self._tasks = [asyncio.create_task(loop) for loop in loops]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in self.workers:
            await worker.api.aclose()

    def health(self) -> ServerHealth:
        busy, speed = self._meter.load()
        servers = [worker.status() for worker in self.workers]
        differs = [deployment.error for deployment in self._deployments.values() if deployment.differs]
        well = any(server.ok for server in servers) and not differs
        problem = f"no vLLM server can be used: {'; '.join(server.error for server in servers)}"
        return ServerHealth(
            ok=well,
            engine="vllm",
            busy_share=busy,
            tokens_per_second=speed,
            deployments=self.statuses(),
            servers=servers,
            error="" if well else "; ".join(differs) or problem,
        )

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        deployment = self._get(request.deployment)
        worker = self._worker_of(deployment)
        if worker is None:
            raise Unavailable(f"deployment {deployment.name!r} has no server yet: {deployment.error or 'starting'}")
        with self._meter.request() as count:
            try:
                async with asyncio.timeout(request.timeout_seconds):
                    answer = await worker.generate(deployment, request)
            except TimeoutError:
                if deployment.paused or deployment.error or worker.error:
                    raise worker.why_waiting(deployment, request) from None
                seconds = f"{request.timeout_seconds:.3g}"
                raise DeadlinePassed(
                    f"no answer of {request.max_tokens} tokens within {seconds} s; ask for fewer, or give it more time"
                ) from None
            count.tokens = len(answer.token_ids)
            return answer

    def statuses(self) -> list[DeploymentStatus]:
        return [self._status(deployment) for deployment in self._deployments.values()]

    def _status(self, deployment: Deployment) -> DeploymentStatus:
        """With what only its server knows."""
        worker = self._worker_of(deployment)
        return deployment.status().model_copy(update={"cache_share": worker.filling.peak() if worker else None})

    async def deploy(self, spec: DeploymentSpec) -> DeploymentStatus:
        if spec.speculate:
            raise BadRequest(
                f"speculate={spec.speculate}: vLLM does not guess with a policy's own head; leave sampling.speculate empty"
            )
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
            worker.place(deployment)
            self._remember()
        try:
            await worker.settled(deployment, SETTLE_SECONDS)
        except EngineDiffers:
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
        """The server with the fewest deployments of those that can hold this one. Raises Unavailable, UnsupportedModel."""
        able, problems, refused = [], [], []
        for worker in self.workers:
            try:
                if worker.served is None:
                    await worker.look()
            except ServerError as error:
                problems.append(str(error))
                continue
            if why := worker.misfit(deployment):
                refused.append(f"{worker.api.url}: {why}")
            else:
                able.append(worker)
        if able:
            return min(able, key=lambda worker: len(worker.placed))
        if refused and not problems:
            raise UnsupportedModel(
                f"no vLLM server can hold the policy in {deployment.spec.policy_dir} ({'; '.join(refused)}); "
                "start vLLM with --model on a policy of the same architecture"
            )
        raise Unavailable("; ".join([*problems, *refused]))

    async def _place_rest(self) -> None:
        """For ever: places remembered deployments once a server answers."""
        while True:
            for deployment in list(self._deployments.values()):
                if self._worker_of(deployment) is None:
                    try:
                        (await self._choose(deployment)).place(deployment)
                        deployment.error = ""
                    except ServerError as error:
                        deployment.error = str(error)
            await asyncio.sleep(PLACE_SECONDS)

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
            raise Unavailable(f"deployment {name!r} has no server yet: {deployment.error or 'starting'}")
        return deployment, worker

    def _remember(self) -> None:
        remember(self._memory, [deployment.spec for deployment in self._deployments.values()])


def main() -> None:
    parser = argparse.ArgumentParser(description="Inference contract in front of vLLM servers")
    parser.add_argument("--servers", required=True, help="addresses of vLLM servers, separated by commas")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("OPENCOMPOSER_DATA", ".data")))
    parser.add_argument(
        "--turn-seconds", type=float, default=TURN_SECONDS, help="shortest turn of a deployment that shares a server"
    )
    parser.add_argument("--poll-seconds", type=float, default=0.5, help="how often servers and stores are looked at")
    parser.add_argument("--max-queue", type=int, default=4096, help="waiting requests a deployment")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        urls = server_urls(arguments.servers)
    except ValueError as error:
        sys.exit(f"--servers: {error}")
    engine = VllmEngine(
        urls,
        data=arguments.data.resolve(),
        turn_seconds=arguments.turn_seconds,
        poll_seconds=arguments.poll_seconds,
        max_queue=arguments.max_queue,
    )
    serve(engine, host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()
