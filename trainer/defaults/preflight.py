"""Reasons why a configuration cannot learn, before anything starts. Each names the setting and a remedy."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config import MidtrainConfig, RLConfig, RunConfig, SFTConfig
from trainer.defaults.derive import FILLED_SHARE, state_bytes
from trainer.defaults.facts import Facts

ENGINE_REMEDY = "raise the engine's context (OPENCOMPOSER_ENGINE_CONTEXT, or vLLM's --max-model-len), or lower this"


@dataclass(frozen=True, slots=True)
class Problem:
    field: str
    """Dotted path, as in `stage.sampling.max_turns`."""
    message: str
    fatal: bool = True
    """Whether the run is refused. Otherwise the message is a warning."""


def preflight(config: RunConfig, facts: Facts) -> list[Problem]:
    """Problems of a configuration without automatic settings, fatal ones first."""
    stage = config.stage
    found = _memory(config, facts)
    if isinstance(stage, RLConfig):
        found += _episode(stage, facts) + _engine(stage, facts)
    elif isinstance(stage, MidtrainConfig):
        found += _rows("stage.seq_len", stage.seq_len, facts)
    elif isinstance(stage, SFTConfig) and stage.dataset:
        found += _rows("stage.max_tokens", stage.max_tokens, facts, fatal=False)
    return sorted(found, key=lambda problem: not problem.fatal)


def _episode(stage: RLConfig, facts: Facts) -> list[Problem]:
    if stage.sessions.channel:
        return []
    sampling, found = stage.sampling, _evaluations(stage, facts)
    context, turn = sampling.max_context_tokens, sampling.max_turn_tokens
    if (prompt := facts.prompt_tokens) is not None:
        needed = prompt + turn
        if needed > context:
            of = f" (task {facts.prompt_task})" if facts.prompt_task else ""
            found.append(
                Problem(
                    "stage.sampling.max_context_tokens",
                    f"the opening prompt{of} has {prompt:,} tokens and one turn may have {turn:,}: together {needed:,}, and "
                    f"the context holds {context:,}, so rollouts would end before the policy has acted; set at least "
                    f"{needed:,}, lower max_turn_tokens, or give the policy a chat template with shorter tool descriptions",
                )
            )
        trigger = stage.harness.summary.trigger_tokens
        if trigger and trigger <= needed:
            found.append(
                Problem(
                    "stage.harness.summary.trigger_tokens",
                    f"a window of {trigger:,} tokens holds the opening prompt ({prompt:,}) and no whole turn ({turn:,}): "
                    f"every window would end after one turn; set more than {needed:,}, or 0 for no summaries",
                )
            )
    if facts.model.context and context > facts.model.context:
        found.append(
            Problem(
                "stage.sampling.max_context_tokens",
                f"the model's rotary embedding covers {facts.model.context:,} tokens (max_position_embeddings), and the "
                f"context asks for {context:,}; lower it, or extend the model by mid-training on long rows",
            )
        )
    return found


def _evaluations(stage: RLConfig, facts: Facts) -> list[Problem]:
    """Evaluations of a run play under its own limits."""
    prompt = facts.eval_prompt_tokens
    context, turn = stage.sampling.max_context_tokens, stage.sampling.max_turn_tokens
    if not stage.eval_suite or prompt is None or (needed := prompt + turn) <= context:
        return []
    of = f" (task {facts.eval_prompt_task})" if facts.eval_prompt_task else ""
    message = (
        f"the longest opening prompt of the evaluation suite{of} has {prompt:,} tokens and one turn may have {turn:,}: "
        f"together {needed:,}, and the context (sampling.max_context_tokens) holds {context:,}, so evaluations would not "
        f"measure the policy there; set a context of at least {needed:,}, lower max_turn_tokens, or evaluate on another suite"
    )
    return [Problem("stage.eval_suite", message)]


def _engine(stage: RLConfig, facts: Facts) -> list[Problem]:
    context, found = stage.sampling.max_context_tokens, []
    if stage.sessions.channel:
        return []
    if facts.engine_context and context > facts.engine_context:
        found.append(
            Problem(
                "stage.sampling.max_context_tokens",
                f"the inference engine serves at most {facts.engine_context:,} tokens, and the context asks for "
                f"{context:,}; {ENGINE_REMEDY}",
            )
        )
    if facts.kv_tokens:
        wanted = int(FILLED_SHARE * context * stage.group_size)
        if facts.kv_tokens < context:
            found.append(
                Problem(
                    "stage.sampling.max_context_tokens",
                    f"the engine's KV cache holds {facts.kv_tokens:,} tokens of this model, fewer than one context of "
                    f"{context:,}; give the engine more KV memory (sampling.kv_cache_mib, or OPENCOMPOSER_KV_CACHE_MIB), or "
                    "lower this",
                )
            )
        elif facts.kv_tokens < wanted:
            found.append(
                Problem(
                    "stage.group_size",
                    f"the engine's KV cache holds {facts.kv_tokens:,} tokens, and a group of {stage.group_size} rollouts "
                    f"needs about {wanted:,}: rollouts will wait for one another; give it more KV memory (sampling.kv_cache_mib)",
                    fatal=False,
                )
            )
    return found


def _rows(field: str, tokens: int, facts: Facts, *, fatal: bool = True) -> list[Problem]:
    if not facts.model.context or tokens <= facts.model.context:
        return []
    message = (
        f"rows of {tokens:,} tokens are longer than the {facts.model.context:,} that the model's rotary embedding covers "
        "(max_position_embeddings); lower it"
    )
    return [Problem(field, message, fatal)]


def _memory(config: RunConfig, facts: Facts) -> list[Problem]:
    """The state alone must fit, beside the engine where both share a machine. Activations are a warning elsewhere
    (`memory`)."""
    stage, room = config.stage, facts.trainer_bytes
    if room is None or facts.model.toy:
        return []
    lora = isinstance(stage, RLConfig) and stage.lora.rank > 0
    _, shards = stage.parallel.dims_for(stage.parallel.world_sizes[0])
    cut = shards * stage.parallel.cp
    state = state_bytes(stage.optimizer, facts.model.parameters, lora=lora) // cut
    engine = facts.engine_bytes if isinstance(stage, RLConfig) else 0
    if state + engine <= room:
        return []
    remedy = "train with more ranks (parallel.dp_shard)"
    if stage.parallel.world_size == 1 and stage.optimizer.moment_bytes > 2 and not lora:
        remedy += ", or AdamW with moments of 8 bits (optimizer.state_dtype: int8)"
    if isinstance(stage, RLConfig) and not lora:
        remedy += ", or adapters (lora.rank)"
    beside = ""
    if engine:
        beside = f", the inference engine beside it {_gib(engine)} (weights and KV cache)"
        remedy += ", give the engine less KV memory (sampling.kv_cache_mib) or a machine of its own"
    message = (
        f"weights, gradients and optimizer take {_gib(state)} on each rank{beside}, and the largest train worker has "
        f"{_gib(room)}; {remedy}, or choose a smaller model"
    )
    return [Problem("policy", message)]


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
