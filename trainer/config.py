"""RunConfig: the ONE description of a run. Form, API, CLI, storage and trainer all load this model.

Imports neither torch nor Django (the import linter checks it). Every field has a title-worthy name, a help
text, bounds, and a default that is our documented choice. `advanced` fields sit behind a fold in the form.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator


def setting(default: Any, help: str, *, advanced: bool = False, **bounds: Any) -> Any:
    """A field with its help text; `advanced` tells the form where to put it."""
    extra: dict[str, JsonValue] | None = {"advanced": True} if advanced else None
    return Field(default=default, description=help, json_schema_extra=extra, **bounds)


MIX = r"^ *([a-z]+ *= *\d+(\.\d+)? *(, *[a-z]+ *= *\d+(\.\d+)? *)*)?$"


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class OptimizerConfig(Part):
    name: Literal["adamw", "muon"] = setting(
        "adamw", "AdamW for all weights, or Muon for matrices and AdamW for the rest"
    )
    learning_rate: float = setting(3e-4, "Peak learning rate", gt=0, le=1)
    warmup_steps: int = setting(5, "Steps of linear warm-up", ge=0)
    decay_from: float = setting(0.6, "Share of the run after which the rate falls linearly", ge=0, le=1, advanced=True)
    final_share: float = setting(0.15, "Rate at the end, as a share of the peak", ge=0, le=1, advanced=True)
    weight_decay: float = setting(0.0, "Decoupled weight decay", ge=0, advanced=True)
    beta1: float = setting(0.9, "First moment decay", ge=0, lt=1, advanced=True)
    beta2: float = setting(0.95, "Second moment decay", ge=0, lt=1, advanced=True)
    clip_norm: float = setting(1.0, "Gradient norm limit", gt=0)


class SamplingConfig(Part):
    temperature: float = setting(0.8, "Sampling temperature; log-probabilities use the same", gt=0, le=2)
    top_k: int = setting(0, "Sample among so many of the likeliest tokens; 0 for all", ge=0, advanced=True)
    top_p: float = setting(
        1.0, "Sample among the likeliest tokens that together have this probability", gt=0, le=1, advanced=True
    )
    routed_experts: bool = setting(
        True, "Mixture-of-experts policies: the trainer repeats the experts that the sampler chose", advanced=True
    )
    max_turn_tokens: int = setting(96, "Most tokens of one policy turn", gt=0)
    max_context_tokens: int = setting(768, "Most tokens of one episode, observations included", gt=0)
    max_turns: int = setting(8, "Most policy turns of one episode", gt=0)
    episode_seconds: float = setting(120.0, "Wall-clock limit of one episode's tool calls", gt=0)
    engine_seconds: float = setting(
        600.0,
        "Longest that one episode may wait for the engine in all; beyond it the episode is lost to infrastructure",
        gt=0,
        advanced=True,
    )


class SummaryConfig(Part):
    """What happens when an episode outgrows a context window."""

    trigger_tokens: int = setting(0, "Tokens of a window at which the next one is opened; 0 never", ge=0)
    mode: Literal["summary", "truncate"] = setting(
        "summary", "The policy summarizes its work for the next window, or old turns are forgotten", advanced=True
    )
    max_tokens: int = setting(256, "Most tokens of one summary, thoughts included", gt=0, advanced=True)
    max_windows: int = setting(8, "Most windows of one episode", ge=1, advanced=True)


class HarnessConfig(Part):
    profile: str = setting("toy", "Harness profile: which tools the policy sees and how strict they are")
    end_on_malformed_call: bool = setting(True, "A tool call that does not parse ends the episode")
    summary: SummaryConfig = Field(default_factory=SummaryConfig)
    snapshot_every: int = setting(
        0,
        "Turns between snapshots of the sandbox, to go on from later; 0 takes none, and a fork runs the calls again",
        ge=0,
        advanced=True,
    )


class CorrectionConfig(Part):
    """What is done about tokens whose sampler and trainer probabilities differ."""

    kind: Literal["auto", "none", "truncated", "masked", "dppo_tv", "clipped", "sequence"] = setting(
        "auto", "Importance correction between sampler and trainer; auto is the algorithm's own"
    )
    clip_high: float = setting(2.0, "Upper bound of the per-token ratio (truncated, masked)", gt=0, advanced=True)
    clip_low: float = setting(0.5, "Lower bound (masked only)", ge=0, advanced=True)
    epsilon_low: float | None = setting(
        None, "Distance below 1 at which a ratio is clipped (clipped, sequence)", gt=0, le=1, advanced=True
    )
    epsilon_high: float | None = setting(None, "The same above 1; empty for the published values", gt=0, advanced=True)
    tv_bound: float = setting(
        0.2, "Largest change of a token's probability that is still learned from (dppo_tv)", gt=0, le=1, advanced=True
    )

    @model_validator(mode="after")
    def _window(self) -> CorrectionConfig:
        if self.kind == "masked" and self.clip_low >= self.clip_high:
            raise ValueError(f"clip_low={self.clip_low} must be below clip_high={self.clip_high}")
        return self


class ObjectiveConfig(Part):
    """How rewards become a gradient. Composer: A = R - mean(R), no std, no length normaliser, constant divisor."""

    algorithm: Literal["composer", "grpo", "dr_grpo", "rloo", "gspo", "cispo"] = setting(
        "composer", "How a group's rewards become advantages of its tokens"
    )
    loss_divisor: float = setting(4096.0, "Constant that the token sum is divided by", gt=0, advanced=True)
    kl_coefficient: float = setting(0.0, "k1 KL to the reference, as a stop-gradient advantage term", ge=0)
    reference: Literal["start", "lagged"] = setting(
        "start", "KL reference: the starting policy, or the policy of some steps ago", advanced=True
    )
    reference_steps: int = setting(20, "Steps between updates of a lagged reference", gt=0, advanced=True)
    expert_plausibility: float = setting(
        0.5,
        "A repeated expert stays while its score is at least this share of the lowest score among the router's own "
        "choices; 0 keeps all",
        ge=0,
        le=1,
        advanced=True,
    )
    correction: CorrectionConfig = Field(default_factory=CorrectionConfig)


class FeedbackConfig(Part):
    """Targeted textual feedback: turns with a mistake are re-scored with a hint and pulled toward what it says."""

    coefficient: float = setting(
        0.0, "Weight of the KL toward the hinted policy on turns with a mistake; 0 is off", ge=0
    )
    rules: str = setting(
        "unknown_tool, invalid_arguments, repeated_call",
        "Rules that find mistakes and write hints, separated by commas; also terminal_for_tools, and model where a "
        "language model is configured",
    )
    most_hints: int = setting(8, "Most hinted turns of one group", gt=0, advanced=True)
    top_k: int = setting(64, "Tokens of the hinted policy that are matched; 0 for all", ge=0, advanced=True)
    cap: float = setting(4.0, "Most nats that one token of a hinted turn counts", gt=0, advanced=True)
    least_shift: float = setting(
        0.01, "A hint that moves a turn's tokens by less (nats, mean) is dropped", ge=0, advanced=True
    )
    turns_at_once: int = setting(16, "Hinted turns of one forward pass", gt=0, advanced=True)

    @property
    def named_rules(self) -> tuple[str, ...]:
        return tuple(name for part in self.rules.split(",") if (name := part.strip()))


class LoraConfig(Part):
    """Low-rank adapters (peft, extra `lora`). Published versions are plain merged weights."""

    rank: int = setting(0, "Rank of the adapters; 0 trains all weights", ge=0, le=1024)
    alpha: float = setting(32.0, "Scale: an update is multiplied by alpha / rank", gt=0, advanced=True)
    targets: str = setting(
        "all-linear", "Modules that get adapters: names separated by commas, or all-linear", advanced=True
    )


class LengthWeights(Part):
    """How much each kind of effort counts in the length penalty's x."""

    thinking_tokens: float = setting(1.0, "Weight of a thinking token", ge=0)
    calling_tokens: float = setting(1.0, "Weight of a token of a turn that calls tools", ge=0)
    output_tokens: float = setting(0.1, "Weight of a token of tool output that the policy reads", ge=0)
    final_tokens: float = setting(1.0, "Weight of a token of a message without calls", ge=0)
    calls: float = setting(1.0, "Weight of a tool call", ge=0)
    turns: float = setting(5.0, "Weight of a turn: parallel calls in one turn are cheaper", ge=0)


