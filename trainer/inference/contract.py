"""Token-in/token-out inference: the one contract that rollouts, evals and the gateway speak.

Served by the embedded engine (CPU) and by vLLM; one conformance suite runs against both. A *deployment* is a
named set of weights in an inference server: it either follows a weight store (`follow`) or is pinned to a version.

HTTP (JSON):
  GET  /health                          → ServerHealth
  POST /generate        GenerateRequest → GenerateResponse     (429 queue full, 503 paused too long)
  POST /deployments     DeploymentSpec  → DeploymentStatus     (idempotent by name)
  GET  /deployments                     → list[DeploymentStatus]
  DELETE /deployments/{name}
  POST /deployments/{name}/pause        (in-flight requests keep their KV and continue after resume)
  POST /deployments/{name}/update       {"version": int | null} → SyncTimings   (null: newest in the store)
  POST /deployments/{name}/resume
Errors are {"error": {"code": str, "message": str}} with a remedy in the message.
"""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from trainer.replay.wire import RoutedExperts, SamplingSupport


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
    timeout_seconds: float = Field(default=120.0, gt=0)

    @property
    def narrowed(self) -> bool:
        """Whether some tokens are closed to sampling, so that the answer must say which were open."""
        return self.temperature > 0 and (self.top_k > 0 or self.top_p < 1.0)


class VersionSpan(Wire):
    """Tokens [start, end) of the response were produced by this policy version."""

    version: int
    start: int
    end: int


class GenerateResponse(Wire):
    token_ids: list[int]
    logprobs: list[float]
    """log p of each token under the distribution it was sampled from: temperature (1.0 when greedy), top-k, top-p."""
    spans: list[VersionSpan]
    finish_reason: Literal["stop", "length", "abort"]
    reused_tokens: int = 0
    """Prompt tokens whose KV was reused from the session."""
    experts: RoutedExperts | None = None
    """As asked by `experts_from`, up to the last token that was read; None for a dense policy."""
    support: SamplingSupport | None = None
    """Open tokens at each sampled token, where the request narrows them."""
    seconds: float = 0.0
    """From the request's arrival at the engine to its answer; 0 of an engine that does not say."""


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
    speculate: int | None = Field(
        default=None, ge=0, le=8, description="tokens guessed ahead by an embedded engine; None: as it was started"
    )
    top_k: int = Field(
        default=0, ge=0, description="what its requests will ask, so that an engine that cannot says so now"
    )
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, description="likewise")
    experts: bool = Field(
        default=False, description="its requests will ask for the experts of their tokens, where the policy has any"
    )


class UpdateRequest(Wire):
    version: int | None = Field(default=None, ge=0, description="None: the newest version in the store")


class SyncTimings(Wire):
    """One weight swap. Its seconds, each measured once: fetch, decode, wait and pause follow one another; apply and resume
    are the two parts of the pause."""

    version: int
    kind: Literal["anchor", "delta", "none"] = "none"
    bytes: int = 0
    """Fetched."""
    fetch: float = 0.0
    """Reading the version from the weight store, beside generation."""
    decode: float = 0.0
    """Making of it what can be put in, and proving that, beside generation."""
    wait: float = 0.0
    """From asking generation to stand still until it does: the step in progress."""
    pause: float = 0.0
    """How long generation stood still, in all."""
    apply: float = 0.0
    """Of the pause: the new weights are put in."""
    resume: float = 0.0
    """Of the pause: from the new weights being in until the next step may begin; 0 where somebody had paused it before."""
    patched: bool = False
    """Changed words were overwritten in place; otherwise the weights were loaded whole."""

    @property
    def seconds(self) -> float:
        """In all, each second once."""
        return self.fetch + self.decode + self.wait + self.pause

    def swapped(self, *, asked: float, stood: float, held: float, went_on: float) -> None:
        """Notes the phases of the swap itself, by readings of one clock: when generation was asked to stand still, when it
        did, when the engine held the new weights, and when steps went on."""
        self.wait, self.pause = stood - asked, went_on - stood
        self.apply, self.resume = held - stood, went_on - held


Proof = Literal["", "due", "proven", "unknown", "differs"]
"""Whether what an engine computes was compared with what the weights say of a fixed text (`proving.py`).

""        nothing is loaded yet
due       the next load is compared before it answers
unknown   there is nothing to compare with: the publisher left nothing, and the weights are too large to compute it there
differs   it computes something else, and nothing that it says is used
"""


class EngineStatus(Wire):
    """What one engine says of a deployment that it serves. What is counted counts from the deployment's creation there."""

    url: str = ""
    """Empty: the engine that was asked."""
    cluster: str = ""
    version: int
    proof: Proof = ""
    error: str = ""
    last_sync: SyncTimings | None = None
    cache_share: float | None = None
    prompt_tokens: int = 0
    reused_tokens: int = 0
    preemptions: int = 0
    guessed_tokens: int = 0
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
    """Requests that it computes at the same time; 0 when it does not say."""
    cache_share: float | None = None
    """Largest share of its engine's room for keys and values that running requests filled in the last 10 s; None while it
    does not say."""
    generated_tokens: int = 0
    prompt_tokens: int = 0
    """Of the prompts of its requests."""
    reused_tokens: int = 0
    """Of these, those whose keys and values were there already."""
    preemptions: int = 0
    """Times that a running request lost its keys and values to others and was computed again."""
    guessed_tokens: int = 0
    """Guessed ahead (speculative decoding)."""
    accepted_tokens: int = 0
    """Of these, those that the policy made, too."""
    proof: Proof = ""
    last_sync: SyncTimings | None = None
    engines: list[EngineStatus] = Field(default_factory=list)
    """Those behind a router; empty where one engine serves it itself."""
    error: str = ""

    @property
    def by_engine(self) -> list[EngineStatus]:
        """Each engine that serves it; at least one."""
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
                guessed_tokens=self.guessed_tokens,
                accepted_tokens=self.accepted_tokens,
            )
        ]


class ServerStatus(Wire):
    """A server that an engine drives (one vLLM server, say)."""

    url: str
    ok: bool
    deployment: str = ""
    """Whose weights it holds now."""
    model: str = ""
    weights: str = ""
    """How it gets new weights, and why not in place where that is so."""
    leaving: bool = False
    """It was taken off the list: what runs there ends, nothing new comes, then it is gone."""
    running: int = 0
    """Requests that it computes now, of those that passed here."""
    error: str = ""


class ServerHealth(Wire):
    ok: bool
    engine: str
    busy_share: float = 0.0
    """Share of the last 10 s in which the engine computed."""
    tokens_per_second: float = 0.0
    deployments: list[DeploymentStatus] = Field(default_factory=list)
    servers: list[ServerStatus] = Field(default_factory=list)
    """The servers behind this one; the embedded engine has none."""
    error: str = ""
    """Why it is not well, and what to do."""


class InferenceError(Exception):
    """The engine could not answer: an infrastructure failure, never a property of the policy."""


class InferenceRefused(InferenceError):
    """The server will not do this, now or later: asking again does not help."""


class InferenceClient(Protocol):
    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        """Raises InferenceError after its own bounded retries, or when the request's deadline passes."""
        ...
