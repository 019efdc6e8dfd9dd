"""A router before engines of which one computes something else than was published: it gets no request, and others go on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.trainer.inference.conftest import write_members
from trainer.inference.contract import (
    DeploymentSpec,
    DeploymentStatus,
    GenerateRequest,
    GenerateResponse,
    ServerHealth,
    SyncTimings,
    Verification,
    VersionSpan,
)
from trainer.inference.discovery import ReplicaSpec
from trainer.inference.errors import ServerError, UnsupportedModel
from trainer.inference.router.replicas import BorrowPolicy
from trainer.inference.router.server import AllReplicasMismatch, Router
from trainer.inference.service import application
from trainer.inference.verify_weights import WeightMismatch

pytestmark = pytest.mark.integration

SPEC = DeploymentSpec(name="policy", policy_dir="/policies/x")


class Told:
    """An engine of the contract that says of its proof what a test tells it to."""

    def __init__(self) -> None:
        self.proof: Verification = "proven"
        self.refuses: ServerError | None = None
        self.placed: dict[str, DeploymentSpec] = {}
        self.asked = 0
        self.deployed = 0

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    @property
    def words(self) -> str:
        return "this engine does not compute version 1" if self.proof == "differs" else ""

    def health(self) -> ServerHealth:
        return ServerHealth(ok=not self.words, engine="told", deployments=self.statuses(), error=self.words)

    def statuses(self) -> list[DeploymentStatus]:
        return [self._status(spec) for spec in self.placed.values()]

    def _status(self, spec: DeploymentSpec) -> DeploymentStatus:
        state = {"differs": "failed", "": "loading"}.get(self.proof, "serving")
        found = {"name": spec.name, "version": 1, "digest": "", "follow": True, "proof": self.proof}
        return DeploymentStatus.model_validate(found | {"state": state, "error": self.words})

    async def deploy(self, spec: DeploymentSpec) -> DeploymentStatus:
        self.deployed += 1
        if self.refuses is not None:
            raise self.refuses
        self.placed[spec.name] = spec
        return self._status(spec)

    async def remove(self, name: str) -> None:
        self.placed.pop(name, None)

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        self.asked += 1
        if self.words:
            raise WeightMismatch(self.words)
        span = VersionSpan(version=1, start=0, end=1)
        return GenerateResponse(token_ids=[7], logprobs=[-1.0], spans=[span], finish_reason="length")

    async def pause(self, name: str) -> DeploymentStatus:
        return self._status(self.placed[name])

    async def resume(self, name: str) -> DeploymentStatus:
        return self._status(self.placed[name])

    async def update(self, name: str, version: int | None) -> SyncTimings:
        return SyncTimings(version=1)


@contextlib.asynccontextmanager
async def listening(engine: Told, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(application(engine), host=host, port=port, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(20):
        while not server.started:
            await asyncio.sleep(0.01)
    yield f"http://{host}:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await serving


@contextlib.asynccontextmanager
async def fleet(folder: Path, *engines: Told) -> AsyncIterator[tuple[Router, list[str]]]:
    async with contextlib.AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(listening(engine)) for engine in engines]
        write_members(folder / "members.json", [{"url": url, "cluster": f"c{n}"} for n, url in enumerate(urls)])
        router = Router(
            folder / "members.json", memory=folder / "memory.json", policy=BorrowPolicy(), poll_seconds=0.02
        )
        await router.start()
        stack.push_async_callback(router.stop)
        yield router, urls


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def ask(number: int, seconds: float = 30.0) -> GenerateRequest:
    return GenerateRequest(prompt_ids=[number], max_tokens=1, timeout_seconds=seconds)


async def test_an_engine_that_refuses_at_the_first_load_is_left_out_and_shown(tmp_path: Path) -> None:
    right, wrong = Told(), Told()
    wrong.refuses = WeightMismatch("this engine does not compute version 1")
    async with fleet(tmp_path, right, wrong) as (router, urls):
        status = await router.deploy(SPEC)
        assert status.state == "serving" and status.version == 1
        told = [(engine.url, engine.cluster, engine.proof, engine.error) for engine in status.engines]
        assert told == [
            (urls[0], "c0", "proven", ""),
            (urls[1], "c1", "differs", f"{urls[1]}: this engine does not compute version 1"),
        ]
        for number in range(8):
            await router.generate(ask(number))
        await router._look()
        assert (right.asked, wrong.asked, wrong.deployed) == (8, 0, 1), "not asked again at every look"
        health = router.health()
        assert health.ok and [(server.ok, bool(server.error)) for server in health.servers] == [
            (True, False),
            (False, True),
        ]
        assert "policy" in health.servers[1].deployment  # the run's board shows it by this name
        wrong.refuses = None
        router.replicas[1].lost("it was started again")
        await until(lambda: router.replicas[1].serves("policy"))


async def test_an_engine_that_is_not_proven_yet_waits_outside(tmp_path: Path) -> None:
    ready, loading = Told(), Told()
    loading.proof = ""
    async with fleet(tmp_path, ready, loading) as (router, _):
        await router.deploy(SPEC)
        for number in range(6):
            await router.generate(ask(number))
        assert (ready.asked, loading.asked) == (6, 0)
        loading.proof = "proven"
        await until(lambda: router.replicas[1].serves("policy"))
        await asyncio.gather(*(router.generate(ask(number)) for number in range(10, 30)))
        assert loading.asked > 0


async def test_one_that_differs_in_the_middle_of_a_run_gives_its_requests_to_the_others(tmp_path: Path) -> None:
    right, turned = Told(), Told()
    async with fleet(tmp_path, right, turned) as (router, urls):
        await router.deploy(SPEC)
        turned.proof = "differs"  # before any look knows of it, requests still go there
        answers = await asyncio.gather(*(router.generate(ask(number)) for number in range(20)))
        assert len(answers) == right.asked == 20
        await until(lambda: not router.replicas[1].serves("policy"))
        asked = turned.asked
        for number in range(8):
            await router.generate(ask(number))
        status = router.statuses()[0]
        assert turned.asked == asked and status.state == "serving" and router.health().ok
        assert [engine.url for engine in status.engines if engine.proof == "differs"] == [urls[1]]
        # The last one, too: at once, and in words, instead of at the deadline.
        right.proof = "differs"
        await until(lambda: not router.replicas[0].serves("policy"))
        with pytest.raises(AllReplicasMismatch, match="does not compute version 1"):
            await router.generate(ask(99, seconds=600.0))
        assert not router.health().ok and "does not compute version 1" in router.health().error


async def test_a_deployment_that_no_engine_computes_is_refused_and_stands_nowhere(tmp_path: Path) -> None:
    first, second = Told(), Told()
    first.refuses = second.refuses = WeightMismatch("this engine does not compute version 1")
    async with fleet(tmp_path, first, second) as (router, _):
        with pytest.raises(ServerError, match="does not compute version 1") as refusal:
            await router.deploy(SPEC)
        assert refusal.value.code == "engine_differs" and router.statuses() == []
        first.refuses = None
        second.refuses = UnsupportedModel("this engine cannot hold it")
        with pytest.raises(ServerError, match="cannot hold it"):
            await router.deploy(SPEC)
        assert first.placed == {} and router.statuses() == []
        second.refuses = None
        assert (await router.deploy(SPEC)).state == "serving"


async def test_replicas_behind_one_name_join_and_leave_while_requests_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `--scale engine=N` of compose makes them: one name, one port, an address each."""
    first, second = Told(), Told()
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(listening(first, "127.0.0.1"))
        port = int(url.rpartition(":")[2])
        await stack.enter_async_context(listening(second, "127.0.0.2", port))
        known = ["127.0.0.1"]
        resolve = socket.getaddrinfo

        def told(host: str, asked: int, **fields: Any) -> list[Any]:
            if host != "engine":
                return resolve(host, asked, **fields)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, asked)) for one in known]

        monkeypatch.setattr(socket, "getaddrinfo", told)
        monkeypatch.setattr("trainer.inference.discovery.RESOLVE_SECONDS", 0.5)
        fixed = [ReplicaSpec(url=f"http://engine:{port}", each=True)]
        router = Router(
            tmp_path / "none.json",
            fixed=fixed,
            memory=tmp_path / "memory.json",
            policy=BorrowPolicy(),
            poll_seconds=0.02,
        )
        await router.start()
        stack.push_async_callback(router.stop)
        await router.deploy(SPEC)
        ended, answers = asyncio.Event(), 0

        async def stream(number: int) -> None:
            nonlocal answers
            while not ended.is_set():
                answer = await router.generate(ask(number))
                answers += len(answer.token_ids)
                number += 8
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(stream(number))
            await until(lambda: answers > 20)
            known.append("127.0.0.2")
            await until(lambda: second.asked > 5)
            known.remove("127.0.0.1")
            await until(lambda: [replica.spec.url for replica in router.replicas] == [f"http://127.0.0.2:{port}"])
            asked = first.asked
            went_on = answers
            await until(lambda: answers > went_on + 20)
            ended.set()
        assert first.asked == asked and answers == first.asked + second.asked
        assert first.placed == {} and second.placed == {"policy": SPEC}
