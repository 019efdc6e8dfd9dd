"""The engine in front of vLLM: what it sends, what it refuses, how deployments share a server, and restarts.

The contract itself is in `test_conformance`, which runs over a double of vLLM.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import safetensors.torch
import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from transformers import PreTrainedModel

from tests.trainer.inference import models
from tests.trainer.inference.conftest import Site, long_model, vllm_double, wait_for
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import (
    DeploymentSpec,
    GenerateRequest,
    GenerateResponse,
    InferenceError,
    InferenceRefused,
)
from trainer.inference.discovery import ReplicaSpec, server_urls
from trainer.inference.embedded.serving.process import ServerProcess
from trainer.inference.errors import BadRequest, ServerError, Unavailable
from trainer.inference.vllm import streaming
from trainer.inference.vllm.api import VllmApi, WeightsLost, label, parse_response, read_room
from trainer.inference.vllm.deployment import Deployment, misfit
from trainer.inference.vllm.server import VllmEngine
from trainer.inference.vllm.streaming import BadAnswer
from trainer.weights import WeightStore
from trainer.weights.probe import measure_model

ANSWER: dict[str, Any] = {
    "choices": [
        {
            "index": 0,
            "token_ids": [11, 12, 2],
            "logprobs": {"content": [{"token": f"token_id:{t}", "logprob": -t / 10} for t in (11, 12, 2)]},
            "finish_reason": "stop",
            "weight_versions": [
                {"version": "run-3~7~abc", "start": 0, "end": 1},
                {"version": "run-3~8~def", "start": 1, "end": 3},
            ],
        }
    ],
    "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
}
REQUEST = GenerateRequest(
    prompt_ids=[1, 2, 3], max_tokens=9, temperature=0.8, stop_ids=[2], seed=4, timeout_seconds=5, session="s"
)


@contextlib.asynccontextmanager
async def answering(*routes: Route) -> AsyncIterator[str]:
    """A server of our own with these routes; yields its address."""
    runner = uvicorn.Server(uvicorn.Config(Starlette(routes=list(routes)), port=0, log_level="warning"))
    serving = asyncio.create_task(runner.serve())
    async with asyncio.timeout(20):
        while not runner.started:
            await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{runner.servers[0].sockets[0].getsockname()[1]}"
    runner.should_exit = True
    await serving


async def test_request_and_response_mapping() -> None:
    seen: list[Any] = []

    async def generate(request: Request) -> Response:
        seen.append(await request.json())
        return JSONResponse(ANSWER)

    async with answering(Route("/inference/v1/generate", generate, methods=["POST"])) as url:
        api = VllmApi(url)
        answer = await api.generate(REQUEST, model="policy", salt="run-3~7~abc", before=7)
        await api.aclose()
    assert seen == [
        {
            "model": "policy",
            "token_ids": [1, 2, 3],
            "sampling_params": {
                "max_tokens": 9,
                "temperature": 0.8,
                "stop_token_ids": [2],
                "ignore_eos": True,
                "logprobs": 0,
                "detokenize": False,
                "seed": 4,
            },
            "cache_salt": "run-3~7~abc",
            "stream": False,
        }
    ]
    assert answer.token_ids == [11, 12, 2] and answer.logprobs == [-1.1, -1.2, -0.2]
    assert [(s.version, s.start, s.end) for s in answer.spans] == [(7, 0, 1), (8, 1, 3)]
    assert answer.finish_reason == "stop" and answer.reused_tokens == 2


def test_without_spans_the_version_at_the_start_counts() -> None:
    choice = {name: value for name, value in ANSWER["choices"][0].items() if name != "weight_versions"}
    answer = parse_response({"choices": [choice]}, before=12)
    assert [(s.version, s.start, s.end) for s in answer.spans] == [(12, 0, 3)]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": [{"token_ids": [1], "logprobs": None, "finish_reason": "stop"}]},
        {"choices": [{"token_ids": [1, 2], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": "stop"}]},
        {"choices": [{"token_ids": [1], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": "error"}]},
    ],
)
def test_other_shapes_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer, match="vLLM"):
        parse_response(body, before=0)


def test_tokens_of_weights_that_were_not_given_are_refused() -> None:
    """After a restart vLLM serves what it was started with, under the name `default`."""
    spans = [{"version": "default", "start": 0, "end": 3}]
    with pytest.raises(WeightsLost, match="'default'"):
        parse_response({"choices": [ANSWER["choices"][0] | {"weight_versions": spans}]}, before=0)
    assert label("run-3", 7, "abcdef") == "run-3~7~abcdef"


def event(*tokens: int, **rest: Any) -> bytes:
    content = [{"token": f"token_id:{t}", "logprob": -t / 10} for t in tokens]
    choice = {"index": 0, "token_ids": list(tokens), "logprobs": {"content": content}, "finish_reason": None, **rest}
    return b"data: " + json.dumps({"request_id": "r", "choices": [choice]}).encode() + b"\n\n"


async def streamed(*events: bytes, hang: bool = False, seconds: float = 5.0) -> GenerateResponse:
    """The answer of a server that sends these events of a stream, and then hangs or ends."""
    over = asyncio.Event()

    async def generate(request: Request) -> Response:
        assert (body := await request.json())["stream"] is True and body["stream_options"] == {"include_usage": True}

        async def sent() -> AsyncIterator[bytes]:
            for one in events:
                yield one
            if hang:
                await over.wait()

        return StreamingResponse(sent(), media_type="text/event-stream; charset=utf-8")

    async with answering(Route("/inference/v1/generate", generate, methods=["POST"])) as url:
        api = VllmApi(url)
        try:
            until = asyncio.get_running_loop().time() + seconds
            wanted = REQUEST.model_copy(update={"partial": True})
            return await api.generate(wanted, model="policy", salt="s", before=7, until=until)
        finally:
            over.set()
            await api.aclose()


SPANS = ANSWER["choices"][0]["weight_versions"]
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 2}}}\n\ndata: [DONE]\n\n'


async def test_a_streamed_answer_is_the_whole_one() -> None:
    answer = await streamed(event(11), event(12), event(2, finish_reason="stop", weight_versions=SPANS), USAGE)
    assert answer == parse_response(ANSWER, before=7)


async def test_what_was_sampled_until_the_deadline_is_kept_as_of_the_version_at_its_start() -> None:
    answer = await streamed(event(11), event(12, 13), hang=True, seconds=0.5)
    assert (answer.token_ids, answer.logprobs, answer.finish_reason) == ([11, 12, 13], [-1.1, -1.2, -1.3], "abort")
    assert [(s.version, s.start, s.end) for s in answer.spans] == [(7, 0, 3)]


async def test_an_engine_that_hangs_gives_no_partial_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time would be counted as the policy's own."""
    with pytest.raises(TimeoutError):
        await streamed(hang=True, seconds=0.2)
    monkeypatch.setattr(streaming, "STALL_SECONDS", 0.1)
    with pytest.raises(TimeoutError):
        await streamed(event(11), hang=True, seconds=0.6)


