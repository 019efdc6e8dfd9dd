"""Several engines behind one address: affinity, engines that die, leave, come, and are borrowed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.trainer.inference import models
from tests.trainer.inference.conftest import CONTEXT, long_model, router, wait_for, write_members
from trainer.inference.client import Connections, HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import (
    DeploymentSpec,
    DeploymentStatus,
    GenerateRequest,
    GenerateResponse,
    ServerHealth,
    SyncTimings,
)
from trainer.inference.discovery import ReplicaSpec, read_replicas
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.inference.errors import BadRequest, ServerError
from trainer.inference.router.affinity import SLACK, Affinity
from trainer.inference.router.merge import merged
from trainer.inference.router.replicas import BorrowPolicy, Replica
from trainer.inference.router.server import Router
from trainer.weights import WeightStore

pytestmark = pytest.mark.integration

PROMPT = [5, 17, 80, 3, 44, 44, 9, 12, 30, 31]


@dataclass(eq=False)
class Place:
    name: str
    running: set[int] = field(default_factory=set)


def ask(prompt: list[int] = PROMPT, **fields: object) -> GenerateRequest:
    return GenerateRequest.model_validate({"prompt_ids": prompt, "max_tokens": 8, "timeout_seconds": 60.0} | fields)


def test_an_episode_stays_where_its_keys_are_and_a_group_keeps_together() -> None:
    a, b = Place("a"), Place("b")
    affinity: Affinity[Place] = Affinity()
    first = affinity.choose(ask(session="s"), [a, b])
    first.running |= set(range(3))
    assert affinity.choose(ask([1, 2, 3], session="s"), [a, b]) is first  # the next turn
    assert affinity.choose(ask(session="t"), [a, b]) is first  # another of the group
    assert affinity.choose(ask([7, 7]), [a, b]) is not first  # a stranger goes where there is room
    first.running |= set(range(SLACK + 4))
    assert affinity.choose(ask(session="u"), [a, b]) is not first  # too busy even for a group
    assert affinity.choose(ask([1, 2, 4], session="s"), [a, b]) is first
    assert affinity.choose(ask(session="s"), [b if first is a else a]) is not first  # it is gone
    affinity.forget(first)
    bounded: Affinity[Place] = Affinity(remembered=3)
    for number in range(50):
        bounded.choose(ask([number], session=f"s{number}"), [a, b])
    assert len(bounded._places) == 3


def health(**running: int) -> ServerHealth:
    statuses = [
        DeploymentStatus(name=name, version=0, digest="", state="serving", follow=False, running=count)
        for name, count in running.items()
    ]
    return ServerHealth(ok=True, engine="embedded", deployments=statuses)


def test_production_is_lent_when_idle_and_given_back_within_the_bound() -> None:
    policy = BorrowPolicy(idle_seconds=10.0, reclaim_seconds=2.0)
    replica = Replica.of(ReplicaSpec(url="http://production", production=True))
    replica.saw(health(theirs=1), policy, now=0.0)
    replica.saw(health(theirs=0), policy, now=5.0)
    assert not replica.wanted
    replica.saw(health(theirs=0), policy, now=14.9)
    assert not replica.wanted
    replica.saw(health(theirs=0), policy, now=15.0)
    assert replica.wanted
    replica.served["ours"] = DeploymentSpec(name="ours", policy_dir="x")
    replica.saw(health(theirs=0, ours=40), policy, now=16.0)  # our own work does not count as theirs
    assert replica.wanted
    replica.saw(health(theirs=1, ours=40), policy, now=20.0)
    assert not replica.wanted and replica.reclaim(now=21.9) == 0 and replica.reclaim_at == 22.0
    assert replica.reclaim(now=22.0) == 0 and replica.reclaim_at is None  # nothing ran
    replica.served["new"] = DeploymentSpec(name="new", policy_dir="x")
    replica.saw(health(theirs=1), policy, now=23.0, asked_with=frozenset({"ours"}))  # asked before it was deployed
    assert set(replica.served) == {"new"}
    assert vars(BorrowPolicy()) == {"idle_seconds": 10.0, "reclaim_seconds": 2.0}
    own = Replica.of(ReplicaSpec(url="http://own"))
    own.saw(health(theirs=9), policy, now=0.0)
    assert own.wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[{}]", "0.url: Field required"),
        ('[{"url": "ftp://x"}]', "0.url"),
        ('[{"url": "http://x"}, {"url": "http://x"}]', "twice"),
        ("nonsense", "Invalid JSON"),
    ],
)
def test_a_bad_list_of_members_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadRequest, match="does not exist"):
        read_replicas(tmp_path / "members.json")
    (tmp_path / "members.json").write_text(text)
    with pytest.raises(BadRequest) as caught:
        read_replicas(tmp_path / "members.json")
    assert words in str(caught.value)


@dataclass
class Fleet:
    engines: list[EmbeddedServer]
    file: Path
    url: str
    admin: InferenceAdmin

    def made(self) -> list[int]:
        """Tokens of deployment `policy` by engine."""
        counts = []
        for engine in self.engines:
            with InferenceAdmin(engine.url) as admin:
                counts.append(sum(d.generated_tokens for d in admin.deployments() if d.name == "policy"))
        return counts

    def replicas(self, *engines: EmbeddedServer, **fields: object) -> None:
        """`fields` are of the last one."""
        listed: list[dict[str, object]] = [{"url": engine.url} for engine in engines]
        listed[-1] |= fields
        write_members(self.file, listed)
        wait_for(lambda: {s.url for s in self.admin.health().servers} == {e.url for e in engines}, "the members")

    def serving(self, count: int) -> None:
        wait_for(lambda: sum("policy" in s.deployment for s in self.admin.health().servers) == count, f"{count} serve")


async def test_a_look_does_not_place_what_is_being_placed(tmp_path: Path) -> None:
    """An engine that takes its time over a policy that it then refuses, looked at meanwhile."""
    asked, looked_at, let_go = asyncio.Event(), asyncio.Event(), asyncio.Event()
    placed = 0

    async def engine(request: httpx.Request) -> httpx.Response:
        nonlocal placed
        if request.url.path == "/health":
            if asked.is_set():
                looked_at.set()
            return httpx.Response(200, json=health().model_dump(mode="json"))
        placed += 1
        asked.set()
        await let_go.wait()
        return httpx.Response(400, json={"error": {"code": "unsupported_model", "message": "it does not exist"}})

    spec = ReplicaSpec(url="http://slow")
    client = httpx.AsyncClient(base_url=spec.url, transport=httpx.MockTransport(engine))
    write_members(tmp_path / "members.json", [spec.model_dump()])
    router = Router(tmp_path / "members.json", memory=tmp_path / "memory.json", policy=BorrowPolicy())
    router.registry.replicas.append(Replica(spec, Connections(spec.url), client))
    await router._look()
    deploying = asyncio.create_task(router.deploy(DeploymentSpec(name="x", policy_dir="/nowhere")))
    await asyncio.wait_for(asked.wait(), 30)
    looking = asyncio.create_task(router._look())
    await asyncio.wait_for(looked_at.wait(), 30)
    for _ in range(20):  # the look goes on from the answer, as far as it may
        await asyncio.sleep(0)
    let_go.set()
    with pytest.raises(ServerError, match="it does not exist"):
        await asyncio.wait_for(deploying, 30)
    await asyncio.wait_for(looking, 30)
    assert placed == 1 and not router.specs
    await router.replicas[0].aclose()


def test_what_each_engine_says_stays_beside_what_they_are_together() -> None:
    """Sync timings above all: a cluster that swaps slowly must not hide behind one that does not."""
    spec = DeploymentSpec(name="policy", policy_dir="x")

    def part(version: int, pause: float, **counts: int) -> DeploymentStatus:
        sync = SyncTimings(version=version, kind="delta", pause=pause)
        return DeploymentStatus(
            name="policy", version=version, digest="", state="serving", follow=True, last_sync=sync, **counts
        )

    near, far = (ReplicaSpec(url=f"http://{name}", cluster=name) for name in ("near", "far"))
    whole = merged(
        spec,
        {
            near: part(4, 0.01, prompt_tokens=10, reused_tokens=8, preemptions=1),
            far: part(3, 0.75, prompt_tokens=30, reused_tokens=3, preemptions=2),
        },
    )
    assert (whole.version, whole.prompt_tokens, whole.reused_tokens, whole.preemptions) == (3, 40, 11, 3)
    told = [(e.url, e.cluster, e.version, e.last_sync and e.last_sync.pause, e.reused_tokens) for e in whole.by_engine]
    assert told == [("http://near", "near", 4, 0.01, 8), ("http://far", "far", 3, 0.75, 3)]
    behind = ReplicaSpec(url="http://router", cluster="region")  # a router behind a router
    again = merged(spec, {behind: whole})
    assert [(e.url, e.cluster) for e in again.engines] == [("http://near", "region"), ("http://far", "region")]
    assert merged(spec, {}).by_engine[0].version == -1


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    root = tmp_path_factory.mktemp("fleet")
    policy_dir = models.save(long_model(0), root / "policy")
    with contextlib.ExitStack() as stack:
        arguments = ("--max-context", str(CONTEXT), "--max-num-seqs", "32")
        engines = [
            stack.enter_context(EmbeddedServer(root / name, arguments=arguments)) for name in ("first", "second")
        ]
        server = stack.enter_context(
            router(root / "router", [e.url for e in engines], "--idle-seconds", "0.1", "--reclaim-seconds", "0.2")
        )
        admin = stack.enter_context(InferenceAdmin(server.url))
        admin.deploy(DeploymentSpec(name="policy", policy_dir=str(policy_dir)))
        yield Fleet(engines, root / "router" / "members.json", server.url, admin)


async def all_of(fleet: Fleet, requests: list[GenerateRequest]) -> list[GenerateResponse]:
    async with HttpInferenceClient(fleet.url) as client:
        return list(await asyncio.gather(*map(client.generate, requests)))


async def test_groups_spread_over_engines_and_share_their_prompt(fleet: Fleet) -> None:
    before = fleet.made()
    groups = [[number, *PROMPT] for number in range(4)]
    answers = await all_of(fleet, [ask(prompt, seed=n) for prompt in groups for n in range(4)])
    assert all(count > old for count, old in zip(fleet.made(), before, strict=True))
    assert sum(answer.reused_tokens for answer in answers) == 4 * 3 * len(PROMPT)
    status = next(d for d in fleet.admin.deployments() if d.name == "policy")
    assert {engine.url for engine in status.engines} == {engine.url for engine in fleet.engines}
    assert sum(engine.prompt_tokens for engine in status.engines) == status.prompt_tokens > 0
    again = await all_of(fleet, [ask(prompt, seed=n) for prompt in groups for n in range(4)])
    assert [a.token_ids for a in again] == [a.token_ids for a in answers]


async def test_requests_go_to_the_engine_that_follows_and_to_one_that_lags_only_where_there_is_no_other(
    fleet: Fleet, tmp_path: Path
) -> None:
    store = WeightStore(tmp_path / "weights", dtype="float32")
    for version in range(3):
        store.publish(version, long_model(version).state_dict())
    policy_dir = models.save(long_model(0), tmp_path / "policy")
    spec = DeploymentSpec(name="two", policy_dir=str(policy_dir), store=str(store.root), version=0)
    await asyncio.to_thread(fleet.admin.deploy, spec)
    with InferenceAdmin(fleet.engines[1].url) as second:
        await asyncio.to_thread(second.update, "two", 2)

    def versions() -> dict[str, int]:
        status = next(d for d in fleet.admin.deployments() if d.name == "two")
        return {engine.url: engine.version for engine in status.engines}

    first, second_url = (engine.url for engine in fleet.engines)
    await asyncio.to_thread(wait_for, lambda: versions() == {first: 0, second_url: 2}, "two versions")
    questions = [ask([number, *PROMPT], deployment="two") for number in range(8)]
    answers = await all_of(fleet, questions)
    assert {span.version for answer in answers for span in answer.spans} == {2}
    asked = await all_of(fleet, [question.model_copy(update={"min_version": 1}) for question in questions])
    assert {span.version for answer in asked for span in answer.spans} == {2}
    await asyncio.to_thread(fleet.replicas, fleet.engines[0])
    alone = await all_of(fleet, questions)
    assert {span.version for answer in alone for span in answer.spans} == {0}
    await asyncio.to_thread(fleet.replicas, *fleet.engines)
    await asyncio.to_thread(fleet.serving, 2)
    await asyncio.to_thread(fleet.admin.remove, "two")


async def test_an_engine_that_dies_loses_no_request_and_comes_back(fleet: Fleet) -> None:
    requests = [ask([number, 3, 4], max_tokens=700, seed=number) for number in range(8)]
    running = asyncio.create_task(all_of(fleet, requests))
    before = fleet.made()
    await asyncio.to_thread(wait_for, lambda: all(a > b for a, b in zip(fleet.made(), before, strict=True)), "both run")
    fleet.engines[1].kill()
    answers = await running
    assert [len(answer.token_ids) for answer in answers] == [700] * 8
    await asyncio.to_thread(fleet.serving, 1)
    await asyncio.to_thread(fleet.engines[1].start)
    await asyncio.to_thread(fleet.serving, 2)


async def test_an_engine_leaves_after_its_work_and_joins_again_while_requests_run(fleet: Fleet) -> None:
    requests = [ask([number, 8, 9], max_tokens=500, seed=number) for number in range(6)]
    running = asyncio.create_task(all_of(fleet, requests))
    before = fleet.made()
    await asyncio.to_thread(wait_for, lambda: all(a > b for a, b in zip(fleet.made(), before, strict=True)), "both run")
    await asyncio.to_thread(fleet.replicas, fleet.engines[0])  # returns once the other has drained and left
    assert len(fleet.admin.health().servers) == 1
    await running
    kept = fleet.made()[1]
    await all_of(fleet, [ask([number], seed=1) for number in range(6)])
    assert fleet.made()[1] == kept
    await asyncio.to_thread(fleet.replicas, *fleet.engines)
    await asyncio.to_thread(fleet.serving, 2)


@pytest.mark.slow
async def test_borrowed_production_capacity_is_given_back_to_its_owners(fleet: Fleet, tmp_path: Path) -> None:
    policy_dir = models.save(long_model(1), tmp_path / "theirs")
    await asyncio.to_thread(fleet.replicas, fleet.engines[0])
    await asyncio.to_thread(fleet.replicas, *fleet.engines, production=True)
    with InferenceAdmin(fleet.engines[1].url) as owners:
        owners.deploy(DeploymentSpec(name="theirs", policy_dir=str(policy_dir)))
        await asyncio.to_thread(fleet.serving, 2)  # it is idle, so it is lent
        before = fleet.made()
        requests = [ask([number, 6], max_tokens=1500, seed=number) for number in range(6)]
        running = asyncio.create_task(all_of(fleet, requests))
        await asyncio.to_thread(
            wait_for, lambda: all(a > b for a, b in zip(fleet.made(), before, strict=True)), "both run"
        )
        async with HttpInferenceClient(fleet.engines[1].url) as owner:
            theirs = asyncio.create_task(owner.generate(ask(deployment="theirs", max_tokens=3000)))
            await asyncio.to_thread(fleet.serving, 1)  # ours have been moved, and our weights are gone
            await theirs
        answers = await running
        assert [len(answer.token_ids) for answer in answers] == [1500] * 6
        owners.remove("theirs")
    await asyncio.to_thread(fleet.replicas, *fleet.engines)