class BehaviourConfig(Part):
    """Auxiliary rewards for how the work is done; a weight of 0 turns one off."""

    unfinished_todos: float = setting(0.0, "Weight of the share of to-do items left unfinished", ge=0)
    poor_calls: float = setting(0.0, "Weight of the share of calls that fail or repeat the last", ge=0)
    style: float = setting(0.0, "Weight of the share of added lines with a fault of style", ge=0)
    communication: float = setting(0.0, "Weight of a closing message that is missing, too long or a question", ge=0)
    rubric: float = setting(0.0, "Weight of a language model's grades, where one is configured", ge=0)


class RewardConfig(Part):
    tests_weight: float = setting(1.0, "Reward when every hidden test passes")
    require_finish: bool = setting(
        True, "A passing patch counts only if the policy ended the episode itself", advanced=True
    )
    length_coefficient: float = setting(0.0, "λ of the length penalty λ·C(x); 0 turns it off", ge=0)
    length_k: float = setting(0.01, "Curvature k of C(x)", gt=0, advanced=True)
    length_q: float = setting(0.5, "Curvature q of C(x)", ge=0, advanced=True)
    length_weights: LengthWeights = Field(default_factory=LengthWeights)
    behaviour: BehaviourConfig = Field(default_factory=BehaviourConfig)
    visible_weight: float = setting(
        0.0, "Reward when the command below succeeds in the policy's own checkout; it can be gamed", ge=0, advanced=True
    )
    visible_command: str = setting("python run_tests.py", "Command of that reward", advanced=True)
    extra: str = setting(
        "",
        "Parts of your own with their weights: name=0.1, other=0.05",
        advanced=True,
        pattern=r"^\s*([\w-]+\s*=\s*-?[\d.]+\s*(,\s*[\w-]+\s*=\s*-?[\d.]+\s*)*)?$",
    )

    @property
    def extra_weights(self) -> dict[str, float]:
        pairs = (part.partition("=") for part in self.extra.split(",") if part.strip())
        return {name.strip(): float(weight) for name, _, weight in pairs}

    @model_validator(mode="after")
    def _weights(self) -> RewardConfig:
        try:
            named = self.extra_weights
        except ValueError as error:
            raise ValueError(f"extra={self.extra!r}: write name=weight, separated by commas") from error
        if len(named) < self.extra.count("="):
            raise ValueError(f"extra={self.extra!r} names a part twice")
        return self