async def test_streams_that_fail_say_so() -> None:
    with pytest.raises(Unavailable, match="out of memory"):
        await streamed(event(11), b'data: {"error": {"message": "out of memory"}}\n\n')
    with pytest.raises(Unavailable, match="without a reason"):
        await streamed(event(11))
    with pytest.raises(BadAnswer, match="another shape"):
        await streamed(b'data: {"choices": [{"token_ids": [1], "logprobs": null}]}\n\n')


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (404, Unavailable, "start it with --enable-scale-out"),
        (403, Unavailable, "start it with --enable-scale-out"),
        (400, BadRequest, "vLLM refused the request: HTTP 400: too long"),
        (500, Unavailable, "failed: HTTP 500: too long"),
    ],
)
async def test_refusals_of_generation_say_what_to_do(status: int, kind: type[ServerError], words: str) -> None:
    async def refuse(request: Request) -> Response:
        return Response("too long", status)

    async with answering(Route("/inference/v1/generate", refuse, methods=["POST"])) as url:
        api = VllmApi(url)
        with pytest.raises(kind, match=words):
            await api.generate(REQUEST, model="policy", salt="x", before=0)
        with pytest.raises(Unavailable, match="VLLM_SERVER_DEV_MODE=1"):
            await api.pause()
        await api.aclose()


