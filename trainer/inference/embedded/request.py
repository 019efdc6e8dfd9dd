"""A request in the engine, and the cache slot that it occupies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainer.inference.contract import GenerateRequest, GenerateResponse, VersionSpan
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

    def __post_init__(self) -> None:
        self.prompt = tuple(self.request.prompt_ids)
        self.stop = frozenset(self.request.stop_ids)
        self.temperature = self.request.temperature
        self._version = -1
        self.random = RandomStream(self.request.seed)
        asked = self.request
        self.sampling_mask = SamplingMask(asked.top_k, asked.top_p) if asked.mask_logits else None

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
                "reused_tokens": self.reused,
                "experts": self.experts,
                "support": SamplingMasks.pack(self.allowed_ids) if self.sampling_mask else None,
            }
        )


@dataclass(frozen=True, eq=False)
class PrefixGroup:
    """Prefix group: slots with bit-identical keys and values for their first `length` tokens, copied from one prefill."""

    number: int
    length: int


@dataclass(eq=False)
class Slot:
    """A row of the KV cache. With a job it is active; without one it keeps an idle session's prefix."""

    index: int
    tokens: list[int] = field(default_factory=list)
    cached: int = 0
    """Keys and values of tokens[:cached] are in the cache."""
    epoch: int = -1
    """Version of the weights that computed the oldest of them; a prefix is reused only under the same weights."""
    job: Job | None = None
    session: str | None = None
    prefix_group: PrefixGroup | None = None
    prompt: tuple[int, ...] = ()
    """Prompt under which other requests find this slot; empty where another slot is registered for the same prompt.
    (Asking the
    table would hash the prompt of every slot.)
    """
    draft_tokens: list[int] = field(default_factory=list)
    """Draft tokens; the next step verifies them."""
    used: int = 0
    """Time of last becoming idle, in requests; 0: never used."""

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.cached
