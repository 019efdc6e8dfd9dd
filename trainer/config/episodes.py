"""How an episode is sampled and played."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainer.config.auto import AutoFloat, AutoInt
from trainer.config.parts import Part, setting


class SamplingConfig(Part):
    temperature: float = setting(0.8, "Sampling temperature; log-probabilities use the same", gt=0, le=2)
    top_k: int = setting(0, "Sample among so many of the likeliest tokens; 0 for all", ge=0, advanced=True)
    top_p: float = setting(
        1.0, "Sample among the likeliest tokens that together have this probability", gt=0, le=1, advanced=True
    )
    enable_router_replay: bool = setting(
        True,
        "Router replay (R3) for mixture-of-experts policies: the trainer uses the experts that the engine chose",
        advanced=True,
    )
    max_turn_tokens: AutoInt = setting(0, "Max tokens of one policy turn", ge=0, auto=True)
    max_context_tokens: AutoInt = setting(0, "Max tokens of one context window, observations included", ge=0, auto=True)
    max_turns: AutoInt = setting(0, "Most policy turns of one episode", ge=0, auto=True)
    episode_seconds: AutoFloat = setting(0.0, "Wall-clock limit of one episode's tool calls", ge=0, auto=True)
    num_speculative_tokens: int | None = setting(
        None,
        "Draft tokens per step of speculative decoding in embedded engines; empty: as the engines were started",
        ge=0,
        le=8,
        nothing="as the engines were started",
        advanced=True,
    )
    kv_cache_mib: int | None = setting(
        None,
        "Memory for keys and values in each embedded engine, MiB; empty: as the engines were started, and enough for one "
        "context",
        gt=0,
        nothing="as the engines were started",
        advanced=True,
    )
    engine_seconds: AutoFloat = setting(
        0.0,
        "Max total time that one episode may wait for the engine; beyond it the episode ends with an infrastructure error",
        ge=0,
        auto=True,
        advanced=True,
    )

    @property
    def turns_seconds(self) -> float:
        """Longest that the turns of one attempt may take: its tools, and its waits for the engine."""
        return self.episode_seconds + self.engine_seconds


class SummaryConfig(Part):
    """What happens when an episode outgrows a context window."""

    trigger_tokens: int = setting(0, "Tokens of a window at which the next one is opened; 0 never", ge=0)
    trigger_share: float = setting(
        0.0,
        "The same as a share of the context, the summary's own tokens included; 0: trigger_tokens as given",
        ge=0,
        le=1,
        advanced=True,
    )
    mode: Literal["summary", "truncate"] = setting(
        "summary", "The policy summarizes its work for the next window, or old turns are forgotten", advanced=True
    )
    max_tokens: int = setting(256, "Max tokens of one summary, thoughts included", gt=0, advanced=True)
    max_windows: int = setting(8, "Most windows of one episode", ge=1, advanced=True)


class HarnessConfig(Part):
    profile: str = setting(
        "auto", "Harness profile: which tools the policy sees, and how much of their output it reads", auto=True
    )
    end_on_malformed_call: bool = setting(False, "A tool call that does not parse ends the episode")
    summary: SummaryConfig = Field(default_factory=SummaryConfig)
    snapshot_every: int = setting(
        0,
        "Turns between snapshots of the sandbox, to go on from later; 0 takes none, and a fork runs the calls again",
        ge=0,
        advanced=True,
    )