@pytest.mark.parametrize("text", ["", " , ", "vllm:8000", "ftp://vllm:8000", "http://"])
def test_addresses_that_are_none_show_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match="http://host:8000"):
        server_urls(text)


def test_addresses() -> None:
    assert server_urls("http://a:8000/, https://b") == ["http://a:8000", "https://b"]


def test_the_fullest_of_its_caches_and_what_was_preempted() -> None:
    text = """# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="a b}"} 0.0625
vllm:kv_cache_usage_perc{engine="1",model_name="p"} 2.5e-01
vllm:num_requests_running{engine="0",model_name="p"} 7.0
vllm:num_preemptions_total{engine="0",model_name="p"} 3.0
vllm:num_preemptions_total{engine="1",model_name="p"} 1e+01
vllm:num_preemptions_created{engine="0",model_name="p"} 1.7e+09
"""
    assert read_room(text) == (0.25, 13)
    assert read_room("vllm:kv_cache_usage_perc 0.5\n") == (0.5, None)
    assert read_room(text.replace("vllm:", "other:")) == (None, None)


async def test_a_server_that_is_not_vllm_is_named(tmp_path: Path) -> None:
    async def page(request: Request) -> Response:
        return Response("<html>")

    async with answering(Route("/v1/models", page)) as url:
        engine = VllmEngine(
            [ReplicaSpec(url=url), ReplicaSpec(url="http://127.0.0.1:9")], data=tmp_path, poll_seconds=0.01
        )
        await engine.start()
        try:
            spec = DeploymentSpec(name="p", policy_dir=str(models.save(long_model(0), tmp_path / "policy")))
            with pytest.raises(Unavailable, match=r"is not vLLM.*127\.0\.0\.1:9 does not answer"):
                await engine.deploy(spec)
            async with asyncio.timeout(10):
                while "not vLLM" not in (health := engine.health()).error:
                    await asyncio.sleep(0.01)
            assert not health.ok and [s.ok for s in health.servers] == [False, False]
            assert "no vLLM server can be used" in health.error
        finally:
            await engine.stop()


@pytest.mark.parametrize("stored", [True, False])
async def test_a_checkpoint_names_tied_weights_twice(tmp_path: Path, stored: bool) -> None:
    """vLLM on a CPU would go on with the output layer of the weights before."""
    policy = long_model(0)
    store = WeightStore(tmp_path / "store", dtype="float32")
    store.publish(0, policy.state_dict())
    deployment = Deployment(
        DeploymentSpec(
            name="p",
            policy_dir=str(models.save(policy, tmp_path / "policy")),
            store=str(store.root) if stored else None,
        )
    )
    await deployment.refresh(None)
    deployment.write(tmp_path / "out")
    tensors = {}
    for path in (tmp_path / "out").glob("*.safetensors"):
        tensors |= safetensors.torch.load_file(path)
    assert tensors.keys() == policy.state_dict().keys()
    assert torch.equal(tensors["lm_head.weight"], policy.get_input_embeddings().weight)