class MonitorsConfig(Part):
    """What watches the rollouts, and what a finding may do by itself. People can undo all of it."""

    audit: bool = setting(True, "Read every trajectory by the auditor's rules before it is trained on")
    quarantine: Literal["high", "medium", "low", "never"] = setting(
        "high", "Findings from this severity on keep their rollout out of training"
    )
    ignored_rules: str = setting("", "Rules that never quarantine, separated by commas", advanced=True)
    task_after: int = setting(
        4, "A task is set aside once so many of its rollouts are in quarantine; 0 never", ge=0, advanced=True
    )
    pause_share: float = setting(
        0.5, "Pause the run when more than this share of its last rollouts is in quarantine; 1 never", gt=0, le=1
    )
    pause_window: int = setting(64, "How many last rollouts that share is of", gt=0, advanced=True)
    drift: bool = setting(True, "Watch how rollouts work from step to step, and say when that changes")
    drift_pauses: bool = setting(False, "Such a change pauses the run", advanced=True)
    judge_share: float = setting(
        0.0, "Share of rollouts that a language model reads as well, where one is configured", ge=0, le=1, advanced=True
    )

    @property
    def ignored(self) -> frozenset[str]:
        return frozenset(name for part in self.ignored_rules.split(",") if (name := part.strip()))


