"""What an engine's answer and a finished group must be before anything is learned from them.

An engine that names versions which were never published, or tokens without a version, would make staleness and the
importance correction meaningless. Such an answer is missing data like any other failure of ours, with a cause that
names the engine. Whether the weights behind a true version number are the right ones is proven by digest
(`trainer/weights`), and by the mismatch of on-policy tokens (`stages/rl.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainer.inference.contract import GenerateResponse, InferenceError
from trainer.replay.shape import PolicyShape
from trainer.replay.wire import ReplayRefused
from trainer.rollouts.types import TrainGroup, TrainSample


class EngineLied(InferenceError):
    """The engine's answer contradicts itself or what was published. The message says how."""


class GroupRefused(InferenceError):
    """A finished group holds numbers that cannot be trained on."""


def token_versions(response: GenerateResponse) -> list[int]:
    """The version of each sampled token, [len(token_ids)]. Raises EngineLied.

    Spans must cover the tokens once, in order, and never go back: weights are only ever swapped for newer ones.
    """
    count, at, newest = len(response.token_ids), 0, 0
    out: list[int] = []
    said = [(s.start, s.end, s.version) for s in response.spans]
    for span in response.spans:
        if span.start != at or span.end <= at or span.version < newest:
            raise EngineLied(f"the engine's version spans {said} do not cover its {count} tokens in order")
        out += [span.version] * (span.end - span.start)
        at, newest = span.end, span.version
    if at != count or len(response.logprobs) != count:
        raise EngineLied(
            f"the engine returned {count} tokens with {len(response.logprobs)} log-probabilities and version spans {said}"
        )
    if not all(math.isfinite(value) and value <= 1e-4 for value in response.logprobs):
        raise EngineLied(f"the engine's log-probabilities are no numbers below 0: {response.logprobs[:8]}")
    return out


def check_group(group: TrainGroup, *, published: int, shape: PolicyShape) -> None:
    """Raises EngineLied when a token is newer than version `published`, or tokens and experts cannot be those of a policy
    of this `shape`; GroupRefused when a number is not finite."""
    if group.newest_version > published:
        raise EngineLied(
            f"group {group.group_id}: the engine names policy version {group.newest_version} and the newest that was "
            f"published is {published}; look at what the deployment serves (its store, its server)"
        )
    for index, sample in enumerate(group.samples):
        for name in ("sampler_logprobs", "advantages"):
            if not all(map(math.isfinite, getattr(sample, name))):
                raise GroupRefused(f"group {group.group_id}, sample {index}: {name} holds NaN or infinity")
        _check_choices(f"group {group.group_id}, sample {index}", sample, shape)
    for hint in group.hints:
        _check_tokens(f"group {group.group_id}, a hint of {hint.rule}", hint.hinted_tokens, shape)
    if not all(map(math.isfinite, group.rewards)):
        raise GroupRefused(f"group {group.group_id}: a reward is not finite ({group.rewards})")


def _check_choices(where: str, sample: TrainSample, shape: PolicyShape) -> None:
    """What the trainer would repeat must be there to be repeated. Raises EngineLied."""
    _check_tokens(where, sample.tokens, shape)
    lengths = {len(sample.tokens), len(sample.loss_mask), len(sample.sampler_logprobs), len(sample.advantages)}
    if len(lengths) != 1:
        raise EngineLied(f"{where}: its streams have {sorted(lengths)} entries, they must have one a token")
    if sample.experts is None:
        return
    if sample.experts.stop >= len(sample.tokens):
        raise EngineLied(
            f"{where}: routed experts reach position {sample.experts.stop} of {len(sample.tokens)} tokens, the last of "
            "which was never read"
        )
    try:
        shape.check_experts(sample.experts.unpack())
    except ReplayRefused as error:
        raise EngineLied(f"{where}: {error}") from error


def _check_tokens(where: str, tokens: Sequence[int], shape: PolicyShape) -> None:
    """Raises EngineLied."""
    try:
        shape.check_tokens(tokens)
    except ReplayRefused as error:
        raise EngineLied(f"{where}: {error}") from error