@contextlib.contextmanager
def started(root: Path) -> Iterator[Site]:
    """One double and one server in front of it, with short turns."""
    policy_dir = models.save(long_model(0), root / "policy")
    with vllm_double(policy_dir, root / "double") as vllm:
        arguments = ("--servers", vllm, "--turn-seconds", "0.2", "--poll-seconds", "0.02")
        with ServerProcess("trainer.inference.vllm.server", root / "data", arguments=arguments) as server:
            with InferenceAdmin(server.url) as admin:
                yield Site(server, admin, policy_dir, root, engine="vllm", vllm=vllm)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Site]:
    """For a test that breaks something."""
    with started(tmp_path) as site:
        yield site


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """For tests that leave everything as it was, without a deployment."""
    with started(tmp_path_factory.mktemp("shared")) as site:
        yield site


def request(deployment: str, seed: int) -> GenerateRequest:
    return GenerateRequest(
        deployment=deployment, prompt_ids=[5, 17, 80, seed + 1], max_tokens=8, seed=seed, timeout_seconds=60.0
    )


async def test_deployments_take_turns_and_each_token_is_of_the_right_weights(shared: Site) -> None:
    store = shared.store("weights", versions=2)
    shared.deploy("run-1", store, follow=True)
    shared.deploy("eval-1", store, version=0)
    async with HttpInferenceClient(shared.server.url) as client:
        for round_ in range(2):
            wanted = [request(("run-1", "eval-1")[n % 2], seed=10 * round_ + n) for n in range(12)]
            for number, answer in enumerate(await asyncio.gather(*map(client.generate, wanted))):
                version = 1 - number % 2
                assert [s.version for s in answer.spans] == [version]
                expected = models.logprobs(shared.model(version), wanted[number].prompt_ids, answer.token_ids, 1.0)
                assert (expected - torch.tensor(answer.logprobs)).abs().max() < 1e-4
    (server,) = shared.admin.health().servers
    assert server.ok and server.deployment in ("run-1", "eval-1") and server.model == str(shared.policy_dir)
    assert not list((shared.root / "data" / "vllm" / "0").iterdir())  # checkpoints are removed once they are loaded
    for name in ("run-1", "eval-1"):
        shared.admin.remove(name)


async def test_many_workers_ask_for_the_same_deployment_at_once(shared: Site, tmp_path: Path) -> None:
    engine = VllmEngine([ReplicaSpec(url=shared.vllm)], data=tmp_path / "data", poll_seconds=0.02)
    await engine.start()
    try:
        spec = DeploymentSpec(name="run-1", policy_dir=str(shared.policy_dir))
        await asyncio.gather(*(engine.deploy(spec) for _ in range(8)))
        assert [d.name for worker in engine.workers for d in worker.placed] == ["run-1"]
    finally:
        await engine.stop()


@pytest.mark.slow
async def test_a_vllm_that_was_started_again_gets_its_weights_back(tmp_path: Path) -> None:
    """It comes up with the weights of its command line; nobody is answered with those."""
    policy_dir = models.save(long_model(0), tmp_path / "policy")
    first = contextlib.ExitStack()
    vllm = first.enter_context(vllm_double(policy_dir, tmp_path / "first"))
    arguments = ("--servers", vllm, "--poll-seconds", "0.02")
    server = ServerProcess("trainer.inference.vllm.server", tmp_path / "data", arguments=arguments)
    with first, server, InferenceAdmin(server.url) as admin:
        site = Site(server, admin, policy_dir, tmp_path)
        site.deploy("run-1", site.store("weights", versions=2), follow=True)
        async with HttpInferenceClient(server.url) as client:
            before = await client.generate(request("run-1", 3))
            assert [s.version for s in before.spans] == [1]
            first.close()
            await asyncio.to_thread(wait_for, lambda: not admin.health().ok, "the loss is seen")
            assert "does not answer" in admin.health().error
            waiting = asyncio.create_task(client.generate(request("run-1", 3)))
            with vllm_double(policy_dir, tmp_path / "second", port=int(vllm.rpartition(":")[2])):
                assert (await waiting).token_ids == before.token_ids
                server.kill()
                await asyncio.to_thread(server.start)  # remembers what it served
                again = await client.generate(request("run-1", 3))
                assert again.token_ids == before.token_ids and [s.version for s in again.spans] == [1]