class CheckpointConfig(Part):
    every_steps: int = setting(10, "Steps between step checkpoints", gt=0)
    keep: int = setting(3, "Step checkpoints kept besides the last", ge=1, advanced=True)
    anchor_every: int = setting(20, "Versions between full weights in the weight store", gt=0, advanced=True)
    codec: Literal["small", "fast"] = setting(
        "small",
        "How versions are coded in the weight store: for networks between regions, or for one fabric (larger and quicker)",
        advanced=True,
    )
    published_dtype: Literal["float32", "bfloat16"] = setting(
        "float32",
        "Number format of published weights: bfloat16 is half the bytes and rounds what the sampler computes with",
        advanced=True,
    )
    keep_versions: int = setting(
        40, "Newest versions kept in the weight store, besides those still needed", ge=2, advanced=True
    )


class ParallelConfig(Part):
    """Several processes that train one policy together. ranks = replicas × shards × context."""

    ranks: int = setting(1, "Processes of the trainer, one a GPU; 1 is the trainer process itself", ge=1)
    shards: int = setting(1, "Ranks that share weights and optimizer state, each with rows of its own", ge=1)
    replicas: int = setting(1, "Copies of the sharded weights", ge=1, advanced=True)
    context: int = setting(1, "Ranks that share the tokens of each row", ge=1)
    experts: int = setting(1, "Ranks that share the experts of a mixture-of-experts layer", ge=1)
    precision: Literal["float32", "bfloat16"] = setting(
        "float32", "Number format that the trainer computes in; weights, gradients' sums and optimizer stay float32"
    )
    checkpoint_activations: bool = setting(
        False, "Compute each layer again in the backward pass: less memory, a third more work", advanced=True
    )
    compile: bool = setting(False, "Compile each layer", advanced=True)
    logits_at_once: int = setting(
        0,
        "Most logits (policy tokens × vocabulary) that exist at a time; 0 for all of a micro-batch",
        ge=0,
        advanced=True,
    )
    async_checkpoint: bool = setting(True, "Write checkpoints while the next steps are trained", advanced=True)
    restarts: int = setting(3, "Times that the ranks are started again after one of them died", ge=0, advanced=True)

    @model_validator(mode="after")
    def _sizes(self) -> ParallelConfig:
        product = self.replicas * self.shards * self.context
        if product != self.ranks:
            raise ValueError(
                f"replicas={self.replicas} × shards={self.shards} × context={self.context} is {product}, and ranks is "
                f"{self.ranks}; make them agree"
            )
        if self.ranks % self.experts:
            raise ValueError(f"experts={self.experts} does not divide ranks={self.ranks}; choose a divisor")
        if self.ranks == 1 and (self.checkpoint_activations or self.compile):
            raise ValueError("checkpoint_activations and compile are for ranks above 1; leave their defaults")
        return self


