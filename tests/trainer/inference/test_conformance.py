"""The inference contract over real HTTP. Everything here holds for any server of the contract.

The embedded server runs it in `make test`; behind a router, and as the server in front of vLLM over a double of vLLM, it is run
by `make test-integration`. The parts that need a server process
to be killed are in `test_restart`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import torch

from tests.trainer.inference import models
from tests.trainer.inference.conftest import Site, wait_for
from tests.trainer.router_replay import moe
from trainer.inference.client import HttpInferenceClient
from trainer.inference.contract import GenerateRequest, GenerateResponse, InferenceError, InferenceRefused
from trainer.policy.names import checkpoint_state
from trainer.weights import WeightStore
from trainer.weights.probe import measure_model

PROMPT = [5, 17, 80, 3, 44, 44, 9]


@pytest.fixture
async def client(site: Site) -> AsyncIterator[HttpInferenceClient]:
    async with HttpInferenceClient(site.server.url) as client:
        yield client


def ask(deployment: str, **fields: object) -> GenerateRequest:
    wanted = {"deployment": deployment, "prompt_ids": PROMPT, "max_tokens": 16, "seed": 1, "timeout_seconds": 30.0}
    return GenerateRequest.model_validate(wanted | fields)


def check(site: Site, version: int, request: GenerateRequest, answer: GenerateResponse) -> None:
    expected = models.logprobs(site.model(version), request.prompt_ids, answer.token_ids, request.temperature)
    assert (expected - torch.tensor(answer.logprobs)).abs().max() < 1e-4


async def test_logprobs_versions_and_determinism(site: Site, client: HttpInferenceClient) -> None:
    status = site.deploy("plain")
    assert status.state == "serving" and status.version == 0
    request = ask("plain", temperature=0.8)
    began = time.perf_counter()
    first, *rest = await asyncio.gather(
        client.generate(request), *(client.generate(ask("plain", seed=s, prompt_ids=[s + 1] * 30)) for s in range(20))
    )
    passed = time.perf_counter() - began
    assert len(rest) == 20 and all(len(a.token_ids) == 16 for a in rest)
    assert all(0 < answer.seconds < passed for answer in (first, *rest)), "by the engine's own clock"
    check(site, 0, request, first)
    assert [(s.version, s.start, s.end) for s in first.spans] == [(0, 0, 16)] and first.finish_reason == "length"
    assert (await client.generate(request)).token_ids == first.token_ids
    assert (await client.generate(ask("plain", temperature=0.8, seed=2))).token_ids != first.token_ids
    assert (await client.generate(ask("plain", seed=None))).token_ids != (
        await client.generate(ask("plain", seed=None))
    ).token_ids


async def test_stop_ids_end_generation_and_are_kept(site: Site, client: HttpInferenceClient) -> None:
    site.deploy("stops")
    free = await client.generate(ask("stops"))
    stop = free.token_ids[5]
    answer = await client.generate(ask("stops", stop_ids=[stop]))
    assert answer.finish_reason == "stop"
    assert answer.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]


async def test_a_session_reuses_its_prefix(site: Site, client: HttpInferenceClient) -> None:
    site.deploy("sessions")
    first = await client.generate(ask("sessions", session="episode-1"))
    longer = ask("sessions", session="episode-1", prompt_ids=[*PROMPT, *first.token_ids, 7, 8, 9])
    second = await client.generate(longer)
    if not site.vllm:
        assert second.reused_tokens == len(PROMPT) + len(first.token_ids) - 1
    check(site, 0, longer, second)
    assert (await client.generate(longer.model_copy(update={"session": "other"}))).token_ids == second.token_ids


async def test_a_running_request_tells_its_tokens_and_who_reads_them_changes_none(
    site: Site, client: HttpInferenceClient
) -> None:
    site.deploy("told")
    request = ask("told", max_tokens=site.long // 3, temperature=0.8, session="episode", partial=True)
    assert await client.partial("told", "episode", timeout=10.0) == []
    running, seen = asyncio.create_task(client.generate(request)), []
    async with asyncio.timeout(60):
        while not running.done():
            seen.append(await client.partial("told", "episode", timeout=10.0))
            await asyncio.sleep(0.005)
    answer = await running
    seen = [tokens for tokens in seen if tokens]
    assert all(answer.token_ids[: len(tokens)] == tokens for tokens in seen), "a beginning of the answer, each time"
    lengths = [len(tokens) for tokens in seen]
    assert lengths == sorted(lengths) and len(set(lengths)) > 3, "more each time, long before the answer"
    for deployment, session in (("told", "episode"), ("told", "another"), ("another", "episode")):
        assert await client.partial(deployment, session, timeout=10.0) == []
    assert (await client.generate(request)).token_ids == answer.token_ids, "as when nobody reads"
    with pytest.raises(InferenceRefused, match="deployment=NAME&session=NAME"):
        await client.partial("told", "", timeout=10.0)


async def test_weights_swap_in_flight(site: Site, client: HttpInferenceClient) -> None:
    store = site.store("swap", versions=1)
    site.deploy("swap", store, follow=True)
    for version in range(1, 6):  # on a busy machine an answer may be complete before the next version is there
        running = asyncio.create_task(client.generate(ask("swap", max_tokens=site.long)))
        await asyncio.to_thread(site.wait_for_tokens, "swap")
        await asyncio.to_thread(store.publish, version, site.model(version).state_dict())
        answer = await running
        if len(answer.spans) > 1:
            break
        await asyncio.to_thread(site.wait_for_version, "swap", version)
    assert [s.version for s in answer.spans] == [version - 1, version]
    assert answer.spans[0].end == answer.spans[1].start > 0
    assert answer.spans[1].end == len(answer.token_ids) == site.long
    cut = answer.spans[0].end
    expected = models.logprobs(site.model(version - 1), PROMPT, answer.token_ids[:cut])
    assert (expected - torch.tensor(answer.logprobs[:cut])).abs().max() < 1e-4
    status = site.status("swap")
    assert status.version == version and status.digest == store.manifest(version).digest
    assert status.last_sync is not None and status.last_sync.kind == "delta"
    request = ask("swap")
    check(site, version, request, await client.generate(request))


async def test_a_request_for_a_newer_version_waits_for_it(site: Site, client: HttpInferenceClient) -> None:
    store = site.store("lagging", versions=1)
    site.deploy("lagging", store, follow=True)
    with pytest.raises(InferenceError, match="serves version 0, and version 1 was asked for"):
        await client.generate(ask("lagging", min_version=1, timeout_seconds=0.2))
    waiting = asyncio.create_task(client.generate(ask("lagging", min_version=1)))
    await asyncio.to_thread(store.publish, 1, site.model(1).state_dict())
    answer = await waiting
    assert {span.version for span in answer.spans} == {1}


async def test_each_phase_of_a_swap_is_measured_once(site: Site, client: HttpInferenceClient) -> None:
    store = site.store("phases", versions=2)
    site.deploy("phases", store, version=0)
    running = asyncio.create_task(client.generate(ask("phases", max_tokens=site.long)))
    await asyncio.to_thread(site.wait_for_tokens, "phases")
    began = time.perf_counter()
    timings = await asyncio.to_thread(site.admin.update, "phases", 1)
    clock = time.perf_counter() - began
    phases = {name: getattr(timings, name) for name in ("fetch", "decode", "wait", "pause", "apply", "resume")}
    assert all(seconds > 0 for seconds in phases.values()), phases
    assert timings.pause == pytest.approx(timings.apply + timings.resume)
    assert timings.seconds == pytest.approx(timings.fetch + timings.decode + timings.wait + timings.pause)
    assert timings.seconds < clock, "no second counts twice"
    if site.engine != "router":  # it says what it measured to everybody
        assert site.status("phases").last_sync == timings
    await running


async def test_pause_update_resume(site: Site, client: HttpInferenceClient) -> None:
    store = site.store("paused", versions=2)
    site.deploy("paused", store, version=0)
    running = asyncio.create_task(client.generate(ask("paused", max_tokens=site.long)))
    await asyncio.to_thread(site.wait_for_tokens, "paused")
    assert site.admin.pause("paused").state == "paused"
    stood = site.status("paused").generated_tokens
    timings = site.admin.update("paused", 1)
    assert (timings.version, timings.kind) == (1, "delta") and timings.bytes == store.manifest(1).payload_bytes
    assert site.status("paused").generated_tokens == stood and not running.done()
    assert site.admin.resume("paused").state == "serving"
    answer = await running
    cut = stood if not site.vllm else answer.spans[0].end
    assert 0 < cut < site.long
    assert [(s.version, s.start, s.end) for s in answer.spans] == [(0, 0, cut), (1, cut, site.long)]
    assert site.admin.update("paused").kind == "none"
    assert site.admin.update("paused", 0).version == 0  # back to a named version


async def test_a_pinned_version_stays_and_is_kept(site: Site, client: HttpInferenceClient) -> None:
    store = site.store("pinned", versions=3)
    assert site.deploy("pinned", store, version=1).version == 1
    store.publish(3, site.model(3).state_dict(), anchor=True)
    assert store.collect(keep=1) == [2]
    request = ask("pinned")
    check(site, 1, request, await client.generate(request))
    site.admin.remove("pinned")
    assert store.collect(keep=1) == [0, 1]


async def test_deployments_side_by_side(site: Site, client: HttpInferenceClient) -> None:
    store = site.store("side", versions=2)
    site.deploy("left", store, version=0)
    site.deploy("right", store, version=1)
    requests = [ask(("left", "right")[n % 2], seed=n) for n in range(8)]
    for number, answer in enumerate(await asyncio.gather(*map(client.generate, requests))):
        check(site, number % 2, requests[number], answer)
    assert site.deploy("left", store, version=0).version == 0  # idempotent
    assert site.deploy("left", store, version=1).version == 1  # another spec replaces it
    site.admin.remove("right")
    with pytest.raises(InferenceError, match=r"unknown_deployment.*right"):
        await client.generate(ask("right"))


async def test_a_deployment_waits_for_the_first_version(site: Site, client: HttpInferenceClient) -> None:
    store = site.store("empty", versions=0)
    assert site.deploy("empty", store, follow=True).state == "loading"
    running = asyncio.create_task(client.generate(ask("empty")))
    await asyncio.to_thread(store.publish, 0, site.model(0).state_dict())
    check(site, 0, ask("empty"), await running)


def post(site: Site, path: str, body: object) -> httpx.Response:
    return httpx.post(site.server.url + path, json=body, timeout=30, trust_env=False)


def test_a_full_queue_is_refused_with_429(site: Site) -> None:
    site.deploy("queue")
    site.admin.pause("queue")

    async def fill() -> list[httpx.Response]:
        body = ask("queue").model_dump()
        async with httpx.AsyncClient(base_url=site.server.url, timeout=30, trust_env=False) as http:
            held = [asyncio.create_task(http.post("/generate", json=body)) for _ in range(4)]
            await asyncio.to_thread(wait_for, lambda: site.status("queue").waiting == 4, "a full queue")
            refused = await http.post("/generate", json=body)
            site.admin.resume("queue")
            return [refused, *await asyncio.gather(*held)]

    refused, *held = asyncio.run(fill())
    assert refused.status_code == 429 and refused.json()["error"]["code"] == "queue_full"
    assert [r.status_code for r in held] == [200] * 4


def test_deadlines_are_kept_while_generating_and_while_paused(site: Site) -> None:
    site.deploy("late")
    late = post(site, "/generate", ask("late", max_tokens=4000, timeout_seconds=0.2).model_dump())
    assert late.status_code == 504 and "of 4000 tokens" in late.json()["error"]["message"]
    site.admin.pause("late")
    paused = post(site, "/generate", ask("late", timeout_seconds=0.2).model_dump())
    assert paused.status_code == 503 and "resume it" in paused.json()["error"]["message"]
    wait_for(lambda: (site.status("late").running, site.status("late").waiting) == (0, 0), "nothing is left")


async def test_a_caller_that_leaves_frees_its_slot(site: Site, client: HttpInferenceClient) -> None:
    site.deploy("left-alone")
    running = asyncio.create_task(client.generate(ask("left-alone", max_tokens=4000)))
    await asyncio.to_thread(wait_for, lambda: site.status("left-alone").running == 1, "it runs")
    running.cancel()
    await asyncio.to_thread(wait_for, lambda: site.status("left-alone").running == 0, "it was given up")
    assert site.status("left-alone").generated_tokens < 4000


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/generate", {"prompt_ids": [], "max_tokens": 1}, 400, "prompt_ids"),
        ("/generate", {"prompt_ids": [1], "max_tokens": 0}, 400, "max_tokens"),
        ("/generate", {"prompt_ids": [1], "max_tokens": 1, "min_p": 1}, 400, "min_p"),
        ("/generate", {"prompt_ids": [1], "max_tokens": 1, "top_p": 0}, 400, "top_p"),
        ("/generate", {"prompt_ids": [models.VOCAB], "max_tokens": 1, "deployment": "input"}, 400, "token id"),
        ("/generate", {"prompt_ids": [1] * 4096, "max_tokens": 1, "deployment": "input"}, 400, "context holds"),
        ("/deployments", {"name": "No Spaces", "policy_dir": "x"}, 400, "name"),
        ("/deployments", {"name": "x", "policy_dir": "/nowhere"}, 400, "config.json does not exist"),
        ("/deployments/none/update", {}, 404, "no deployment 'none'"),
        ("/deployments/input/update", {}, 409, "no weight store"),
    ],
)
def test_bad_input_is_answered_in_words(site: Site, path: str, body: object, status: int, words: str) -> None:
    site.deploy("input")
    answer = post(site, path, body)
    assert answer.status_code == status and words in answer.json()["error"]["message"], answer.text


def test_a_prompt_that_does_not_fit_is_refused_by_code_and_numbers(site: Site) -> None:
    site.deploy("input")
    answer = post(site, "/generate", {"prompt_ids": [1] * 4096, "max_tokens": 1, "deployment": "input"})
    error = answer.json()["error"]
    assert (error["code"], error["details"]["tokens"]) == ("context_exceeded", 4096)
    assert 1 < error["details"]["context"] <= 4096


async def test_at_its_deadline_a_request_keeps_the_tokens_that_were_sampled(site: Site) -> None:
    site.deploy("cut")
    async with HttpInferenceClient(site.server.url) as client:
        for seconds in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0):  # the first that suffices for a token on this machine
            with contextlib.suppress(InferenceError):
                wanted = ask("cut", max_tokens=4000).model_copy(update={"partial": True, "timeout_seconds": seconds})
                answer = await client.generate(wanted)
                break
    assert answer.finish_reason == "abort" and 0 < len(answer.token_ids) < 4000
    assert [(span.version, span.start, span.end) for span in answer.spans] == [(0, 0, len(answer.token_ids))]
    expected = models.logprobs(site.model(0), wanted.prompt_ids, answer.token_ids[:200], 1.0)
    assert (expected - torch.tensor(answer.logprobs[:200])).abs().max() < 1e-3
    await asyncio.to_thread(wait_for, lambda: site.status("cut").running == 0, "it was given up")


def test_damaged_weights_leave_the_old_ones_serving(site: Site) -> None:
    store = site.store("damaged", versions=1)
    site.deploy("damaged", store, follow=True)
    site.admin.pause("damaged")
    broken = Path(store.root) / "v000001"
    store.publish(1, site.model(1).state_dict())
    wait_for(lambda: site.status("damaged").version == 1, "version 1")
    store.versions.request_anchor("the test")
    manifest = store.publish(2, site.model(2).state_dict())
    assert manifest.kind == "anchor" and broken.exists()
    wait_for(lambda: site.status("damaged").version == 2, "version 2")
    staged = store.publish(3, site.model(3).state_dict())
    wait_for(lambda: site.status("damaged").version == 3, "version 3")
    payload = Path(store.root) / "v000003" / staged.payload_name
    payload.write_bytes(payload.read_bytes()[:-9])
    site.admin.update("damaged", 2)
    wait_for(lambda: "version 3" in site.status("damaged").error, "the refusal is shown")
    assert site.status("damaged").version == 2 and store.versions.anchor_requested()
    assert store.publish(4, site.model(4).state_dict()).kind == "anchor"
    # The engine's thread serves version 4 a moment before the loop that fetched it takes the error back.
    wait_for(lambda: (now := site.status("damaged")).version == 4 and now.error == "", "the anchor")


@pytest.mark.parametrize("kind", ["dense", "experts"])
async def test_steps_that_were_followed_are_what_a_fresh_load_is(
    site: Site, client: HttpInferenceClient, kind: str
) -> None:
    """Digest, tokens and every bit of the log-probabilities, three deltas later and after one whole load."""
    if kind == "experts" and site.vllm:
        pytest.skip("a vLLM server holds one architecture: test_vllm_extension and test_vllm_real have experts")
    policy = site.model(0) if kind == "dense" else moe.make("qwen3-moe")
    folder = str(models.save(policy, site.root / f"{kind}-steps"))
    store = WeightStore(site.root / f"{kind}-followed", dtype="float32")
    store.publish(0, checkpoint_state(policy, policy.state_dict()))
    site.deploy(f"{kind}-followed", store, follow=True, policy_dir=folder)
    for version in range(1, 4):
        state = checkpoint_state(policy, models.nudged(policy, version).state_dict())
        assert store.publish(version, state).kind == "delta"
        wait_for(lambda wanted=version: site.status(f"{kind}-followed").version == wanted, "the step")  # type: ignore[misc]
    whole = WeightStore(site.root / f"{kind}-whole", dtype="float32")
    assert whole.publish(3, state).kind == "anchor"
    site.deploy(f"{kind}-whole", whole, version=3, policy_dir=folder)
    assert site.status(f"{kind}-whole").digest == site.status(f"{kind}-followed").digest
    for seed in range(3):  # one at a time: sums depend on the batch
        a, b = [await client.generate(ask(f"{kind}-{name}", seed=seed)) for name in ("followed", "whole")]
        assert (a.token_ids, a.logprobs) == (b.token_ids, b.logprobs) and a.spans == b.spans
    for name in ("followed", "whole"):
        site.admin.remove(f"{kind}-{name}")


async def test_weights_that_an_engine_does_not_compute_as_published_are_not_answered_with(
    site: Site, client: HttpInferenceClient
) -> None:
    """Their publisher knows what they say of a fixed text. At the first load, in the middle of a run, and after it."""
    first = WeightStore(site.root / "differs-first", dtype="float32")
    first.publish(0, site.model(7).state_dict(), probe=measure_model(site.model(5), tokenizer=None, dtype="float32"))

    async def ask_it() -> None:
        site.deploy("differs", first)
        await client.generate(ask("differs"))  # a vLLM that another deployment holds is asked at this one's turn

    with pytest.raises(InferenceRefused, match=r"engine_differs: .*does not compute version 0 of 'differs'.* nats"):
        await ask_it()
    if "differs" in {status.name for status in site.admin.deployments()}:
        assert site.vllm and site.status("differs").proof == "differs"
        site.admin.remove("differs")
    assert site.admin.health().ok

    store = WeightStore(site.root / "differs", dtype="float32")
    store.publish(0, site.model(0).state_dict(), probe=measure_model(site.model(0), tokenizer=None, dtype="float32"))
    site.deploy("differs", store, follow=True)
    await client.generate(ask("differs"))
    assert site.status("differs").proof == "proven"
    store.publish(
        1, site.model(1).state_dict(), anchor=True, probe=measure_model(site.model(5), tokenizer=None, dtype="float32")
    )
    wait_for(lambda: site.status("differs").proof == "differs", "the refusal")
    assert site.status("differs").state == "failed"
    health = site.admin.health()
    assert not health.ok and "does not compute version 1 of 'differs'" in health.error
    with pytest.raises(InferenceRefused, match="does not compute version 1 of 'differs'"):
        await client.generate(ask("differs"))

    store.publish(
        2, site.model(2).state_dict(), anchor=True, probe=measure_model(site.model(2), tokenizer=None, dtype="float32")
    )
    wait_for(lambda: site.status("differs").version == 2, "other weights")
    wait_for(lambda: site.admin.health().ok, "all is well")
    request = ask("differs")
    answer = await client.generate(request)
    assert [span.version for span in answer.spans] == [2]
    check(site, 2, request, answer)
    site.admin.remove("differs")


def test_health_tells_load_and_deployments(site: Site) -> None:
    site.deploy("health")
    post(site, "/generate", ask("health", max_tokens=site.long // 2).model_dump())
    health = site.admin.health()
    assert health.ok and health.engine == site.engine
    assert [(s.url, s.ok) for s in health.servers] == ([(site.behind, True)] if site.behind else [])
    assert 0 < health.busy_share <= 1 and health.tokens_per_second > 0
    assert health.busy_seconds > 0 and health.sampled_tokens >= site.long // 2
    assert "health" in {d.name for d in health.deployments}
    wait_for(lambda: bool(site.status("health").cache_share), "it says how full its cache was")
    assert 0 < (site.status("health").cache_share or 0) < 1


def test_what_was_read_and_what_was_there_already_is_counted(site: Site) -> None:
    site.deploy("counted")
    first = GenerateResponse.model_validate_json(
        post(site, "/generate", ask("counted", session="s").model_dump()).content
    )
    longer = [*PROMPT, *first.token_ids, 5]
    post(site, "/generate", ask("counted", session="s", prompt_ids=longer).model_dump())
    wait_for(lambda: site.status("counted").prompt_tokens == len(PROMPT) + len(longer), "both prompts are counted")
    status = site.status("counted")
    if not site.vllm:
        assert status.reused_tokens == len(longer) - 2  # the first turn's last token was sampled and never read
    assert status.preemptions == 0
    (engine,) = status.by_engine
    assert (engine.prompt_tokens, engine.reused_tokens) == (status.prompt_tokens, status.reused_tokens)
