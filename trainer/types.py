"""Types of rollouts: created in `episode.py`, stored, and trained on.

Token arrays are plain lists so that every type serialises; the trainer converts them to tensors once. Text and JSON
from policies, tests and judges are made storable on entry (`sandbox/storable.py`).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from sandbox.grading.verdict.report import Report, Verdict
from sandbox.harness.types import StopReason, ToolCall, ToolResult
from sandbox.storable import StorableObject, StorableText
from trainer.routed_experts import RoutedExperts, SamplingMasks


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Segment(Frozen):
    """One context window as the tokens that went in and out. All lists have the same length T.

    `logprobs[t]` is the sampler's log-probability of `tokens[t]` at the sampling temperature (0.0 where `loss_mask[t]`
    is 0). `versions[t]` is the policy version that produced it (-1 for tokens not sampled).
    """

    tokens: list[int]
    logprobs: list[float]
    loss_mask: list[int]
    versions: list[int]
    experts: RoutedExperts | None = None
    """Sampler's routed experts for the first of these tokens, where the policy has experts."""
    support: SamplingMasks | None = None
    """Sampling mask by token, where sampling was restricted; one entry per token of the segment."""
    opening: str = ""
    """User's message of a window that opens with a summary; empty for the first window and after a truncation."""


class Turn(Frozen):
    """One policy message and the results of its tool calls."""

    index: int
    segment: int = 0
    text: StorableText
    """The policy's tokens, decoded for display."""
    token_start: int
    token_end: int
    """Half-open span of this turn's policy tokens in its segment."""
    summary: bool = False
    """The turn ends its segment: the policy summarized its work for the next one."""
    thinking_tokens: int = 0
    """Tokens of the thinking block (0 for policies that have none)."""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    generate_seconds: float = 0.0
    tool_seconds: float = 0.0
    asked: StorableText = ""
    """User message after this turn's results, when the user interrupted."""
    snapshot: str = ""
    """Digest of the sandbox snapshot after this turn's calls, if one was kept (`snapshots.py`)."""


class Forked(Frozen):
    """Fork point of a trajectory. Its first turns and tokens belong to the parent, read and not sampled."""

    parent: str
    """The caller's name for the parent trajectory."""
    turns: int
    tokens: int
    replayed: int
    """Turns before the fork point whose calls were rerun because no later snapshot was kept."""


class Usage(Frozen):
    """Token counts of an episode as an endpoint reports them, summed over its requests."""

    read: int
    cached: int
    """Input tokens served from the endpoint's cache."""
    written: int
    thinking: int
    """Output tokens of hidden reasoning."""
    window: int
    """Input and output tokens of the last request: the final transcript length."""


class RewardPart(Frozen):
    name: str
    value: float
    weight: float = 1.0
    version: int = 1
    """Version of the component that computed it; the registry sets it."""
    detail: StorableObject = Field(default_factory=dict)


class Trajectory(Frozen):
    """The whole recorded rollout: the unit of storage, review and export."""

    task_id: str
    bundle_hash: str
    sample: int
    messages: tuple[StorableObject, ...]
    """System and user messages that open the episode."""
    tool_schema_hash: str
    turns: tuple[Turn, ...]
    segments: tuple[Segment, ...]
    stop_reason: StopReason
    patch: StorableText = ""
    """Unified diff of the graded work, for display."""
    patch_skipped: tuple[StorableText, ...] = ()
    report: Report
    reward_parts: tuple[RewardPart, ...] = ()
    reward: float | None = None
    """Sum of value × weight; None when the verdict is `infra_error`."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Wall seconds by phase: start, generate, tools, grade, total."""
    visible_passed: bool | None = None
    """Whether the reward's visible command succeeded in the policy's own checkout; None when there is no such command.
    """
    limits_in_force: tuple[str, ...] = ()
    forked: Forked | None = None
    usage: Usage | None = None
    """Usage of a policy behind an endpoint; then there are no segments."""

    @property
    def verdict(self) -> Verdict:
        return self.report.verdict

    @property
    def output_tokens(self) -> int:
        return self.usage.written if self.usage else sum(sum(s.loss_mask) for s in self.segments)

    @property
    def total_tokens(self) -> int:
        """Tokens of all context windows, or of an endpoint's final transcript."""
        return self.usage.window if self.usage else sum(len(s.tokens) for s in self.segments)

    @property
    def oldest_version(self) -> int:
        return min((v for s in self.segments for v in s.versions if v >= 0), default=-1)

    @property
    def newest_version(self) -> int:
        return max((v for s in self.segments for v in s.versions if v >= 0), default=-1)

    @property
    def version_count(self) -> int:
        """Number of policy versions that generated its tokens; more than 1 when weights were swapped in flight."""
        return len({v for s in self.segments for v in s.versions if v >= 0})


class TrainSample(Frozen):
    """The trainer's view of one segment: per-token streams, independent of the algorithm."""

    tokens: list[int]
    loss_mask: list[int]
    sampler_logprobs: list[float]
    advantages: list[float]
    """Final advantage per token (group baseline subtracted); 0 where the mask is 0."""
    experts: RoutedExperts | None = None
    support: SamplingMasks | None = None
    """Sampling mask of the segment."""


class HintedTurn(Frozen):
    """One turn of a rollout in two contexts; both end with the turn's own sampled tokens."""

    rule: str
    """Rule that found the mistake."""
    sample: int = -1
    """Sample index of the rollout in its group; -1 in older records without it."""
    tokens: list[int]
    """Original context and the turn."""
    hinted_tokens: list[int]
    """Context with a hint at its end, and the same turn."""
    turn_tokens: int


class TrainGroup(Frozen):
    """An accepted group, in the order the trainer must consume it."""

    group_id: str
    prompt_index: int
    dispatched_version: int
    oldest_version: int
    newest_version: int = -1
    """Newest version that generated any token; -1 for older records without it."""
    rewards: list[float]
    samples: list[TrainSample]
    hints: list[HintedTurn] = Field(default_factory=list)
    """Turns trained by textual feedback (`algorithms/textual_feedback/`), beside the reward."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the task by which metrics group rewards: `source`, and `environment` where it has a prepared one."""
    stats: dict[str, float] = Field(default_factory=dict)
    """Step metrics of the group's rollouts, as means over rollouts (names of `learning/metrics.py`)."""
