"""A named set of weights, ready to be put into a vLLM server."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch

from trainer.inference.contract import DeploymentSpec, DeploymentStatus, SyncTimings
from trainer.inference.errors import SyncFailed, UnsupportedModel
from trainer.inference.vllm.api import label
from trainer.weights import Fetched, Folder, Subscriber, WeightError

SHAPE = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "num_experts",
    "tie_word_embeddings",
)
"""Fields of config.json that the weights' names and shapes follow from: equal in what one server can hold."""


def read_config(folder: Path) -> dict[str, object]:
    """Raises UnsupportedModel."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise UnsupportedModel(f"{path} does not exist; give a Hugging Face policy directory") from error
    except (OSError, ValueError) as error:
        raise UnsupportedModel(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise UnsupportedModel(f"{path} is not a Hugging Face configuration")
    return config


def misfit(policy: dict[str, object], served: dict[str, object]) -> str:
    """The first field in which a policy differs from what the server was started with; empty when it fits."""
    for name in SHAPE:
        if policy.get(name) != served.get(name):
            return f"{name} is {policy.get(name)} there and {served.get(name)} in the server"
    return ""


@dataclass(eq=False)
class Deployment:
    spec: DeploymentSpec
    paused: bool = False
    running: int = 0
    waiting: int = 0
    """Requests that wait for their server to hold these weights."""
    asked_at: float = 0.0
    """When the first of those that wait came."""
    generated: int = 0
    version: int = -1
    digest: str = ""
    error: str = ""
    retry_at: float = 0.0
    last_sync: SyncTimings | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One fetch at a time."""

    def __post_init__(self) -> None:
        self.subscriber = Subscriber(Folder(Path(self.spec.store))) if self.spec.store else None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def ready(self) -> bool:
        """Whether there are weights to put into a server."""
        return self.version >= 0

    @property
    def label(self) -> str:
        return label(self.name, self.version, self.digest)

    @property
    def _pin(self) -> str:
        return f"deployment-{self.name}"

    def status(self) -> DeploymentStatus:
        state = "paused" if self.paused else "serving"
        if not self.ready:
            state = "failed" if self.error else "loading"
        return DeploymentStatus.model_validate(
            {
                "name": self.name,
                "version": self.version,
                "digest": self.digest,
                "state": state,
                "follow": self.spec.follow,
                "running": self.running,
                "waiting": self.waiting,
                "generated_tokens": self.generated,
                "last_sync": self.last_sync,
                "error": self.error,
            }
        )

    async def refresh(self, version: int | None) -> SyncTimings:
        """Bring the weights at hand to `version` (None: the newest). Raises SyncFailed; the old ones stay.

        A deployment that follows a store without versions stays without weights: that is no error.
        """
        async with self.lock:
            if self.subscriber is None:
                self.version = 0
                self.digest = await asyncio.to_thread(_files_digest, Path(self.spec.policy_dir))
                return SyncTimings(version=0, kind="anchor")
            try:
                fetched = await asyncio.to_thread(self.subscriber.fetch, version)
            except (WeightError, OSError) as error:
                raise SyncFailed(f"deployment {self.name!r}: {error}") from error
            self.error = ""
            if fetched is None:
                if not self.ready and not self.spec.follow:
                    raise SyncFailed(f"weight store {self.spec.store} is empty; publish a version, or follow it")
                return SyncTimings(version=self.version)
            self._commit(fetched)
            return SyncTimings.model_validate(
                {
                    "version": self.version,
                    "kind": fetched.kind,
                    "bytes": fetched.bytes,
                    "fetch": fetched.fetch_seconds,
                    "decode": fetched.decode_seconds,
                }
            )

    def _commit(self, fetched: Fetched) -> None:
        assert self.subscriber is not None
        self.subscriber.commit(fetched)
        self.version, self.digest = fetched.mirror.version, fetched.mirror.digest
        if not self.spec.follow:
            self.subscriber.folder.pin(self._pin, self.version)

    def behind(self) -> bool:
        """Whether its store holds newer weights that it should move to. Raises WeightError."""
        return self.spec.follow and self.subscriber is not None and self.subscriber.behind()

    def write(self, folder: Path) -> None:
        """The weights at hand as a checkpoint in `folder`, under canonical names, each tensor once. Blocks."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.subscriber is None:
            for path in sorted(Path(self.spec.policy_dir).glob("*.safetensors*")):
                (folder / path.name).write_bytes(path.read_bytes())
            return
        mirror = self.subscriber.current
        assert mirror is not None
        tensors = {name: t for name, t in mirror.state().items() if name not in mirror.manifest.aliases}
        safetensors.torch.save_file(tensors, folder / "model.safetensors")

    def forget(self) -> None:
        """Lets the weight store collect what was kept for it."""
        if self.subscriber is not None:
            self.subscriber.folder.unpin(self._pin)


def _files_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
