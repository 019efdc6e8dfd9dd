"""The server is killed without warning and comes back: nothing is lost but the time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.trainer.inference import models
from tests.trainer.inference.conftest import CONTEXT, Site, long_model, wait_for
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import GenerateRequest, InferenceError
from trainer.inference.embedded.serving.process import EmbeddedServer

pytestmark = pytest.mark.integration


@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_kill_and_restart(tmp_path: Path) -> None:
    policy_dir = models.save(long_model(0), tmp_path / "policy")
    server = EmbeddedServer(tmp_path / "data", arguments=("--max-context", str(CONTEXT)))
    site = Site(server, InferenceAdmin(server.url), policy_dir, tmp_path)
    with server, site.admin:
        store = site.store("weights", versions=2)
        site.deploy("policy", store, follow=True)
        site.deploy("judge")
        async with HttpInferenceClient(server.url) as client:
            long = GenerateRequest(prompt_ids=[1, 2, 3], max_tokens=2000, seed=1, timeout_seconds=60)
            short = long.model_copy(update={"max_tokens": 5, "deployment": "judge"})
            before = await client.generate(short)
            held = [asyncio.create_task(client.generate(long)), asyncio.create_task(client.generate(long))]
            await asyncio.to_thread(wait_for, lambda: site.status("policy").running == 2, "both run")
            server.kill()
            store.publish(2, site.model(2).state_dict())  # the trainer goes on meanwhile
            held.append(asyncio.create_task(client.generate(short)))  # asked while nobody listens
            await asyncio.to_thread(server.start)
            first, second, third = await asyncio.gather(*held)
            assert first.token_ids == second.token_ids and len(first.token_ids) == 2000
            assert [s.version for s in first.spans] == [2]
            assert third.seconds > 0
            assert third.model_copy(update={"seconds": before.seconds}) == before
        assert {d.name: d.version for d in site.admin.deployments()} == {"policy": 2, "judge": 0}
        site.admin.remove("judge")
        server.stop()
        server.start()
        wait_for(lambda: [d.name for d in site.admin.deployments()] == ["policy"], "only what was kept")


async def test_nobody_listens_until_the_deadline() -> None:
    async with HttpInferenceClient("http://127.0.0.1:9") as client:
        with pytest.raises(InferenceError, match=r"within 0\.3 s after \d+ attempts.*ClientConnectorError"):
            await client.generate(GenerateRequest(prompt_ids=[1], max_tokens=1, timeout_seconds=0.3))
    with InferenceAdmin("http://127.0.0.1:9") as admin, pytest.raises(InferenceError, match="is it up"):
        admin.health()


@pytest.mark.timeout(60)
def test_a_policy_that_vanished_is_shown_and_comes_back(tmp_path: Path) -> None:
    policy_dir = models.save(long_model(0), tmp_path / "policy")
    server = EmbeddedServer(tmp_path / "data")
    site = Site(server, InferenceAdmin(server.url), policy_dir, tmp_path)
    with server, site.admin:
        site.deploy("policy")
        server.kill()
        policy_dir.rename(tmp_path / "away")
        server.start()
        wait_for(lambda: site.status("policy").state == "failed", "failed")
        assert "config.json does not exist" in site.status("policy").error
        (tmp_path / "away").rename(policy_dir)
        wait_for(lambda: site.status("policy").state == "serving", "serving")
