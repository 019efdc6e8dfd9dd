"""Token-in/token-out inference contract, shared by rollouts, evals and the gateway.

The embedded engine (CPU) and vLLM implement it; one conformance suite runs against both. A *deployment* is a named set
of weights in an inference server. It either follows a weight store (`follow`) or is pinned to a version.

HTTP (JSON):
  GET  /health                          → ServerHealth
  POST /generate        GenerateRequest → GenerateResponse     (429 queue full, 503 paused too long)
  GET  /partial?deployment=…&session=…  → PartialResponse      (tokens so far of the session's running request)
  POST /deployments     DeploymentSpec  → DeploymentStatus     (idempotent by name)
  GET  /deployments                     → list[DeploymentStatus]
  DELETE /deployments/{name}
  POST /deployments/{name}/pause        (in-flight requests keep their KV and continue after resume)
  POST /deployments/{name}/update       {"version": int | null} → SyncTimings   (null: newest in the store)
  POST /deployments/{name}/resume
Errors are {"error": {"code": str, "message": str, "details": {name: int}}} with a remedy in the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sandbox.grading.verdict.outcomes import Cause
from trainer.config.renamed import with_new_names
from trainer.routed_experts import RoutedExperts, SamplingMasks
from trainer.usage import Usage


class Wire(BaseModel):
    model_config = ConfigDict(extra="forbid")


class GenerateRequest(Wire):
    deployment: str = "policy"
    prompt_ids: list[int] = Field(min_length=1)
    max_tokens: int = Field(gt=0)
    temperature: float = Field(
        default=1.0, ge=0.0, description="0 is greedy; log-probs are of the tempered distribution"
    )
    top_k: int = Field(default=0, ge=0, description="only so many of the likeliest tokens are open; 0: all")
    top_p: float = Field(
        default=1.0,
        gt=0.0,
        le=1.0,
        description="only the likeliest tokens that together have this probability are open",
    )
    experts_from: int | None = Field(
        default=None,
        ge=0,
        description="answer with the experts of positions from this one on, where the policy has any",
    )
    stop_ids: list[int] = Field(default_factory=list, description="generation ends after one of these, which is kept")
    seed: int | None = Field(default=None, description="makes the sampling of this request reproducible")
    session: str | None = Field(
        default=None, description="turns of one episode share it, so that its KV prefix is reused"
    )
    min_version: int = Field(
        default=0,
        ge=0,
        description="only weights of this version or a newer one answer; an engine that lags waits for them",
    )
    timeout_seconds: float = Field(default=120.0, gt=0)
    partial: bool = Field(
        default=False,
        description="at the deadline, an engine that has sampled tokens answers with these (`abort`) if it can, not an error",
    )

    @property
    def mask_logits(self) -> bool:
        """Whether top-k or top-p excludes tokens, so that the answer must include the sampling mask."""
        return self.temperature > 0 and (self.top_k > 0 or self.top_p < 1.0)


class VersionSpan(Wire):
    """This policy version produced tokens [start, end) of the response."""

    version: int
    start: int
    end: int


class LengthLimit(StrEnum):
    """What ended a response whose finish reason is `length`."""

    MAX_TOKENS = "max_tokens"
    """It has as many tokens as were asked for."""
    ENGINE_CONTEXT = "engine_context"
    """Prompt and response fill the engine's context: a limit of the engine, never of the policy."""


class GenerateResponse(Wire):
    token_ids: list[int]
    logprobs: list[float]
    """Log-probability of each token under its sampling distribution: temperature (1.0 when greedy), top-k, top-p."""
    spans: list[VersionSpan]
    finish_reason: Literal["stop", "length", "abort"]
    length_limit: LengthLimit | None = None
    """What ended it, where the finish reason is `length`."""
    reused_tokens: int = 0
    """Prompt tokens whose KV was reused from the session."""
    experts: RoutedExperts | None = None
    """Routed experts from `experts_from` up to the last token that was read; None for a dense policy."""
    support: SamplingMasks | None = None
    """Sampling mask of each sampled token, where the request restricts sampling."""
    seconds: float = 0.0
    """Seconds from the request's arrival at the engine to its answer; 0 when the engine does not report it."""


