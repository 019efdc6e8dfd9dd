"""Numbers for `auto` settings, each with its reason.

The rules are rules of thumb for a first run. A value that a person sets is never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainer.config import OptimizerConfig, ParallelConfig, RLConfig, RunConfig
from trainer.config.auto import automatic, with_values
from trainer.defaults.facts import Facts, Model, Shape

Value = int | float | str

CONTEXT_TOKENS = 32_768
"""Context of a run whose model, engine and memory allow more."""
MIN_CONTEXT_TOKENS = 1_024
CONTEXT_STEP = 256
FULL_PROFILE_TOKENS = 16_384
"""Contexts from which on tools may answer with the full profile's 30,000 bytes."""
TURN_TOKENS = 400
"""Tokens of an average turn with its tool output, as coding agents of 0.1 to 30 B write them."""
MIN_TURNS, MAX_TURNS = 10, 100
MAX_TURN_TOKENS, MIN_TURN_TOKENS = 4_096, 256
EPISODE_SECONDS, ENGINE_SECONDS = 1_800.0, 3_600.0
FILLED_SHARE = 0.5
"""Share of its context that a rollout fills on average."""

REFERENCE_PARAMETERS = 7e9
RL_RATE, SFT_RATE = 1e-6, 1e-5
"""AdamW rates of full fine-tuning at `REFERENCE_PARAMETERS`, as published RL and SFT recipes use them."""
RATE_EXPONENT = 0.4
"""Rates grow by this power as models get smaller: 4.9e-6 for RL at 135 M parameters."""
MIN_RATE_SCALE, MAX_RATE_SCALE = 0.5, 10.0
LORA_RATE_FACTOR = 10.0
"""Adapters need about ten times the rate of full fine-tuning."""

TOY_RL_RATE, TOY_RATE = 3e-4, 1e-3
TOY_SAMPLING: dict[str, Value] = {
    "max_turn_tokens": 96,
    "max_context_tokens": 768,
    "max_turns": 8,
    "episode_seconds": 120.0,
    "engine_seconds": 600.0,
}


@dataclass(frozen=True, slots=True)
class Choice:
    """One automatic setting."""

    path: str
    """Dotted path, as in `stage.sampling.max_turns`."""
    value: Value
    reason: str


SUMMARY_PART = 3
"""A summary takes at most this part of a window that is given as a share of the context."""
SUMMARY_TOKENS = "stage.harness.summary.max_tokens"


@dataclass(frozen=True, slots=True)
class Derived:
    config: RunConfig
    """Without any `auto`, except a precision that nobody knows yet."""
    choices: tuple[Choice, ...]


def derive(config: RunConfig, facts: Facts) -> Derived:
    """Fill in every automatic setting of `config`. Raises ValidationError when the numbers do not fit the others."""
    stage, wanted = config.stage, set(automatic(config))
    choices: list[Choice] = []

    def choose(path: str, value: Value, reason: str) -> None:
        """The first value that is offered for a setting counts."""
        if f"stage.{path}" in wanted:
            wanted.remove(f"stage.{path}")
            choices.append(Choice(f"stage.{path}", value, reason))

    if isinstance(stage, RLConfig):
        _episodes(stage, facts, choose)
    choose("optimizer.learning_rate", *_rate(config, facts.model))
    choose("parallel.precision", *_precision(stage.parallel, isinstance(stage, RLConfig), facts))
    known = {choice.path: choice.value for choice in choices if choice.value != "auto"}
    if isinstance(stage, RLConfig):
        context = int(known.get("stage.sampling.max_context_tokens", stage.sampling.max_context_tokens))
        known |= _summary(stage, context, choices)
    return Derived(with_values(config, known), tuple(choices))


def profile_for(model: Model, context: int) -> tuple[str, str]:
    """Harness profile of a context, and why."""
    if model.toy:
        return "toy", "the tools' output that the toy was trained on"
    if context >= FULL_PROFILE_TOKENS:
        return "full", f"a context of {context:,} tokens holds the full output of several tools"
    return "compact", f"a context of {context:,} tokens is below {FULL_PROFILE_TOKENS:,}: tool output is cut earlier"