def nudged(policy: PreTrainedModel, seed: int) -> PreTrainedModel:
    """A step later: about one word in thirty is another."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.parameters():
            chosen = torch.rand(weight.shape, generator=generator) < 0.03
            weight[chosen] += 0.2 * torch.randn(int(chosen.sum()), generator=generator)
    return policy


async def right(site: Site, policy: PreTrainedModel, version: int) -> None:
    """The deployment answers with the weights of `policy`, and says so."""
    async with HttpInferenceClient(site.server.url) as client:
        wanted = request("run-1", version)
        answer = await client.generate(wanted)
    assert [s.version for s in answer.spans] == [version]
    expected = models.logprobs(policy, wanted.prompt_ids, answer.token_ids, 1.0)
    assert (expected - torch.tensor(answer.logprobs)).abs().max() < 1e-4


async def test_steps_are_written_in_place_and_what_is_not_proven_is_loaded_whole(pair: Site) -> None:
    store, policy = pair.store("weights"), pair.model(0)
    pair.deploy("run-1", store, version=0)
    await right(pair, policy, 0)
    for version in (1, 2, 3):
        store.publish(version, nudged(policy, version).state_dict())
        if version == 2:
            httpx.post(f"{pair.vllm}/spoil", trust_env=False)
        timings = await asyncio.to_thread(pair.admin.update, "run-1", version)
        assert timings.patched == (version != 2)
        await right(pair, policy, version)
    for version in (4, 5):  # a link that this server never takes
        store.publish(version, nudged(policy, version).state_dict())
    assert (await asyncio.to_thread(pair.admin.update, "run-1", 5)).patched
    await right(pair, policy, 5)
    (server,) = pair.admin.health().servers
    assert server.weights == "changed words in place"
    assert not list((pair.root / "data" / "vllm" / "0").iterdir())
    log = (pair.root / "data" / "inference.log").read_text()
    assert re.search(
        r"as a whole checkpoint: after the patch \S+\.weight \(and 0 more\) is not what was published", log
    )


async def test_without_the_extension_checkpoints_are_whole_and_the_reason_is_shown(tmp_path: Path) -> None:
    policy_dir = models.save(long_model(0), tmp_path / "policy")
    with vllm_double(policy_dir, tmp_path / "double", "--bare") as vllm:
        arguments = ("--servers", vllm, "--poll-seconds", "0.02")
        with ServerProcess("trainer.inference.vllm.server", tmp_path / "data", arguments=arguments) as server:
            with InferenceAdmin(server.url) as admin:
                site = Site(server, admin, policy_dir, tmp_path)
                store, policy = site.store("weights"), site.model(0)
                site.deploy("run-1", store, version=0)
                await right(site, policy, 0)
                store.publish(1, nudged(policy, 1).state_dict())
                assert not (await asyncio.to_thread(admin.update, "run-1", 1)).patched
                await right(site, policy, 1)
                assert "without --worker-extension-cls" in admin.health().servers[0].weights


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(True, id="probe of the publisher"),
        pytest.param(False, id="forward pass here", marks=pytest.mark.slow),
    ],
)
def test_a_server_that_goes_on_with_other_weights_is_refused(pair: Site, known: bool) -> None:
    """It answers 200 to every call, and the label that it was told; only its log-probabilities tell."""
    store = WeightStore(pair.root / "weights", dtype="float32")
    for version in range(2):
        probe = measure_model(pair.model(version), tokenizer=None, dtype="float32") if known else None
        store.publish(version, pair.model(version).state_dict(), probe=probe)
    assert pair.deploy("honest", store, version=0).state == "serving"
    pair.admin.remove("honest")
    httpx.post(f"{pair.vllm}/lie", trust_env=False)
    words = r"127\.0\.0\.1:\d+ does not compute version 1 of 'run-1': log-probabilities of the probe are off by"
    with pytest.raises(InferenceRefused, match=words):
        pair.deploy("run-1", store, version=1)
    assert pair.admin.deployments() == []


async def test_whole_weights_that_a_server_does_not_take_stop_its_answers(pair: Site) -> None:
    """In the middle of a run: nothing that it says from then on counts, and the light is red until it was started again."""
    store = pair.store("weights")
    pair.deploy("run-1", store, follow=True)
    await right(pair, pair.model(0), 0)
    httpx.post(f"{pair.vllm}/lie", trust_env=False)
    store.publish(1, pair.model(1).state_dict())
    await asyncio.to_thread(wait_for, lambda: pair.status("run-1").state == "failed", "the refusal")
    health = pair.admin.health()
    assert not health.ok and "does not compute version 1 of 'run-1'" in health.error
    async with HttpInferenceClient(pair.server.url) as client:
        with pytest.raises(InferenceRefused, match="does not compute version 1"):
            await client.generate(request("run-1", 1))


def test_a_policy_that_the_server_cannot_hold_is_refused(shared: Site) -> None:
    other = models.save(models.FAMILIES["llama"](), shared.root / "llama")
    with pytest.raises(
        InferenceRefused, match=r"no vLLM server can serve.*model_type is llama there and qwen3"
    ) as refusal:
        shared.admin.deploy(DeploymentSpec(name="llama", policy_dir=str(other)))
    assert "start vLLM with --model" in str(refusal.value)
    assert shared.admin.deployments() == []


@pytest.mark.parametrize(
    ("of", "name", "other"),
    [
        ("mixtral", "num_local_experts", 16),
        ("mixtral", "rope_theta", 1e4),
        ("deepseek_v3", "n_routed_experts", 8),
        ("deepseek_v3", "moe_intermediate_size", 24),
        ("deepseek_v3", "kv_lora_rank", 8),
        ("deepseek_v3", "routed_scaling_factor", 1.0),
        ("qwen3_moe", "num_experts_per_tok", 4),
    ],
)
def test_policies_with_experts_of_another_shape_do_not_fit(of: str, name: str, other: object) -> None:
    served: dict[str, object] = {
        "mixtral": {"num_local_experts": 8, "rope_theta": 1e6},
        "deepseek_v3": {
            "n_routed_experts": 4, "moe_intermediate_size": 16, "kv_lora_rank": 16, "routed_scaling_factor": 2.5,
        },
        "qwen3_moe": {"num_experts_per_tok": 2},
    }[of]  # fmt: skip
    served = {"model_type": of, "hidden_size": 32, **served}
    assert misfit(dict(served), served) == ""
    assert misfit({**served, name: other}, served) == f"{name} is {other} there and {served[name]} in the server"


def test_weights_that_cannot_be_passed_on_are_named(pair: Site) -> None:
    """The folder that both sides see is not writable (or full): requests wait, the cause is shown, nothing is lost."""
    (pair.root / "data" / "vllm").mkdir(parents=True)
    (pair.root / "data" / "vllm" / "0").write_text("in the way")
    pair.deploy("run-1")
    wait_for(lambda: "could not be written" in pair.status("run-1").error, "the cause")
    assert "free space there" in pair.status("run-1").error
    (pair.root / "data" / "vllm" / "0").unlink()

    async def ask() -> list[int]:
        async with HttpInferenceClient(pair.server.url) as client:
            return (await client.generate(request("run-1", 1))).token_ids

    assert len(asyncio.run(ask())) == 8
    assert pair.status("run-1").error == "" and pair.admin.health().ok


def test_a_raw_vllm_in_place_of_the_server_in_front_is_told_apart(shared: Site) -> None:
    with InferenceAdmin(shared.vllm) as admin:
        for call in (admin.health, admin.deployments, lambda: admin.deploy(DeploymentSpec(name="x", policy_dir="/x"))):
            with pytest.raises(InferenceError, match="is another kind of server there"):
                call()