class PartialResponse(Wire):
    """Tokens that a session's running request has sampled so far, for display only: reading them changes nothing."""

    token_ids: list[int] = Field(default_factory=list)
    """Empty when no request of the session runs, or when the engine learns of tokens only with the whole answer."""


class DeploymentSpec(Wire):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    policy_dir: str = Field(
        description="Hugging Face directory with config and tokenizer (and weights when there is no store)"
    )
    store: str | None = Field(
        default=None, description="weight store to load from; None: the weights of policy_dir, version 0"
    )
    version: int | None = Field(default=None, description="pin to this version; None with a store: newest")
    follow: bool = Field(default=False, description="poll the store and swap weights in flight")
    num_speculative_tokens: int | None = Field(
        default=None, ge=0, le=8, description="draft tokens per step of an embedded engine; None: as it was started"
    )
    max_model_len: int | None = Field(
        default=None,
        gt=0,
        description="tokens of its longest sequence, as far as the policy's positions reach; None: as the engine was started",
    )
    kv_cache_mib: int | None = Field(
        default=None,
        gt=0,
        description="memory for keys and values in an embedded engine, MiB; None: as it was started, and enough for one "
        "sequence",
    )
    top_k: int = Field(
        default=0, ge=0, description="what its requests will ask, so that an engine that cannot says so now"
    )
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, description="likewise")
    experts: bool = Field(
        default=False, description="its requests will ask for the experts of their tokens, where the policy has any"
    )

    @model_validator(mode="before")
    @classmethod
    def _new_names(cls, given: Any) -> Any:
        return with_new_names(cls, given) if isinstance(given, dict) else given


class UpdateRequest(Wire):
    version: int | None = Field(default=None, ge=0, description="None: the newest version in the store")


class SyncTimings(Wire):
    """Timings of one weight swap. Each second counts once: fetch, decode, wait and pause follow one another; apply and
    resume are the two parts of the pause.
    """

    version: int
    kind: Literal["anchor", "delta", "none"] = "none"
    bytes: int = 0
    """Bytes fetched."""
    fetch: float = 0.0
    """Reading the version from the weight store, concurrent with generation."""
    decode: float = 0.0
    """Decoding and verifying the weights, concurrent with generation."""
    wait: float = 0.0
    """From the request to stop generation until it stops: the step in progress."""
    pause: float = 0.0
    """Total time during which generation stood still."""
    apply: float = 0.0
    """Part of the pause in which the new weights are installed."""
    resume: float = 0.0
    """Part of the pause from installed weights until the next step may begin; 0 where it had been paused before."""
    patched: bool = False
    """Changed words were overwritten in place; otherwise the weights were loaded in full."""

    @property
    def seconds(self) -> float:
        """Total seconds."""
        return self.fetch + self.decode + self.wait + self.pause

    def swapped(self, *, asked: float, stood: float, held: float, went_on: float) -> None:
        """Record the swap's phases from readings of one clock: when the stop was requested, when generation stopped,
        when the engine held the new weights, and when steps resumed.
        """
        self.wait, self.pause = stood - asked, went_on - stood
        self.apply, self.resume = held - stood, went_on - held


Verification = Literal["", "due", "proven", "unknown", "differs"]
"""State of weight verification: the engine's outputs against the publisher's for a fixed text (`verify_weights.py`).

""        nothing is loaded yet
due       the next load is verified before any answer
unknown   there is no reference: the publisher left none, and the weights are too large to compute it there
differs   the outputs differ, and no answer of the engine is used
"""


class EngineStatus(Wire):
    """One engine's report on a deployment that it serves. Counters start at the deployment's creation there."""

    url: str = ""
    """Empty: the engine that was asked."""
    cluster: str = ""
    version: int
    proof: Verification = ""
    error: str = ""
    last_sync: SyncTimings | None = None
    cache_share: float | None = None
    prompt_tokens: int = 0
    reused_tokens: int = 0
    preemptions: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0


