from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from tests.support.processes import Forked
from tests.trainer.inference import models
from trainer.inference.client import InferenceAdmin
from trainer.inference.contract import DeploymentSpec, DeploymentStatus
from trainer.inference.embedded.serving.process import EmbeddedServer, ServerProcess
from trainer.weights import WeightStore

CONTEXT = 4096


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds:g} s")
        time.sleep(0.005)


@dataclass
class Site:
    """A running server, its administration, and a policy with a weight store."""

    server: ServerProcess
    admin: InferenceAdmin
    policy_dir: Path
    root: Path
    engine: str = "embedded"
    vllm: str = ""
    """Address of the vLLM server behind the one that is asked."""
    long: int = 1200
    """Tokens of an answer that takes a while."""
    behind: str = ""
    """Address of whatever server is behind it."""

    def model(self, version: int) -> PreTrainedModel:
        """The policy at a version, as the library's own class."""
        return long_model(version)

    def store(self, name: str, versions: int = 1) -> WeightStore:
        store = WeightStore(self.root / name, dtype="float32")
        for version in range(versions):
            store.publish(version, self.model(version).state_dict())
        return store

    def deploy(self, name: str, store: WeightStore | None = None, **fields: object) -> DeploymentStatus:
        spec = {"name": name, "policy_dir": str(self.policy_dir), "store": str(store.root) if store else None}
        return self.admin.deploy(DeploymentSpec.model_validate(spec | fields))

    def status(self, name: str) -> DeploymentStatus:
        return next(d for d in self.admin.deployments() if d.name == name)

    def wait_for_tokens(self, name: str) -> None:
        """Until the one request to deployment `name` has produced some tokens."""
        wait_for(lambda: self.status(name).running == 1, "it runs")
        if not self.vllm:
            wait_for(lambda: self.status(name).generated_tokens > 0, "tokens")
        else:  # behind vLLM's interface nothing is seen until the answer is whole; the double tells
            before = self._made()
            wait_for(lambda: self._made() > before, "tokens")

    def wait_for_version(self, name: str, version: int) -> None:
        wait_for(lambda: self.status(name).version == version, f"version {version}")

    def _made(self) -> int:
        return int(httpx.get(f"{self.vllm}/tokens", trust_env=False).json())


def long_model(version: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(100 + version)
        config = Qwen3Config(
            **models.BASE | {"max_position_embeddings": CONTEXT}, head_dim=16, tie_word_embeddings=True
        )
        return Qwen3ForCausalLM(config).float().eval()


@contextlib.contextmanager
def vllm_double(policy_dir: Path, data: Path, *arguments: str, port: int = 0) -> Iterator[str]:
    """A server with vLLM's interfaces over `policy_dir`; yields its address."""
    if not port:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    data.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.trainer.inference.vllm_double"]
    command += ["--model", str(policy_dir), "--data", str(data), "--port", str(port), "--max-context", str(CONTEXT)]
    command += arguments
    with (data / "log").open("wb") as log:
        process = Forked(command, stdout=log, stderr=log)
    try:
        wait_for(lambda: _answers(port) or process.poll() is not None, "the double", seconds=60)
        assert process.poll() is None, (data / "log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def write_members(path: Path, replicas: list[dict[str, object]]) -> None:
    """Replaces the file as a whole: the router may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(json.dumps(replicas))
    path.with_suffix(".new").replace(path)


def router(data: Path, urls: list[str], *arguments: str) -> ServerProcess:
    """A router in front of engines that run; its members are in `data`/members.json."""
    write_members(data / "members.json", [{"url": url} for url in urls])
    wanted = ("--members", str(data / "members.json"), "--poll-seconds", "0.02", *arguments)
    return ServerProcess("trainer.inference.router.server", data, arguments=wanted)


@pytest.fixture(
    scope="module",
    params=[
        "embedded",
        pytest.param("device", marks=pytest.mark.slow),
        pytest.param("vllm", marks=pytest.mark.integration),
        pytest.param("router", marks=pytest.mark.integration),
    ],
)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Both engines, the embedded one on another device and behind a router, through the same HTTP."""
    root = tmp_path_factory.mktemp("site")
    policy_dir = models.save(long_model(0), root / "policy")
    common = ("--max-queue", "4", "--poll-seconds", "0.02")
    with contextlib.ExitStack() as stack:
        vllm = behind = ""
        embedded = (*common, "--max-context", str(CONTEXT), "--max-num-seqs", "16")
        if request.param == "embedded":
            server: ServerProcess = EmbeddedServer(root / "data", arguments=embedded)
        elif request.param == "device":
            server = ServerProcess("tests.trainer.inference.placed_server", root / "data", arguments=embedded)
        elif request.param == "router":
            behind = stack.enter_context(EmbeddedServer(root / "behind", arguments=embedded)).url
            server = router(root / "data", [behind])
        else:
            vllm = behind = stack.enter_context(vllm_double(policy_dir, root / "double"))
            arguments = (*common, "--servers", vllm, "--turn-seconds", "0.1")
            server = ServerProcess("trainer.inference.vllm.server", root / "data", arguments=arguments)
        admin = InferenceAdmin(stack.enter_context(server).url)
        device = request.param == "device"
        engine, long = ("embedded", 120) if device else (request.param, Site.long)
        admin = stack.enter_context(admin)
        yield Site(server, admin, policy_dir, root, engine=engine, vllm=vllm, long=long, behind=behind)