class MidtrainConfig(Part):
    """Next-token training on Python source and copying drills."""

    kind: Literal["midtrain"] = "midtrain"
    init: Literal["policy", "scratch"] = setting("policy", "Continue the starting policy, or start from random weights")
    steps: int = setting(60, "Optimiser steps", gt=0)
    batch_tokens: int = setting(4096, "Tokens of one step", gt=0)
    drill_share: float = setting(0.25, "Share of copying drills in the mixture", ge=0, le=1)
    source_share: float = setting(0.15, "Share of Python standard-library source", ge=0, le=1)
    corpus: str = setting(
        "",
        "Prepared corpus to train on (a folder name below the data folder's `corpora`); empty for the built-in mixture",
        pattern=r"^(\w[\w.-]{0,79})?$",
    )
    codebase: str = setting(
        "",
        "Folder or git repository below `corpora` whose loss is measured and that is never trained on",
        pattern=r"^(\w[\w.-]{0,79})?$",
        advanced=True,
    )
    row_tokens: int = setting(512, "Length of the rows that a corpus' documents are packed into", ge=16, advanced=True)
    long_share: float = setting(
        0.0, "Share of the steps, at the end, that train on long rows with a scaled rotary embedding", ge=0, le=1
    )
    long_tokens: int = setting(2048, "Length of the long rows, and of the context from then on", ge=16, advanced=True)
    rope: Literal["theta", "linear", "yarn"] = setting(
        "theta", "How the rotary embedding reaches the long context", advanced=True
    )
    optimizer: OptimizerConfig = Field(default_factory=lambda: OptimizerConfig(name="muon", learning_rate=1e-3))
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)

    @model_validator(mode="after")
    def _long_rows(self) -> MidtrainConfig:
        if self.long_share and not self.corpus:
            raise ValueError("long_share needs a corpus: the built-in mixture has no long documents")
        if self.long_share and self.long_tokens < self.row_tokens:
            raise ValueError(f"long_tokens={self.long_tokens} must not be below row_tokens={self.row_tokens}")
        return self

    @property
    def short_steps(self) -> int:
        """Steps before the long rows begin."""
        return self.steps - round(self.long_share * self.steps)


class SFTConfig(Part):
    """Supervised training on scripted, deliberately imperfect expert trajectories."""

    kind: Literal["sft"] = "sft"
    steps: int = setting(60, "Optimiser steps", gt=0)
    batch_tokens: int = setting(4096, "Tokens of one step", gt=0)
    episodes: int = setting(600, "Expert episodes to record in real sandboxes", gt=0)
    observation_weight: float = setting(
        0.0, "Loss weight of observations and of calls that failed (other policy tokens have 1)", ge=0, le=1
    )
    replay_share: float = setting(
        0.0,
        "Share of examples drawn from the built-in mid-training mixture, so that what it taught is not unlearned",
        ge=0,
        lt=1,
    )
    optimizer: OptimizerConfig = Field(default_factory=lambda: OptimizerConfig(name="muon", learning_rate=1e-3))
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)


class SamplerConfig(Part):
    """Which tasks of the suite a run uses, and in which order. Pass rates are those of a pre-pass (an evaluation)."""

    policy: str = setting("", "Policy whose pre-pass is used (a name); empty for the newest measurement of any")
    hardest: float = setting(0.0, "Least pass rate of a task that is used", ge=0, le=1)
    easiest: float = setting(1.0, "Greatest pass rate of a task that is used", ge=0, le=1)
    drop_solved_none: bool = setting(False, "Leave out tasks that the pre-pass never solved")
    drop_solved_all: bool = setting(False, "Leave out tasks that the pre-pass always solved")
    unmeasured: Literal["use", "skip"] = setting("use", "Tasks without a pre-pass", advanced=True)
    harder_later: float = setting(
        0.0, "Draw easier tasks at the beginning and harder ones at the end; 0 keeps the seeded order", ge=0, le=1
    )
    categories: str = setting(
        "", "Mix of categories as `debug=3, feature=1`; empty for the suite's own", pattern=MIX, advanced=True
    )

    @property
    def weights(self) -> dict[str, float]:
        pairs = (part.split("=") for part in self.categories.replace(" ", "").split(",") if part)
        return {name: float(weight) for name, weight in pairs}

    @model_validator(mode="after")
    def _window(self) -> SamplerConfig:
        if self.hardest > self.easiest:
            raise ValueError(f"hardest={self.hardest} is above easiest={self.easiest}: no task lies between them")
        return self