class DeploymentStatus(Wire):
    name: str
    version: int
    digest: str
    state: Literal["serving", "paused", "loading", "failed"]
    follow: bool
    running: int = 0
    waiting: int = 0
    slots: int = 0
    """Maximum concurrent requests; 0 when the engine does not report it."""
    max_model_len: int = 0
    """Tokens of its longest sequence; 0 when the engine does not report it."""
    kv_cache_bytes: int = 0
    """Memory for keys and values; 0 when the engine does not report it."""
    cache_share: float | None = None
    """Peak KV-cache utilisation of running requests in the last 10 s; None when the engine does not report it."""
    generated_tokens: int = 0
    prompt_tokens: int = 0
    """Tokens in the prompts of its requests."""
    reused_tokens: int = 0
    """Prompt tokens whose KV was cached already."""
    preemptions: int = 0
    """Times that a running request lost its KV cache to others and was recomputed."""
    draft_tokens: int = 0
    """Draft tokens proposed (speculative decoding)."""
    accepted_tokens: int = 0
    """Draft tokens that the policy accepted."""
    proof: Verification = ""
    last_sync: SyncTimings | None = None
    engines: list[EngineStatus] = Field(default_factory=list)
    """Engines behind a router; empty where one engine serves the deployment itself."""
    error: str = ""

    @property
    def by_engine(self) -> list[EngineStatus]:
        """Status by engine; at least one."""
        return self.engines or [
            EngineStatus(
                version=self.version,
                proof=self.proof,
                error=self.error,
                last_sync=self.last_sync,
                cache_share=self.cache_share,
                prompt_tokens=self.prompt_tokens,
                reused_tokens=self.reused_tokens,
                preemptions=self.preemptions,
                draft_tokens=self.draft_tokens,
                accepted_tokens=self.accepted_tokens,
            )
        ]


class ServerStatus(Wire):
    """A server that an engine drives, such as a vLLM server."""

    url: str
    ok: bool
    deployment: str = ""
    """Deployment whose weights it holds."""
    model: str = ""
    weights: str = ""
    """How it receives new weights; if not in place, the reason."""
    leaving: bool = False
    """Removed from the list: running requests finish, no new ones arrive, then the server is removed."""
    running: int = 0
    """Requests in progress, counting those that passed through here."""
    error: str = ""


class ServerHealth(Wire):
    ok: bool
    engine: str
    busy_share: float = 0.0
    """Share of the last 10 s in which the engine computed."""
    tokens_per_second: float = 0.0
    """Sampled tokens of the last 10 s, per second."""
    busy_seconds: float = 0.0
    """Seconds of computing since the server started; behind a router the mean of its engines."""
    sampled_tokens: int = 0
    """Since the server started."""
    max_context: int = 0
    """Longest context that it serves, in tokens; 0 when it does not report it."""
    kv_bytes: int = 0
    """Memory of the KV cache of one deployment; 0 when it does not report it."""
    deployments: list[DeploymentStatus] = Field(default_factory=list)
    servers: list[ServerStatus] = Field(default_factory=list)
    """Servers behind this one; the embedded engine has none."""
    usage: list[Usage] = Field(default_factory=list)
    """What this server's process and host use, and behind a router those of each engine; empty until measured."""
    error: str = ""
    """Cause of an unhealthy state, with a remedy."""


class InferenceError(Exception):
    """The engine could not answer. This is an infrastructure failure, never a property of the policy."""

    outcome: ClassVar[Cause] = Cause.ENGINE_FAILED
    """Row in the table of outcomes."""

    def __init__(self, message: str = "", *, code: str = "", details: Mapping[str, int] | None = None) -> None:
        """`code` and `details` are the server's own (`errors.py`), empty if it gave none."""
        super().__init__(message)
        self.code = code
        self.details = details or {}


class InferenceRefused(InferenceError):
    """The server refuses the request permanently; retrying does not help."""


class EngineContextExceeded(InferenceRefused):
    """A prompt does not fit the engine's context."""

    outcome = Cause.ENGINE_CONTEXT


class InferenceClient(Protocol):
    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        """Generate one response. Raises InferenceError after its own bounded retries, or at the request's deadline."""
        ...
