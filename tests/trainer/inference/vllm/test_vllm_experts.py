"""A run that repeats experts wants a vLLM that names them: refused before its first prompt where it is known not to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.trainer.inference import models
from tests.trainer.inference.conftest import long_model, vllm_double
from tests.trainer.inference.vllm.test_vllm import answering
from tests.trainer.router_replay import moe
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import DeploymentSpec, GenerateRequest, InferenceRefused
from trainer.inference.embedded.serving.process import ServerProcess
from trainer.inference.vllm.api import VllmApi

FLAG = "--enable-return-routed-experts"
PROMPT = [5, 17, 80]


@dataclass
class Front:
    """The server in front of vLLM."""

    admin: InferenceAdmin
    url: str
    policy_dir: Path

    def deploy(self, *, experts: bool) -> None:
        self.admin.deploy(DeploymentSpec(name="run-1", policy_dir=str(self.policy_dir), experts=experts))


@contextlib.contextmanager
def front(tmp_path: Path, policy_dir: Path, *urls: str) -> Iterator[Front]:
    arguments = ("--servers", ",".join(urls), "--poll-seconds", "0.02")
    with ServerProcess("trainer.inference.vllm.server", tmp_path / "data", arguments=arguments) as server:
        with InferenceAdmin(server.url) as admin:
            yield Front(admin, server.url, policy_dir)


@pytest.fixture
def policy_dir(tmp_path: Path) -> Path:
    return models.save(moe.make("qwen3-moe"), tmp_path / "policy")


@pytest.mark.integration
async def test_a_run_that_repeats_experts_gets_the_server_that_names_them(policy_dir: Path, tmp_path: Path) -> None:
    """Refused while there is none; then served at either place of the list, with the experts that were asked for."""
    with contextlib.ExitStack() as stack:
        without = stack.enter_context(vllm_double(policy_dir, tmp_path / "without"))
        with front(tmp_path / "alone", policy_dir, without) as made:
            with pytest.raises(InferenceRefused) as refusal:
                made.deploy(experts=True)
            assert FLAG in str(refusal.value) and "set sampling.enable_router_replay to false" in str(refusal.value)
            assert "same architecture" not in str(refusal.value) and made.admin.deployments() == []
            made.deploy(experts=False)  # the setting of the remedy
        named = stack.enter_context(vllm_double(policy_dir, tmp_path / "named", FLAG))  # the other remedy
        made = stack.enter_context(front(tmp_path, policy_dir, without, named))
        await asyncio.to_thread(lambda: made.deploy(experts=True))
        assert {s.url: s.deployment for s in made.admin.health().servers} == {without: "", named: "run-1"}
        async with HttpInferenceClient(made.url) as client:
            wanted = {"deployment": "run-1", "prompt_ids": PROMPT, "max_tokens": 4, "experts_from": 1}
            answer = await client.generate(GenerateRequest.model_validate(wanted))
    assert answer.experts is not None and (answer.experts.start, answer.experts.stop) == (1, len(PROMPT) + 3)
    assert (answer.experts.layers, answer.experts.top_k) == (3, moe.TOP_K)


def test_a_dense_policy_has_no_experts_to_name(tmp_path: Path) -> None:
    policy_dir = models.save(long_model(0), tmp_path / "policy")
    with vllm_double(policy_dir, tmp_path / "double") as vllm, front(tmp_path, policy_dir, vllm) as made:
        made.deploy(experts=True)


@pytest.mark.parametrize(
    ("body", "known"),
    [
        ({"vllm_config": {"aux_output_config": {"enable_return_routed_experts": True}}}, True),
        ({"vllm_config": {"aux_output_config": {"enable_return_routed_experts": False}}}, False),
        ({"vllm_config": {}}, None),
        ({"vllm_config": "model='policy'"}, None),
        (None, None),
    ],
)
async def test_what_a_server_was_started_with_as_far_as_it_says(body: Any, known: bool | None) -> None:
    async def server_info(request: Request) -> Response:
        return JSONResponse(body) if body else Response(status_code=404)

    async with answering(Route("/server_info", server_info)) as url:
        api = VllmApi(url)
        assert await api.returns_experts() is known
        await api.aclose()
