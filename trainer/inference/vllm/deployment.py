"""A named set of weights, ready to be loaded into a vLLM server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from trainer.inference.contract import DeploymentSpec, DeploymentStatus, SyncTimings, Verification
from trainer.inference.errors import SyncFailed, UnsupportedModel
from trainer.inference.reference_logprobs import reference
from trainer.inference.vllm.api import label
from trainer.router_replay import EXPERTS
from trainer.weights import Fetched, Mirror, Subscriber, WeightError, open_versions
from trainer.weights.differences import restore
from trainer.weights.probe import Probe

log = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
SHAPE = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "tie_word_embeddings",
    "attention_bias",
    # experts
    *EXPERTS,
    "n_shared_experts",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "first_k_dense_replace",
    "decoder_sparse_step",
    "mlp_only_layers",
    # attention through a low rank
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
)
"""Fields of config.json that determine the weights' names and shapes. Deployments of one server must agree in them."""
COMPUTES = (
    "hidden_act",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "sliding_window",
    "num_experts_per_tok",
    "norm_topk_prob",
    "scoring_func",
    "topk_method",
    "n_group",
    "topk_group",
    "routed_scaling_factor",
)
"""Fields that change the outputs of the same weights. The server uses its own; missing fields have the library's
default."""


def read_config(folder: Path) -> dict[str, object]:
    """Read config.json. Raises UnsupportedModel."""
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


def has_experts(config: dict[str, object]) -> bool:
    return any(config.get(name) for name in EXPERTS)


def misfit(policy: dict[str, object], served: dict[str, object]) -> str:
    """First field in which a policy differs from the server's configuration; empty when it fits."""
    for name in SHAPE:
        if policy.get(name) != served.get(name):
            return f"{name} is {policy.get(name)} there and {served.get(name)} in the server"
    for name in COMPUTES:
        if name in policy and name in served and policy[name] != served[name]:
            return f"{name} is {policy[name]} there and {served[name]} in the server"
    return ""


@dataclass(eq=False)
class Deployment:
    spec: DeploymentSpec
    paused: bool = False
    running: int = 0
    waiting: int = 0
    """Requests that wait for their server to hold these weights."""
    asked_at: float = 0.0
    """Arrival time of the first waiting request."""
    generated: int = 0
    read: int = 0
    reused: int = 0
    preemptions: int = 0
    """Preemptions of its server while this deployment held it."""
    version: int = -1
    digest: str = ""
    error: str = ""
    retry_at: float = 0.0
    refused: str = ""
    """Label of weights that failed verification on its server; `error` has the message."""
    proof: Verification = ""
    """Verification state of its server's last load; the next full load is verified before any answer."""
    last_sync: SyncTimings | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serialises fetches."""

    def __post_init__(self) -> None:
        self._probe: tuple[str, Probe | None] | None = None
        """Label of weights, and their probe."""
        self.subscriber = Subscriber(open_versions(self.spec.store)) if self.spec.store else None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def ready(self) -> bool:
        """Whether there are weights to load into a server."""
        return self.version >= 0

    @property
    def differs(self) -> bool:
        """Whether the current weights failed verification on the server."""
        return self.ready and self.refused == self.label

    def probe(self) -> Probe | None:
        """Reference probe of its weights. Blocks. None where there is none."""
        if self._probe is None or self._probe[0] != self.label:
            store = self.subscriber.store if self.subscriber else None
            self._probe = self.label, reference(store, self.version, Path(self.spec.policy_dir), self.mirror)
        return self._probe[1]

    @property
    def label(self) -> str:
        return label(self.name, self.version, self.digest)

    @property
    def mirror(self) -> Mirror | None:
        """The current weights, word by word; None where they are files of a policy directory."""
        return self.subscriber.current if self.subscriber else None

    @property
    def _pin(self) -> str:
        return f"deployment-{self.name}"

    def status(self) -> DeploymentStatus:
        state = "paused" if self.paused else "serving"
        if self.differs:
            state = "failed"
        elif not self.ready:
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
                "prompt_tokens": self.read,
                "reused_tokens": self.reused,
                "preemptions": self.preemptions,
                "last_sync": self.last_sync,
                "proof": "differs" if self.differs else (self.proof or "due") if self.ready else "",
                "error": self.error,
            }
        )

    async def refresh(self, version: int | None) -> SyncTimings:
        """Fetch `version` (None: the newest). Raises SyncFailed; the old weights stay.

        A deployment that follows a store without versions stays without weights; that is no error.
        """
        async with self.lock:
            if self.subscriber is None:
                self.version = 0
                self.digest = await asyncio.to_thread(_whole_digest, Path(self.spec.policy_dir))
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
            self.subscriber.store.pin(self._pin, self.version)

    def behind(self) -> bool:
        """Whether its store holds newer weights that it should move to. Raises WeightError."""
        return self.spec.follow and self.subscriber is not None and self.subscriber.behind()

    def write(self, folder: Path) -> None:
        """Write the current weights as a checkpoint into `folder`, tied tensors under each of their names. Blocks.

        vLLM's CPU backend keeps a packed copy of a tied output layer, which a reload renews only when the checkpoint
        names it (seen with 0.32: log-probabilities off by 0.5 otherwise). On other backends the second name is
        harmless.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if self.subscriber is None:
            source = Path(self.spec.policy_dir)
            for path in sorted(source.glob("*.safetensors")):
                shutil.copyfile(path, folder / path.name)
            tied = _tied_output(source) if read_config(source).get("tie_word_embeddings") else {}
        else:
            mirror = self.subscriber.current
            assert mirror is not None
            state, aliases = mirror.state(), mirror.manifest.aliases
            whole = {name: tensor for name, tensor in state.items() if name not in aliases}
            safetensors.torch.save_file(whole, folder / "model.safetensors")
            tied = {name: state[name] for name in aliases}
        if tied:
            safetensors.torch.save_file({n: t.clone() for n, t in tied.items()}, folder / "tied.safetensors")

    def note(self, problem: str) -> None:
        """Show a problem with the deployment, and retry later."""
        if problem != self.error:
            log.warning("deployment %s: %s", self.name, problem)
        self.error = problem
        self.retry_at = time.monotonic() + RETRY_SECONDS

    def moved(self) -> None:
        """Reset the verification state: a result of the last server says nothing about the next."""
        self.error = self.refused = self.proof = ""
        self.retry_at = 0.0

    def forget(self) -> None:
        """Let the weight store collect what it kept for this deployment."""
        if self.subscriber is not None:
            self.subscriber.store.unpin(self._pin)


def _tied_output(source: Path) -> dict[str, torch.Tensor]:
    """Output layer of a checkpoint that ties it to the input embeddings."""
    for path in sorted(source.glob("*.safetensors")):
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                if name.endswith("embed_tokens.weight"):
                    return {"lm_head.weight": file.get_tensor(name)}
    return {}


def _whole_digest(folder: Path) -> str:
    """Digest of the weights, once there are whole ones: an older checkpoint's are a difference. Raises SyncFailed."""
    try:
        restore(folder)
    except WeightError as error:
        raise SyncFailed(str(error)) from error
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
