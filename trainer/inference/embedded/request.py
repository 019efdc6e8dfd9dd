"""A request in the engine, and the sequence that computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainer.inference.contract import GenerateRequest, GenerateResponse, LengthLimit, VersionSpan
from trainer.inference.embedded.blocks import Block
from trainer.inference.embedded.sampling import RandomStream, SamplingMask
from trainer.inference.errors import ServerError
from trainer.routed_experts import RoutedExperts, SamplingMasks

Deliver = Callable[[GenerateResponse | ServerError], None]
"""Called once, on the engine thread."""


@dataclass(eq=False)
class Job:
    """One GenerateRequest. `deadline` is on the monotonic clock."""

    request: GenerateRequest
    deadline: float
    deliver: Deliver
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    changes: list[tuple[int, int]] = field(default_factory=list)
    """Versions with the first token of each."""
    allowed_ids: list[list[int]] = field(default_factory=list)
    experts: RoutedExperts | None = None
    reused: int = 0
    limit: int = 0
    """Maximum tokens to generate: the request's limit, or what fits the context."""
    cancelled: bool = False
    admitted: bool = False
    """It has run already; a preempted job waits a second time."""

    def __post_init__(self) -> None:
        self.prompt = tuple(self.request.prompt_ids)
        self.stop = frozenset(self.request.stop_ids)
        self.temperature = self.request.temperature
        self._version = -1
        self.random = RandomStream(self.request.seed)
        asked = self.request
        self.sampling_mask = SamplingMask(asked.top_k, asked.top_p) if asked.mask_logits else None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt, and what was sampled before a preemption."""
        return (*self.prompt, *self.token_ids) if self.token_ids else self.prompt

    @property
    def left(self) -> int:
        """Remaining tokens."""
        return self.limit - len(self.token_ids)

    def append(self, token: int, logprob: float, version: int) -> str | None:
        """Append one token; return the finish reason, or None."""
        if version != self._version:
            self._version = version
            self.changes.append((version, len(self.token_ids)))
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        if token in self.stop:
            return "stop"
        return "length" if len(self.token_ids) >= self.limit else None

    def _limit(self) -> LengthLimit:
        cut = len(self.token_ids) < self.request.max_tokens
        return LengthLimit.ENGINE_CONTEXT if cut else LengthLimit.MAX_TOKENS

    def response(self, reason: str) -> GenerateResponse:
        ends = [*(start for _, start in self.changes[1:]), len(self.token_ids)]
        spans = [
            VersionSpan(version=version, start=start, end=end)
            for (version, start), end in zip(self.changes, ends, strict=True)
        ]
        return GenerateResponse.model_validate(
            {
                "token_ids": self.token_ids,
                "logprobs": self.logprobs,
                "spans": spans,
                "finish_reason": reason,
                "length_limit": self._limit() if reason == "length" else None,
                "reused_tokens": self.reused,
                "experts": self.experts,
                "support": SamplingMasks.pack(self.allowed_ids) if self.sampling_mask else None,
            }
        )


@dataclass(eq=False)
class Sequence:
    """A running job and its blocks."""

    table: int
    """Its row among the block tables."""
    tokens: list[int]
    job: Job
    epoch: int
    """Weights that computed its first keys and values; under others its blocks are of no use to later requests."""
    parent: int
    """Number of its last published block."""
    filled: int
    """Full blocks that are published."""
    cached: int = 0
    """Keys and values of tokens[:cached] are in the cache."""
    blocks: list[Block] = field(default_factory=list)
    draft_tokens: list[int] = field(default_factory=list)
    """Draft tokens; the next step verifies them."""
    shared: int = 0
    """Leading blocks that another running sequence reads, too."""
    finished: bool = False
    """It gave its blocks back."""
    computes: tuple[int, tuple[int, ...]] | None = None
    """Contents of the block that its prefill computes next."""

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.cached