class AsynchronyConfig(Part):
    """What lies between dispatch and training. With `max_staleness` 0 and no over-sampling none of it changes a bit."""

    oversample: float = setting(
        0.0,
        "Groups dispatched beyond what a step needs, as a share of it; the surplus is trained in the next step and "
        "lags by up to one version more",
        ge=0,
        le=1,
    )
    adaptive: bool = setting(True, "Fewer groups in flight while the inference engine has a queue")
    straggler: Literal["wait", "trim"] = setting(
        "wait",
        "A group's slow attempts are waited for, or cut once most of the group has ended (long attempts are then missing)",
    )
    straggler_factor: float = setting(
        4.0,
        "Times the median attempt of its group that an attempt may take before it is cut (trim)",
        gt=1,
        advanced=True,
    )
    trim_to: float = setting(
        0.75,
        "Share of a group's attempts that must have ended before the rest is cut (trim)",
        gt=0,
        le=1,
        advanced=True,
    )
    window: int = setting(
        0,
        "How far a finished group may overtake the oldest unfinished one, in groups; 0: a step and 30 % of what may be out",
        ge=0,
        advanced=True,
    )
    group_seconds: float = setting(
        0.0, "Longest that one try of a group may take; 0: what its episodes' limits add up to", ge=0, advanced=True
    )
    breaker: int = setting(
        5, "Groups lost one after another for reasons of ours at which the run pauses; 0 never", ge=0, advanced=True
    )
    skip_non_finite: int = setting(
        0,
        "Steps in a row whose gradients are NaN or infinite that leave the weights as they are; one more stops the run",
        ge=0,
        advanced=True,
    )
    resume_rollouts: bool = setting(
        True,
        "An attempt whose worker was lost goes on from its last snapshot, where the harness keeps any",
        advanced=True,
    )


class SessionsConfig(Part):
    """Training on recorded sessions of the gateway in place of tasks; a step is `groups_per_step` sessions, one rollout
    of each prompt. `max_staleness` bounds how far behind the starting version they were served."""

    channel: str = setting(
        "", "Channel whose recorded sessions are trained on; empty: the run plays tasks", pattern=r"^[a-z0-9-]{0,40}$"
    )
    settle_minutes: float = setting(
        30.0, "Minutes after a session's last turn before it is trained on: signals come late", ge=0, advanced=True
    )
    most_redacted: float = setting(
        0.05, "Largest share of a session's tokens that may be redacted", ge=0, le=1, advanced=True
    )
    guard: Literal["stop", "alert"] = setting(
        "stop", "What a guard on the rates does: the run stops, or only an alert is raised"
    )
    edit_drop: float = setting(0.15, "Largest fall of the share of turns that edit", gt=0, le=1, advanced=True)
    question_rise: float = setting(0.15, "Largest rise of the share of turns that only ask", gt=0, le=1, advanced=True)
    malformed_rise: float = setting(
        0.05, "Largest rise of the share of turns with a broken call", gt=0, le=1, advanced=True
    )
    least_turns: int = setting(50, "Turns on each side before a guard judges", ge=1, advanced=True)


