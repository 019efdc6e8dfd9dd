from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from tests.trainer.inference import models
from trainer.inference.client import InferenceAdmin
from trainer.inference.contract import DeploymentSpec, DeploymentStatus
from trainer.inference.embedded.process import EmbeddedServer
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

    server: EmbeddedServer
    admin: InferenceAdmin
    policy_dir: Path
    root: Path

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


def long_model(version: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(100 + version)
        config = Qwen3Config(
            **models.BASE | {"max_position_embeddings": CONTEXT}, head_dim=16, tie_word_embeddings=True
        )
        return Qwen3ForCausalLM(config).float().eval()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("site")
    policy_dir = models.save(long_model(0), root / "policy")
    arguments = ("--max-queue", "4", "--max-context", str(CONTEXT), "--max-slots", "16", "--poll-seconds", "0.02")
    with EmbeddedServer(root / "data", arguments=arguments) as server, InferenceAdmin(server.url) as admin:
        yield Site(server, admin, policy_dir, root)
