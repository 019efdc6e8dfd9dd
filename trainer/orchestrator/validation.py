"""Validation of engine answers and finished groups before training.

An engine that reports unpublished versions, or tokens without a version, would invalidate staleness and the importance
correction. Such an answer is missing data, like any infrastructure failure, with a cause that names the engine. Digests
(`trainer/weights`) and the mismatch of on-policy tokens (`rl/stage.py`) verify that a valid version number stands for
the right weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sandbox.grading.verdict.outcomes import Cause
from trainer.inference.contract import GenerateResponse, InferenceError
from trainer.routed_experts import ReplayRefused
from trainer.router_replay.validate import PolicyShape
from trainer.types import TrainGroup, TrainSample


class InvalidEngineResponse(InferenceError):
    """The engine's answer contradicts itself or the published versions. The message says how."""

    outcome = Cause.INVALID_ENGINE_RESPONSE


class GroupRefused(InferenceError):
    """A finished group contains numbers that cannot be trained on."""

    outcome = Cause.NOT_FINITE


class GroupStale(InferenceError):
    """A finished group contains tokens of a version beyond the run's staleness limit."""

    outcome = Cause.TOO_STALE


def token_versions(response: GenerateResponse) -> list[int]:
    """The version of each sampled token, [len(token_ids)]. Raises InvalidEngineResponse.

    Spans must cover the tokens once, in order, and never go back: weights are only ever swapped for newer ones.
    """
    count, at, newest = len(response.token_ids), 0, 0
    out: list[int] = []
    said = [(s.start, s.end, s.version) for s in response.spans]
    for span in response.spans:
        if span.start != at or span.end <= at or span.version < newest:
            raise InvalidEngineResponse(f"the engine's version spans {said} do not cover its {count} tokens in order")
        out += [span.version] * (span.end - span.start)
        at, newest = span.end, span.version
    if at != count or len(response.logprobs) != count:
        raise InvalidEngineResponse(
            f"the engine returned {count} tokens with {len(response.logprobs)} log-probabilities and version spans {said}"
        )
    if not all(math.isfinite(value) and value <= 1e-4 for value in response.logprobs):
        raise InvalidEngineResponse(f"the engine's log-probabilities are no numbers below 0: {response.logprobs[:8]}")
    return out


def check_group(group: TrainGroup, *, published: int, shape: PolicyShape, staleness_limit: int | None = None) -> None:
    """Check a finished group before it is accepted.

    Raises GroupStale when its oldest token is more than `staleness_limit` versions behind `published`;
    InvalidEngineResponse when a token is newer than `published`, or tokens or experts are impossible for a policy of
    this `shape`; GroupRefused when a number is not finite.
    """
    if group.newest_version > published:
        raise InvalidEngineResponse(
            f"group {group.group_id}: the engine names policy version {group.newest_version} and the newest that was "
            f"published is {published}; look at what the deployment serves (its store, its server)"
        )
    if staleness_limit is not None and 0 <= group.oldest_version < published - staleness_limit:
        raise GroupStale(
            f"group {group.group_id}: its oldest tokens are of policy version {group.oldest_version}, {published} is "
            f"published, and a group may lag {staleness_limit} at most; look at whether engines follow the weight "
            "store, or raise "
            "max_off_policy_steps"
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
    """Check the choices that the trainer would replay. Raises InvalidEngineResponse."""
    _check_tokens(where, sample.tokens, shape)
    lengths = {len(sample.tokens), len(sample.loss_mask), len(sample.sampler_logprobs), len(sample.advantages)}
    if len(lengths) != 1:
        raise InvalidEngineResponse(f"{where}: its streams have {sorted(lengths)} entries, they must have one a token")
    if sample.experts is None:
        return
    if sample.experts.stop >= len(sample.tokens):
        raise InvalidEngineResponse(
            f"{where}: routed experts reach position {sample.experts.stop} of {len(sample.tokens)} tokens, the last of "
            "which was never read"
        )
    try:
        shape.check_experts(sample.experts.unpack())
    except ReplayRefused as error:
        raise InvalidEngineResponse(f"{where}: {error}") from error


def _check_tokens(where: str, tokens: Sequence[int], shape: PolicyShape) -> None:
    """Raises InvalidEngineResponse."""
    try:
        shape.check_tokens(tokens)
    except ReplayRefused as error:
        raise InvalidEngineResponse(f"{where}: {error}") from error