def _episodes(stage: RLConfig, facts: Facts, choose: Callable[[str, Value, str], None]) -> None:
    if facts.model.toy:
        for name, value in TOY_SAMPLING.items():
            choose(f"sampling.{name}", value, "the toy's own limit")
    context, why = _context(stage, facts)
    choose("sampling.max_context_tokens", context, why)
    context = stage.sampling.max_context_tokens or (
        int(TOY_SAMPLING["max_context_tokens"]) if facts.model.toy else context
    )
    turn = max(MIN_TURN_TOKENS, min(MAX_TURN_TOKENS, context // 8))
    choose(
        "sampling.max_turn_tokens", turn, f"an eighth of the context, within {MIN_TURN_TOKENS} to {MAX_TURN_TOKENS:,}"
    )
    room = context - (facts.prompt_tokens or 0)
    turns = max(MIN_TURNS, min(MAX_TURNS, room // TURN_TOKENS))
    choose("sampling.max_turns", turns, f"turns of about {TURN_TOKENS} tokens that fit beside the opening prompt")
    choose("sampling.episode_seconds", EPISODE_SECONDS, "time for several runs of a repository's tests")
    choose("sampling.engine_seconds", ENGINE_SECONDS, "time for full contexts on a busy engine")
    choose("harness.profile", *profile_for(facts.model, context))
    choose("max_in_flight_groups", *_in_flight(stage, facts, context))


def _context(stage: RLConfig, facts: Facts) -> tuple[int, str]:
    limits = [(CONTEXT_TOKENS, "the default for agents")]
    if facts.model.context:
        limits.append((facts.model.context, "the longest context of the model"))
    if facts.engine_context:
        limits.append((facts.engine_context, "the longest context that the engine serves"))
    if facts.kv_tokens:
        limits.append((facts.kv_tokens, "all tokens that the engine's KV cache holds"))
    if (fitting := _row_tokens(stage, facts)) is not None:
        limits.append((fitting, "the longest row that fits the trainer's memory"))
    tokens, why = min(limits)
    return max(MIN_CONTEXT_TOKENS, tokens // CONTEXT_STEP * CONTEXT_STEP), why


def _row_tokens(stage: RLConfig, facts: Facts) -> int | None:
    """Longest row whose activations fit beside weights, gradients and optimizer. None while something is unknown."""
    shape, room = facts.model.shape, facts.trainer_bytes
    if shape is None or room is None:
        return None
    ranks = stage.parallel.dp_shard * stage.parallel.cp
    state = state_bytes(stage.optimizer, facts.model.parameters, lora=stage.lora.rank > 0) // ranks
    token = activation_bytes(stage.parallel, shape, half=stage.parallel.precision == "bfloat16" or bool(facts.bfloat16))
    return max(0, room - facts.engine_bytes - state) // token * stage.parallel.cp


def state_bytes(optimizer: OptimizerConfig, parameters: int, *, lora: bool) -> int:
    """Weights and gradients in float32, and two moments; weights alone with adapters."""
    return (4 if lora else 8 + optimizer.moment_bytes) * parameters


def activation_bytes(parallel: ParallelConfig, shape: Shape, *, half: bool) -> int:
    """Memory of one token in a forward and backward pass, its logits and their gradient included."""
    kept = (
        shape.layers * shape.width + shape.layer_activations
        if parallel.activation_checkpointing
        else shape.layers * shape.layer_activations
    )
    logits = 0 if parallel.lm_head_chunk_size else 2 * 4 * shape.vocabulary
    return kept * (2 if half else 4) + logits


def _in_flight(stage: RLConfig, facts: Facts, context: int) -> tuple[int, str]:
    allowed = stage.max_window_groups
    if not facts.kv_tokens:
        return allowed, "all that max_off_policy_steps allows"
    held = int(facts.kv_tokens // (FILLED_SHARE * context * stage.group_size))
    if held >= allowed:
        return allowed, "all that max_off_policy_steps allows; the engine's KV cache holds them"
    return max(1, held), f"the engine's KV cache holds {facts.kv_tokens:,} tokens"


def _rate(config: RunConfig, model: Model) -> tuple[float, str]:
    stage = config.stage
    rl = isinstance(stage, RLConfig)
    if model.toy:
        return (TOY_RL_RATE, "the toy's own rate") if rl else (TOY_RATE, "the toy's own rate")
    scale = (REFERENCE_PARAMETERS / max(1, model.parameters)) ** RATE_EXPONENT
    rate = (RL_RATE if rl else SFT_RATE) * max(MIN_RATE_SCALE, min(MAX_RATE_SCALE, scale))
    why = f"{'RL' if rl else 'SFT'} of {_billions(model.parameters)} parameters"
    if isinstance(stage, RLConfig) and stage.lora.rank:
        rate, why = rate * LORA_RATE_FACTOR, f"{why} through adapters"
    return float(f"{rate:.2g}"), why


def _precision(parallel: ParallelConfig, rl: bool, facts: Facts) -> tuple[str, str]:
    if facts.model.toy and rl:
        return "float32", "the toy is small"
    if facts.bfloat16 is None:
        return "auto", "no train worker is up: the trainer decides by its own processor or GPU"
    if facts.bfloat16:
        return "bfloat16", "the trainer's processor or GPU has bfloat16 instructions"
    return "float32", "the trainer's processor has no bfloat16 instructions and would emulate them"


def _summary(stage: RLConfig, context: int, choices: list[Choice]) -> dict[str, Value]:
    summary = stage.harness.summary
    if not summary.trigger_share or not context:
        return {}
    share = int(summary.trigger_share * context)
    known: dict[str, Value] = {}
    said = min(summary.max_tokens, max(1, share // SUMMARY_PART))
    if said < summary.max_tokens:  # of a window that is a share, a summary of many tokens would leave nothing
        reason = f"a third of the window of {share:,} tokens, which has no room for {summary.max_tokens:,}"
        choices.append(Choice(SUMMARY_TOKENS, said, reason))
        known[SUMMARY_TOKENS] = said
    tokens = max(1, share - said)
    reason = f"{summary.trigger_share:g} of the context, less {said} tokens of the summary itself"
    choices.append(Choice("stage.harness.summary.trigger_tokens", tokens, reason))
    return known | {"stage.harness.summary.trigger_tokens": tokens}


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:.2g} B" if parameters >= 1e9 else f"{parameters / 1e6:.3g} M"