class RLConfig(Part):
    """Asynchronous reinforcement learning over whole episodes."""

    kind: Literal["rl"] = "rl"
    suite: str = setting("train", "Suite of prompts; each prompt is used once")
    steps: int = setting(40, "Optimiser steps", gt=0)
    groups_per_step: int = setting(12, "Groups (prompts) of one step", gt=0)
    group_size: int = setting(8, "Rollouts of one prompt (G)", ge=2)
    max_staleness: int = setting(1, "O: versions that a rollout may lag at dispatch; 0 is on-policy", ge=0)
    micro_batch_tokens: int = setting(4096, "Most padded tokens of one forward and backward pass", gt=0, advanced=True)
    batch_timeout_seconds: float = setting(
        1800.0, "The trainer gives up when no full batch arrives for so long", gt=0, advanced=True
    )
    max_in_flight_groups: int = setting(24, "Groups dispatched and not yet accepted", gt=0, advanced=True)
    infra_retries: int = setting(
        2, "Times that a group is tried again after an infrastructure failure", ge=0, advanced=True
    )
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    harness: HarnessConfig = Field(default_factory=HarnessConfig)
    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig)
    reward: RewardConfig = Field(default_factory=RewardConfig)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    feedback: FeedbackConfig = Field(default_factory=FeedbackConfig)
    lora: LoraConfig = Field(default_factory=LoraConfig)
    asynchrony: AsynchronyConfig = Field(default_factory=AsynchronyConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    parallel: ParallelConfig = Field(default_factory=ParallelConfig)
    monitors: MonitorsConfig = Field(default_factory=MonitorsConfig)
    sampler: SamplerConfig = Field(default_factory=SamplerConfig)
    sessions: SessionsConfig = Field(default_factory=SessionsConfig)
    eval_suite: str | None = setting("held-out", "Suite evaluated before, during and after; empty for none")
    eval_every: int = setting(20, "Steps between evaluations during the run", gt=0)
    eval_tasks: int = setting(48, "Tasks of one evaluation", gt=0)
    eval_samples: int = setting(8, "Rollouts of each task before and after (K of best-of-K)", ge=1)

    @model_validator(mode="after")
    def _summary_fits(self) -> RLConfig:
        summary = self.harness.summary
        if summary.trigger_tokens and summary.trigger_tokens + summary.max_tokens > self.sampling.max_context_tokens:
            raise ValueError(
                f"trigger_tokens={summary.trigger_tokens} and a summary of {summary.max_tokens} tokens do not fit into "
                f"max_context_tokens={self.sampling.max_context_tokens}; lower the trigger"
            )
        return self

    @model_validator(mode="after")
    def _window(self) -> RLConfig:
        most = (self.max_staleness + 1) * self.groups_per_step + self.surplus_groups
        if self.max_in_flight_groups > most:
            need = -(-(self.max_in_flight_groups - self.surplus_groups) // self.groups_per_step) - 1
            raise ValueError(
                f"max_in_flight_groups={self.max_in_flight_groups} needs max_staleness >= {need} "
                f"(or at most {most} groups in flight)"
            )
        if 0 < self.asynchrony.window < self.groups_per_step:
            raise ValueError(
                f"asynchrony.window={self.asynchrony.window} is smaller than a step of {self.groups_per_step} groups; "
                "raise it, or 0 for the default"
            )
        return self

    @model_validator(mode="after")
    def _on_ranks(self) -> RLConfig:
        alone = {
            "feedback.coefficient": self.feedback.coefficient > 0,
            "lora.rank": self.lora.rank > 0,
            "objective.reference=lagged": self.objective.kl_coefficient > 0 and self.objective.reference == "lagged",
        }
        if self.parallel.ranks > 1 and (wrong := [name for name, on in alone.items() if on]):
            raise ValueError(f"{wrong[0]} needs parallel.ranks=1, it is {self.parallel.ranks}; turn one of them off")
        return self

    @property
    def group_deadline(self) -> float:
        """Seconds after which one try of a group is given up: episodes that all wait for a sandbox and are all run again."""
        return self.asynchrony.group_seconds or 120.0 + 3.0 * self.sampling.episode_seconds * (1 + self.infra_retries)

    @property
    def surplus_groups(self) -> int:
        """Groups that over-sampling keeps dispatched beyond a step's need."""
        return round(self.asynchrony.oversample * self.groups_per_step)

    @property
    def window_groups(self) -> int:
        """W: a group is overtaken by fewer than this many later ones."""
        return self.asynchrony.window or self.groups_per_step + int(
            0.3 * (self.max_staleness + 1) * self.groups_per_step
        )

    @property
    def lag_limit(self) -> int:
        """Versions that a group may lag when it is trained; the batch waits for one that would lag more."""
        return self.max_staleness + -(-self.surplus_groups // self.groups_per_step)


Stage = Annotated[MidtrainConfig | SFTConfig | RLConfig, Field(discriminator="kind")]


class RunConfig(Part):
    """One configured run: what it starts from, its seed, and its stage."""

    name: str = Field(pattern=r"^[\w][\w .:/+-]{0,79}$", description="Name shown everywhere")
    policy: str = setting("base", "Policy to start from (a name, or name@version)")
    seed: int = setting(0, "Seed of prompt order, sampling and initialisation", ge=0)
    stage: Stage
