"""The vocabulary of rollouts: what is born in `episode.py`, stored, and learned from.

Token arrays are plain lists so that every type serialises; the trainer turns them into tensors once.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sandbox.grading.report import Report, Verdict
from sandbox.harness.types import StopReason, ToolCall, ToolResult
from trainer.replay.wire import RoutedExperts, SamplingSupport


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Segment(Frozen):
    """One context window, as the tokens that went in and out. All lists have the same length T.

    `logprobs[t]` is the sampler's log-probability of `tokens[t]` at the sampling temperature (0.0 where
    `loss_mask[t]` is 0), `versions[t]` the policy version that produced it (-1 for tokens not sampled).
    """

    tokens: list[int]
    logprobs: list[float]
    loss_mask: list[int]
    versions: list[int]
    experts: RoutedExperts | None = None
    """What the sampler routed the first of these tokens to, where the policy has experts."""
    support: SamplingSupport | None = None
    """Open ids by token, where sampling was narrowed; one entry a token of the segment."""


class Turn(Frozen):
    """One policy message and what its tool calls returned."""

    index: int
    segment: int = 0
    text: str
    """The policy's tokens, decoded for people."""
    token_start: int
    token_end: int
    """Half-open span of this turn's policy tokens in its segment."""
    summary: bool = False
    """It ends its segment: the policy summarized its work for the next one."""
    thinking_tokens: int = 0
    """Of these, tokens of the thinking block (0 for policies that have none)."""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    generate_seconds: float = 0.0
    tool_seconds: float = 0.0
    asked: str = ""
    """What the user said after this turn's results, where somebody interrupted."""
    snapshot: str = ""
    """Digest of the sandbox after this turn's calls, where one was kept (`snapshots.py`)."""


class Forked(Frozen):
    """Where a trajectory went on from another one: its first turns and tokens are that one's, read and not sampled."""

    parent: str
    """What the caller calls the other trajectory."""
    turns: int
    tokens: int
    replayed: int
    """Of these turns, those whose calls were run again because no snapshot was kept after them."""


class Usage(Frozen):
    """Tokens of an episode as an endpoint counts them, summed over its requests: it gives their numbers only."""

    read: int
    cached: int
    """Of those read, taken from the endpoint's cache."""
    written: int
    thinking: int
    """Of those written, reasoning that is not shown."""
    window: int
    """Read and written by the last request: the transcript at its end."""


class RewardPart(Frozen):
    name: str
    value: float
    weight: float = 1.0
    version: int = 1
    """Of the part that computed it; the registry fills it in."""
    detail: dict[str, Any] = Field(default_factory=dict)


class Trajectory(Frozen):
    """The whole recorded rollout; one of these is the unit of storage, review and export."""

    task_id: str
    bundle_hash: str
    sample: int
    messages: tuple[dict[str, Any], ...]
    """System and user messages that opened the episode."""
    tool_schema_hash: str
    turns: tuple[Turn, ...]
    segments: tuple[Segment, ...]
    stop_reason: StopReason
    patch: str = ""
    """Unified diff of what was graded, for people."""
    patch_skipped: tuple[str, ...] = ()
    report: Report
    reward_parts: tuple[RewardPart, ...] = ()
    reward: float | None = None
    """Sum of value × weight; None when the verdict is `infra_error`."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Wall seconds by phase: start, generate, tools, grade, total."""
    visible_passed: bool | None = None
    """Whether the reward's visible command succeeded in the policy's own checkout; None when it was not asked."""
    limits_in_force: tuple[str, ...] = ()
    forked: Forked | None = None
    usage: Usage | None = None
    """Of a policy behind an endpoint; then there are no segments."""

    @property
    def verdict(self) -> Verdict:
        return self.report.verdict

    @property
    def policy_tokens(self) -> int:
        return self.usage.written if self.usage else sum(sum(s.loss_mask) for s in self.segments)

    @property
    def total_tokens(self) -> int:
        """Of all context windows, or of the transcript of an endpoint at its end."""
        return self.usage.window if self.usage else sum(len(s.tokens) for s in self.segments)

    @property
    def oldest_version(self) -> int:
        return min((v for s in self.segments for v in s.versions if v >= 0), default=-1)

    @property
    def newest_version(self) -> int:
        return max((v for s in self.segments for v in s.versions if v >= 0), default=-1)

    @property
    def version_count(self) -> int:
        """Policy versions that generated its tokens; more than 1 when weights were swapped under it."""
        return len({v for s in self.segments for v in s.versions if v >= 0})


class TrainSample(Frozen):
    """What the trainer sees of one segment: per-token streams and nothing about algorithms."""

    tokens: list[int]
    loss_mask: list[int]
    sampler_logprobs: list[float]
    advantages: list[float]
    """Per token, already final (group baseline subtracted); 0 where the mask is 0."""
    experts: RoutedExperts | None = None
    support: SamplingSupport | None = None
    """As in the segment."""


class HintedTurn(Frozen):
    """One turn of a rollout behind two contexts; both end with the turn's own sampled tokens."""

    rule: str
    """Who found the mistake."""
    tokens: list[int]
    """The context as it was, and the turn."""
    hinted_tokens: list[int]
    """The context with a hint at its end, and the same turn."""
    turn_tokens: int


class TrainGroup(Frozen):
    """An accepted group, in the order the trainer must consume it."""

    group_id: str
    prompt_index: int
    dispatched_version: int
    oldest_version: int
    newest_version: int = -1
    """Newest version that generated any token; -1 for groups recorded before it was kept."""
    rewards: list[float]
    samples: list[TrainSample]
    hints: list[HintedTurn] = Field(default_factory=list)
    """Turns to be learned by textual feedback (`learning/feedback/`), beside the reward."""
    labels: dict[str, str] = Field(default_factory=dict)
    """What its task is: `source`, and `environment` where it has a prepared one. Rewards are told apart by them."""
    stats: dict[str, float] = Field(default_factory=dict)
    """Numbers of the group's rollouts for the step's metrics (names of `learning/metrics.py`), means over rollouts."""
