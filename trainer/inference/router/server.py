"""Inference router: `python -m trainer.inference.router.server --replicas replicas.json --port P`. It serves the full
contract.

The list of engines (`../discovery.py`) is reread when it changes, so engines can join and leave during runs. When an
engine dies or is reclaimed, its requests are retried elsewhere: each has a seed, and nobody has seen its answer.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from pydantic import ValidationError

from trainer.inference.contract import (
    DeploymentSpec,
    DeploymentStatus,
    GenerateRequest,
    GenerateResponse,
    PartialResponse,
    ServerHealth,
    ServerStatus,
    SyncTimings,
)
from trainer.inference.discovery import ReplicaRegistry, ReplicaSpec, fixed_replicas, replica_arguments
from trainer.inference.errors import DeadlinePassed, ServerError, Unavailable, UnknownDeployment
from trainer.inference.registry import remember, remembered
from trainer.inference.router.affinity import Affinity
from trainer.inference.router.merge import merged
from trainer.inference.router.replicas import AGAIN_SECONDS, BorrowPolicy, Refusal, Replica
from trainer.inference.service import serve

log = logging.getLogger(__name__)
PLACE_SECONDS = 120.0
"""Maximum seconds for an engine to load and verify weights; the first ones compile."""
TOLERATED_LAG = 1
"""Versions that an engine may be behind the newest one: while all of them load a version, they do so one after another."""
DIFFERS = "engine_differs"
ELSEWHERE = {"unavailable", "internal", "unknown_deployment", DIFFERS}
"""Errors of one engine that another may not have: it is stopping, its step failed, it restarted without our deployment,
or it failed weight verification.
"""


class AllReplicasMismatch(ServerError):
    """No engine passes weight verification."""

    code = DIFFERS
    status = 422


class Relayed(ServerError):
    """An engine's error, passed on unchanged."""

    def __init__(self, response: httpx.Response) -> None:
        try:
            error = response.json()["error"]
            self.code, message = str(error["code"]), str(error["message"])
            self.details = {str(name): int(number) for name, number in error.get("details", {}).items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            self.code, message = "internal", f"HTTP {response.status_code} from {response.request.url}"
        super().__init__(message)
        self.status = response.status_code


def caught_up(replicas: Sequence[Replica], request: GenerateRequest) -> Sequence[Replica]:
    """Engines that do not lag: they have the version that is asked for, and are at most TOLERATED_LAG behind the newest. All
    of them where none has it: an engine waits for a version itself."""
    versions = {replica.spec: replica.version(request.deployment) for replica in replicas}
    oldest = max(request.min_version, max(versions.values()) - TOLERATED_LAG)
    return [replica for replica in replicas if versions[replica.spec] >= oldest] or replicas


class Router:
    def __init__(
        self,
        replicas: Path | None,
        *,
        fixed: Sequence[ReplicaSpec] = (),
        memory: Path,
        policy: BorrowPolicy,
        poll_seconds: float = 0.5,
    ) -> None:
        """Engines come from the file `replicas` and from `fixed`."""
        self.registry: ReplicaRegistry[Replica] = ReplicaRegistry(Replica.of, file=replicas, fixed=fixed, lends=True)
        self._memory, self._policy, self._poll_seconds = memory, policy, poll_seconds
        self.specs: dict[str, DeploymentSpec] = {}
        self._affinity: Affinity[Replica] = Affinity()
        self._placing = asyncio.Lock()
        """Held while deployments are placed: concurrent creation of one deployment on an engine fails."""
        self._changed = asyncio.Event()
        """Set, and replaced, after each look at an engine; requests without an engine wait for it."""

    @property
    def replicas(self) -> list[Replica]:
        return self.registry.replicas

    @property
    def _nobody(self) -> str:
        return f"no engine of {self.registry.where} answers; start one, or add it there"

    async def start(self) -> None:
        self.specs = {spec.name: spec for spec in remembered(self._memory)}
        await self._look()
        self._watch = asyncio.create_task(self._forever())

    async def stop(self) -> None:
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        await asyncio.gather(*(replica.aclose() for replica in self.replicas))
        self.registry.close()

    def health(self) -> ServerHealth:
        known = [replica.health for replica in self.replicas if replica.health is not None]
        servers = [self._seen(replica) for replica in self.replicas]
        usable = any(replica.usable for replica in self.replicas)
        nowhere = [words for name in self.specs if (words := self._all_differ(name))]
        return ServerHealth(
            ok=usable and not nowhere,
            engine="router",
            busy_share=sum(health.busy_share for health in known) / max(len(known), 1),
            tokens_per_second=sum(health.tokens_per_second for health in known),
            busy_seconds=sum(health.busy_seconds for health in known) / max(len(known), 1),
            sampled_tokens=sum(health.sampled_tokens for health in known),
            max_context=min((health.max_context for health in known if health.max_context), default=0),
            kv_bytes=sum(health.kv_bytes for health in known),
            deployments=self.statuses(),
            servers=servers,
            usage=[usage for health in known for usage in health.usage],
            error="; ".join(filter(None, [self.registry.problem, *nowhere, "" if usable else self._nobody])),
        )

    def _seen(self, replica: Replica) -> ServerStatus:
        wrong = [words for name in self.specs if (words := replica.differs(name))]
        return ServerStatus(
            url=replica.spec.url,
            ok=replica.usable and not wrong,
            deployment=", ".join(sorted({*replica.served, *(name for name in self.specs if replica.differs(name))})),
            model=replica.spec.cluster + (" (borrowed)" if replica.lent else ""),
            leaving=replica.draining,
            running=len(replica.running),
            error="; ".join(wrong) or replica.error,
        )

    def statuses(self) -> list[DeploymentStatus]:
        return [self._status(spec) for spec in self.specs.values()]

    def _status(self, spec: DeploymentSpec) -> DeploymentStatus:
        parts = {m.spec: status for m in self.replicas if (status := m.status(spec.name)) is not None}
        return merged(
            spec, parts, {m.spec: m.refused[spec.name].words for m in self.replicas if spec.name in m.refused}
        )

    def _all_differ(self, name: str) -> str:
        """The engines' mismatch error when no engine computes a deployment correctly; else empty."""
        words = [replica.differs(name) for replica in self.replicas if replica.wanted]
        return "; ".join(words) if words and all(words) else ""

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        if request.deployment not in self.specs:
            raise UnknownDeployment(f"no deployment {request.deployment!r}; create it first")
        deadline = time.monotonic() + request.timeout_seconds
        shunned: set[Replica] = set()
        refusal: ServerError | None = None
        while (left := deadline - time.monotonic()) > 0:
            open_to = [m for m in self.replicas if m.serves(request.deployment) and m not in shunned]
            if not open_to:
                if words := self._all_differ(request.deployment):
                    raise AllReplicasMismatch(words)
                if refusal is not None and refusal.code == "queue_full":
                    raise refusal
                shunned.clear()
                await self._next_look(left)
                continue
            replica = self._affinity.choose(request, caught_up(open_to, request))
            body = request.model_copy(update={"timeout_seconds": left}).model_dump_json()
            timeout = httpx.Timeout(left + 5.0, connect=min(left, 5.0))
            task = asyncio.ensure_future(replica.connections.post("/generate", body, timeout))
            replica.running.add(task)
            try:
                await asyncio.wait(
                    (task,)
                )  # a cancelled task is one that was reclaimed; a cancelled wait is our caller
            finally:
                replica.running.discard(task)
                task.cancel()
            shunned.add(replica)
            if task.cancelled():
                continue
            if isinstance(error := task.exception(), httpx.TransportError):
                replica.lost(f"{type(error).__name__}: {error}")
                self._affinity.forget(replica)
                continue
            response = task.result()
            if response.is_success:
                try:
                    return GenerateResponse.model_validate_json(response.content)
                except ValidationError as problem:
                    raise ServerError(f"{replica.spec.url} does not speak the contract: {problem}") from problem
            refusal = Relayed(response)
            if refusal.code == "queue_full" or refusal.code in ELSEWHERE:
                continue
            raise refusal
        raise refusal or DeadlinePassed(f"no engine was free for it within {request.timeout_seconds:.3g} s; add one")

    async def partial(self, deployment: str, session: str) -> PartialResponse:
        replica = self._affinity.place(deployment, session)
        if replica is None or not replica.running:
            return PartialResponse()
        return await replica.partial(deployment, session)

    async def deploy(self, spec: DeploymentSpec) -> DeploymentStatus:
        usable = [replica for replica in self.replicas if replica.wanted and replica.health is not None]
        if not usable:
            raise Unavailable(self._nobody)
        async with self._placing:  # until it stands, a look knows of the former one, or none
            found = await asyncio.gather(*(self._place(replica, spec) for replica in usable), return_exceptions=True)
            failed = [problem for problem in found if isinstance(problem, BaseException)]
            grave = [e for e in failed if not (isinstance(e, ServerError) and e.code in ELSEWHERE)]
            if grave or len(failed) == len(found):
                await self._undo(spec)
                raise (grave or failed)[0]
            self.specs[spec.name] = spec
        remember(self._memory, list(self.specs.values()))
        return self._status(spec)

    async def _undo(self, spec: DeploymentSpec) -> None:
        """Remove a deployment that some engines accepted and others never will. The next look restores the one it
        replaced."""
        there = [replica for replica in self.replicas if replica.served.get(spec.name) == spec]
        for replica in self.replicas:
            if (refusal := replica.refused.get(spec.name)) and refusal.spec == spec:
                del replica.refused[spec.name]
        await asyncio.gather(*(self._displace(replica, spec.name) for replica in there))

    async def remove(self, name: str) -> None:
        async with self._placing:
            self._known(name)
            del self.specs[name]
            for replica in self.replicas:
                replica.refused.pop(name, None)
            remember(self._memory, list(self.specs.values()))
            await asyncio.gather(
                *(self._displace(replica, name) for replica in self.replicas if name in replica.served)
            )

    async def pause(self, name: str) -> DeploymentStatus:
        return await self._everywhere(name, "pause")

    async def resume(self, name: str) -> DeploymentStatus:
        return await self._everywhere(name, "resume")

    async def update(self, name: str, version: int | None) -> SyncTimings:
        """Update all engines; return the timings of the slowest."""
        answers = await self._ask_all(name, f"/deployments/{name}/update", {"version": version})
        await self._look()
        timings = (SyncTimings.model_validate_json(answer.content) for answer in answers.values())
        return max(timings, key=lambda t: t.fetch + t.decode)

    async def _everywhere(self, name: str, verb: str) -> DeploymentStatus:
        answers = await self._ask_all(name, f"/deployments/{name}/{verb}", None)
        await self._look()
        parts = {spec: DeploymentStatus.model_validate_json(answer.content) for spec, answer in answers.items()}
        return merged(self.specs[name], parts)

    async def _ask_all(self, name: str, path: str, body: Any) -> dict[ReplicaSpec, httpx.Response]:
        self._known(name)
        there = [replica for replica in self.replicas if name in replica.served]
        if not there:
            raise Unavailable(f"no engine serves deployment {name!r} now; start one")
        answers = await asyncio.gather(*(_ask(replica, "POST", path, body) for replica in there))
        return {replica.spec: answer for replica, answer in zip(there, answers, strict=True)}

    def _known(self, name: str) -> None:
        if name not in self.specs:
            raise UnknownDeployment(f"no deployment {name!r} (there is: {', '.join(sorted(self.specs)) or 'none'})")

    def _missing(self, replica: Replica) -> list[DeploymentSpec]:
        """Deployments that should be there and are missing, except those that just failed verification."""
        now = time.monotonic()
        refused = {r.spec.name: r.spec for r in replica.refused.values() if now < r.until}
        return [
            spec
            for spec in self.specs.values()
            if replica.served.get(spec.name) != spec and refused.get(spec.name) != spec
        ]

    async def _place(self, replica: Replica, spec: DeploymentSpec) -> DeploymentStatus:
        """Create a deployment on an engine. Raises its error; a weight mismatch is recorded with the engine."""
        try:
            response = await _ask(replica, "POST", "/deployments", spec.model_dump(), seconds=PLACE_SECONDS)
        except Relayed as error:
            if error.code == DIFFERS:
                log.warning("%s: %s", replica.spec.url, error)
                words = f"{replica.spec.url}: {error}"
                replica.refused[spec.name] = Refusal(spec, words, time.monotonic() + AGAIN_SECONDS)
                replica.served.pop(spec.name, None)
            raise
        answer = DeploymentStatus.model_validate_json(response.content)
        replica.refused.pop(spec.name, None)
        replica.served[spec.name] = spec
        if replica.health is not None:
            rest = [status for status in replica.health.deployments if status.name != spec.name]
            replica.health = replica.health.model_copy(update={"deployments": [*rest, answer]})
        return answer

    async def _displace(self, replica: Replica, name: str) -> None:
        replica.served.pop(name, None)
        try:
            await _ask(replica, "DELETE", f"/deployments/{name}", None)
        except ServerError as error:
            log.warning("%s: %s", replica.spec.url, error)

    async def _forever(self) -> None:
        while True:
            try:
                await self._look()
            except Exception:
                log.exception("looking at the engines failed; it is tried again")
            await asyncio.sleep(self._poll_seconds)

    async def _next_look(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(min(seconds, 1.0)):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _look(self) -> None:
        """Reread the list, poll every engine, and place our deployments where they belong."""
        await self.registry.refresh()
        await asyncio.gather(*(self._look_at(replica) for replica in self.replicas))
        for replica in [m for m in self.replicas if m.draining and not m.running]:
            await asyncio.gather(*(self._displace(replica, name) for name in list(replica.served)))
            self._affinity.forget(replica)
            self.registry.forget(replica)
            await replica.aclose()
        done, self._changed = self._changed, asyncio.Event()
        done.set()

    async def _look_at(self, replica: Replica) -> None:
        try:
            served = frozenset(replica.served)
            response = await replica.admin.get("/health", timeout=5.0)
            replica.saw(ServerHealth.model_validate_json(response.content), self._policy, asked_with=served)
            if replica.reclaim():
                log.info("%s was reclaimed by its owners", replica.spec.url)
            if replica.wanted and not replica.draining:
                if self._missing(replica):
                    async with self._placing:
                        for spec in self._missing(replica):  # of now: somebody else may have held the lock
                            await self._place(replica, spec)
            elif not replica.running and not replica.draining:
                for name in list(replica.served):
                    await self._displace(replica, name)
        except (httpx.TransportError, ValidationError) as error:
            replica.lost(f"{type(error).__name__}: {error}")
        except ServerError as error:
            replica.error = str(error)


async def _ask(replica: Replica, method: str, path: str, body: Any, *, seconds: float = 30.0) -> httpx.Response:
    try:
        response = await replica.admin.request(method, path, json=body, timeout=seconds)
    except httpx.TransportError as error:
        raise Unavailable(f"{replica.spec.url} does not answer ({type(error).__name__})") from error
    if not response.is_success:
        raise Relayed(response)
    return response


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Router in front of several inference servers")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    replica_arguments(parser)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("OPENCOMPOSER_DATA", ".data")))
    parser.add_argument("--poll-seconds", type=float, default=0.5, help="how often engines are looked at")
    parser.add_argument("--idle-seconds", type=float, default=BorrowPolicy.idle_seconds)
    parser.add_argument("--reclaim-seconds", type=float, default=BorrowPolicy.reclaim_seconds)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    memory = given.data / "run" / "inference-deployments.json"
    policy = BorrowPolicy(given.idle_seconds, given.reclaim_seconds)
    router = Router(
        given.replicas,
        fixed=fixed_replicas(parser, given),
        memory=memory,
        policy=policy,
        poll_seconds=given.poll_seconds,
    )
    serve(router, host=given.host, port=given.port)


if __name__ == "__main__":
    main()
