"""Several engines in the stack: the very commands that the supervisor gets, as real processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.stack import environment, ports, programs
from scripts.stack.layout import REPOSITORY, Layout
from tests.platform.test_programs import ADDRESSES, generated
from tests.trainer.inference import models
from tests.trainer.inference.conftest import long_model, wait_for
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import DeploymentSpec, GenerateRequest, InferenceError
from trainer.inference.discovery import REPLICAS, ReplicaSpec, read_replicas

TOKENS = 600
ASKING = 8
"""Requests at a time: some of them run on the engine that dies."""


@pytest.fixture
def layout() -> Iterator[Layout]:
    with tempfile.TemporaryDirectory(prefix="oc-") as name:
        yield Layout.open(Path(name))


def test_more_than_one_engine_puts_a_router_before_them(layout: Layout) -> None:
    parser, _ = generated(layout.data, engine_ports=(9100, 9101))
    product = parser["group:product"]["programs"].split(",")
    assert product[-3:] == ["engine-1", "engine-2", "inference"]
    command = parser["program:inference"]["command"]
    assert "trainer.inference.router.server" in command and str(environment.replicas_file(layout)) in command
    assert "--port 9000" in command and "--port 9101" in parser["program:engine-2"]["command"]


def test_engines_added_by_hand_stay_over_a_restart(layout: Layout) -> None:
    environment.write(layout, replace(ADDRESSES, engine_ports=(9100, 9101)))
    path = environment.replicas_file(layout)
    assert [spec.url for spec in read_replicas(path)] == ["http://127.0.0.1:9100", "http://127.0.0.1:9101"]
    path.write_bytes(REPLICAS.dump_json([*read_replicas(path), ReplicaSpec(url="http://far:1", production=True)]))
    environment.write(layout, replace(ADDRESSES, engine_ports=(9200, 9201)))
    assert [spec.url for spec in read_replicas(path)][1:] == ["http://127.0.0.1:9201", "http://far:1"]
    path.write_text(json.dumps([{"address": "http://far:1"}]))
    with pytest.raises(environment.StackError, match="correct the file"):
        environment.write(layout, replace(ADDRESSES, engine_ports=(9200, 9201)))


def test_vllm_servers_of_the_setting_are_listed_anew_and_those_added_by_hand_stay(layout: Layout) -> None:
    """A server leaves or joins a running stack by this file."""
    vllm = replace(ADDRESSES, engine="vllm", vllm_urls="http://a:8000,http://b:8000")
    environment.write(layout, vllm)
    path = environment.replicas_file(layout, "vllm")
    assert [(spec.url, spec.cluster) for spec in read_replicas(path)] == [
        ("http://a:8000", "stack"),
        ("http://b:8000", "stack"),
    ]
    path.write_bytes(REPLICAS.dump_json([*read_replicas(path), ReplicaSpec(url="http://c:8000")]))
    environment.write(layout, replace(vllm, vllm_urls="http://c:8000"))
    assert [(spec.url, spec.cluster) for spec in read_replicas(path)] == [("http://c:8000", "stack")]
    assert not environment.replicas_file(layout).exists()


@contextmanager
def running(layout: Layout, addresses: environment.Addresses) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The inference programs of the stack, by name."""
    with ExitStack() as stack:
        started = {}
        for program in programs.product(layout, addresses):
            if program.name != "inference" and not program.name.startswith("engine-"):
                continue
            log = stack.enter_context((layout.logs / f"{program.name}.log").open("wb"))
            variables = os.environ | {"OPENCOMPOSER_DATA": str(layout.data)} | program.variables
            process = subprocess.Popen(program.command, cwd=REPOSITORY, env=variables, stdout=log, stderr=log)
            stack.callback(process.wait, 20)
            stack.callback(process.kill)
            started[program.name] = process
        yield started


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_an_engine_of_the_stack_dies_during_a_run_and_nothing_is_lost(layout: Layout, tmp_path: Path) -> None:
    engine_ports = (ports.any_free(), ports.any_free())
    addresses = replace(ADDRESSES, inference_port=ports.any_free(), engine_ports=engine_ports)
    environment.write(layout, addresses)
    url = f"http://127.0.0.1:{addresses.inference_port}"
    policy_dir = models.save(long_model(0), tmp_path / "policy")
    with running(layout, addresses) as processes, InferenceAdmin(url) as admin:

        def serving() -> int:
            try:
                return sum(server.ok and "policy" in server.deployment for server in admin.health().servers)
            except InferenceError:
                return 0

        def answers() -> bool:
            try:
                return sum(server.ok for server in admin.health().servers) == 2
            except InferenceError:
                return False

        await asyncio.to_thread(wait_for, answers, "both engines", 120)
        await asyncio.to_thread(admin.deploy, DeploymentSpec(name="policy", policy_dir=str(policy_dir)))
        await asyncio.to_thread(wait_for, lambda: serving() == 2, "both serve", 60)
        killed = asyncio.Event()
        answered = asyncio.Semaphore(0)

        async def ask(n: int) -> list[int]:
            """How long the answers were: of one request after another, until one began after the kill."""
            lengths, last = [], False
            while not last:
                last = killed.is_set()
                request = GenerateRequest(prompt_ids=[n, 3, 4], max_tokens=TOKENS, seed=n, timeout_seconds=120.0)
                lengths.append(len((await client.generate(request)).token_ids))
                answered.release()
            return lengths

        async with HttpInferenceClient(url) as client, asyncio.TaskGroup() as group:
            work = [group.create_task(ask(n)) for n in range(ASKING)]
            for _ in range(ASKING):
                await asyncio.wait_for(answered.acquire(), 120)
            processes["engine-2"].kill()
            killed.set()
        assert all(set(task.result()) == {TOKENS} for task in work)
        await asyncio.to_thread(wait_for, lambda: serving() == 1, "one is left", 60)
