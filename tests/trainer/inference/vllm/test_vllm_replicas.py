"""vLLM servers that come and go behind the server in front of them, while requests are in flight: none is lost.

Asked in this process, where nobody asks again for a request that failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import torch

from tests.trainer.inference import models
from tests.trainer.inference.conftest import long_model, vllm_double, write_members
from trainer.inference.contract import DeploymentSpec, GenerateRequest, GenerateResponse
from trainer.inference.errors import Unavailable
from trainer.inference.verify_weights import WeightMismatch
from trainer.inference.vllm.server import VllmEngine
from trainer.weights import WeightStore

pytestmark = pytest.mark.integration


@dataclass
class Front:
    engine: VllmEngine
    file: Path
    urls: list[str]
    policy_dir: Path
    root: Path

    def listed(self, *urls: str) -> None:
        write_members(self.file, [{"url": url} for url in urls])

    def servers(self) -> list[str]:
        return [server.url for server in self.engine.health().servers]

    def places(self) -> dict[str, set[str]]:
        return {worker.spec.url: {d.name for d in worker.placed} for worker in self.engine.workers}

    async def deploy(self, name: str, version: int) -> None:
        store = WeightStore(self.root / name, dtype="float32")
        store.publish(0, long_model(version).state_dict())
        spec = DeploymentSpec(name=name, policy_dir=str(self.policy_dir), store=str(store.root), version=0)
        await self.engine.deploy(spec)


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    """Two doubles, of which the first is listed."""
    policy_dir = models.save(long_model(0), tmp_path / "policy")
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(vllm_double(policy_dir, tmp_path / name)) for name in ("first", "second")]
        file = tmp_path / "members.json"
        write_members(file, [{"url": urls[0]}])
        engine = VllmEngine([], replicas=file, data=tmp_path / "data", turn_seconds=0.2, poll_seconds=0.02)
        await engine.start()
        try:
            yield Front(engine, file, urls, policy_dir, tmp_path)
        finally:
            await engine.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not condition():
            await asyncio.sleep(0.01)


def ask(deployment: str, seed: int, tokens: int = 8) -> GenerateRequest:
    prompt = [5, 17, 80, 1 + seed % 90, 1 + seed // 90 % 90]
    return GenerateRequest(
        deployment=deployment, prompt_ids=prompt, max_tokens=tokens, seed=seed, timeout_seconds=120.0
    )


def check(version: int, request: GenerateRequest, answer: GenerateResponse) -> None:
    assert len(answer.token_ids) == request.max_tokens
    expected = models.logprobs(long_model(version), request.prompt_ids, answer.token_ids, 1.0)
    assert (expected - torch.tensor(answer.logprobs)).abs().max() < 1e-4


async def made(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        return int((await client.get(f"{url}/tokens")).json())


async def stand_still(url: str, *, still: bool = True) -> None:
    """Pause a double that generates, or let it go on."""
    async with httpx.AsyncClient(trust_env=False) as client:
        path, mode = ("/pause", {"mode": "keep"}) if still else ("/resume", {})
        (await client.post(f"{url}{path}", params=mode)).raise_for_status()


async def more(url: str, than: int) -> None:
    """Until a double has generated more tokens."""
    async with asyncio.timeout(90):
        while await made(url) <= than:
            await asyncio.sleep(0.02)


@pytest.mark.timeout(240)
async def test_servers_join_and_leave_under_requests_and_none_is_lost(front: Front) -> None:
    await front.deploy("run-1", 1)
    await front.deploy("eval-1", 2)
    versions = {"run-1": 1, "eval-1": 2}
    ended = asyncio.Event()
    answered = asyncio.Semaphore(0)

    async def stream(name: str, number: int) -> int:
        """One request after another, to the end; how many."""
        asked = 0
        while not ended.is_set():
            request = ask(name, seed=100 * number + asked, tokens=24)
            check(versions[name], request, await front.engine.generate(request))
            asked += 1
            answered.release()
        return asked

    async with asyncio.TaskGroup() as group:
        streams = [group.create_task(stream(("run-1", "eval-1")[n % 2], n)) for n in range(6)]
        for _ in range(6):
            await answered.acquire()
        assert front.places() == {front.urls[0]: {"run-1", "eval-1"}}

        front.listed(*front.urls)  # the second one joins, and takes over the one that waits for its turn
        await until(lambda: all(len(names) == 1 for names in front.places().values()) and len(front.places()) == 2)
        await more(front.urls[1], await made(front.urls[1]))
        for _ in range(12):
            await answered.acquire()

        front.listed(front.urls[1])  # the first one leaves
        await until(lambda: front.servers() == [front.urls[1]])
        await until(lambda: front.places() == {front.urls[1]: {"run-1", "eval-1"}})
        left = await made(front.urls[0])
        await more(front.urls[1], await made(front.urls[1]))
        for _ in range(12):
            await answered.acquire()
        assert await made(front.urls[0]) == left
        ended.set()
    assert all(task.result() > 0 for task in streams)


@pytest.mark.timeout(240)
async def test_a_server_that_leaves_ends_what_it_runs_and_is_shown_meanwhile(front: Front) -> None:
    await front.deploy("run-1", 1)
    long = ask("run-1", 3, tokens=2000)
    running = asyncio.create_task(front.engine.generate(long))
    before = await made(front.urls[0])
    await more(front.urls[0], before)
    await stand_still(front.urls[0])  # else it may end before the other one has the weights
    front.listed(front.urls[1])
    await until(lambda: front.places().get(front.urls[1]) == {"run-1"})
    leaving = next(server for server in front.engine.health().servers if server.url == front.urls[0])
    assert leaving.leaving and leaving.running == 1 and not running.done()
    check(1, ask("run-1", 4), await front.engine.generate(ask("run-1", 4)))  # the other one serves meanwhile
    assert not running.done()
    await stand_still(front.urls[0], still=False)
    check(1, long, await running)
    await until(lambda: front.servers() == [front.urls[1]])


@pytest.mark.timeout(240)
async def test_without_any_server_requests_are_told_where_to_add_one(front: Front) -> None:
    await front.deploy("run-1", 1)
    front.listed()
    await until(lambda: front.servers() == [])
    health = front.engine.health()
    assert not health.ok and f"there is none in {front.file}; add one" in health.error
    await until(lambda: bool(front.engine.statuses()[0].error))
    with pytest.raises(Unavailable, match=r"'run-1' has no server yet: no vLLM server: there is none in .*; add one"):
        await front.engine.generate(ask("run-1", 1))
    front.listed(front.urls[1])
    await until(lambda: front.places() == {front.urls[1]: {"run-1"}})
    check(1, ask("run-1", 1), await front.engine.generate(ask("run-1", 1)))
    front.file.write_text("nonsense")
    await until(lambda: "Invalid JSON" in front.engine.health().error)
    assert front.engine.health().ok and front.servers() == [front.urls[1]]


@pytest.mark.timeout(240)
async def test_weights_that_change_under_a_server_are_found_while_it_serves(front: Front) -> None:
    """Nothing was loaded and no label changed: it is asked again what it said before."""
    await front.deploy("run-1", 1)
    (worker,) = front.engine.workers
    worker.engine_state.verify_seconds = 0.2
    await until(lambda: worker.engine_state.well_at > 0)
    for seed in range(3):  # compared between requests, and well
        check(1, ask("run-1", seed), await front.engine.generate(ask("run-1", seed)))
    assert front.engine.statuses()[0].proof == "proven"
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        await client.post(f"{front.urls[0]}/drift")
    await until(lambda: front.engine.statuses()[0].proof == "differs")
    words = front.engine.statuses()[0].error
    assert "does not compute version 0 of 'run-1'" in words and "restart that engine" in words
    assert "Found while it served; it computed well" in words and not front.engine.health().ok
    with pytest.raises(WeightMismatch, match="Found while it served"):
        await front.engine.generate(ask("run-1", 1))
    front.listed(front.urls[1])  # a remedy
    await until(lambda: front.places() == {front.urls[1]: {"run-1"}})
    check(1, ask("run-1", 1), await front.engine.generate(ask("run-1", 1)))


@pytest.mark.timeout(240)
async def test_what_a_server_computed_wrongly_counts_nothing_against_the_next_one(front: Front) -> None:
    """Taking the wrong one off the list is a remedy."""
    await front.deploy("run-1", 1)
    httpx.post(f"{front.urls[0]}/lie", trust_env=False)
    store = WeightStore(front.root / "run-1", dtype="float32")
    store.publish(1, long_model(2).state_dict(), anchor=True)
    with pytest.raises(WeightMismatch):
        await front.engine.update("run-1", 1)
    with pytest.raises(WeightMismatch, match="does not compute version 1"):
        await front.engine.generate(ask("run-1", 1))
    front.listed(front.urls[1])
    await until(lambda: front.places() == {front.urls[1]: {"run-1"}})
    check(2, ask("run-1", 1), await front.engine.generate(ask("run-1", 1)))
    assert front.engine.health().ok and front.engine.statuses()[0].proof == "proven"
