"""From recorded sessions to the groups that the learner takes: near on-policy, one rollout a prompt, nothing left out.

There is one session of each prompt, so the baseline is the mean over the turns of the whole batch; batches are large
because the signal is noisy. A turn with a malformed tool call has its negative reward whether or not anybody saw it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainer.realtime.sessions import RecordedTurn, TokenStream, sequences
from trainer.realtime.signals import Signal, SignalReward, total
from trainer.routed_experts import merge
from trainer.types import RewardPart, TrainGroup, TrainSample


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session as it is trained on."""

    id: str
    prompt_index: int
    """Its number in the run, unique."""
    turns: tuple[RecordedTurn, ...]
    signals: tuple[Signal, ...]


@dataclass(frozen=True, slots=True)
class Freshness:
    """Which sessions are near enough. Versions are those of the policy that was served; the run began at `start`."""

    start: int
    max_off_policy_steps: int
    temperature: float
    max_redacted_share: float = 0.05
    """Share of a session's tokens that may be redacted."""

    def why_not(self, turns: Sequence[RecordedTurn], *, step: int, reward: bool) -> str:
        """Why a session does not train step `step` (from 1); empty when it does."""
        sampled = [turn for turn in turns if turn.token_ids]
        if not sampled:
            return "no tokens recorded"
        if any(abs(turn.temperature - self.temperature) > 1e-6 or turn.top_p < 1 for turn in sampled):
            return "sampled otherwise"
        versions = [version for turn in sampled for version in turn.versions]
        if max(versions) > self.start:
            return "newer than the start"
        if self.start + step - 1 - min(versions) > self.max_off_policy_steps:
            return "stale"
        redacted = sum(turn.redacted_tokens for turn in turns)
        if redacted > self.max_redacted_share * sum(len(turn.prompt_ids) + len(turn.token_ids) for turn in turns):
            return "redacted"
        return "" if reward else "no signal"


@dataclass(slots=True)
class Batch:
    groups: list[TrainGroup]
    metrics: dict[str, float]
    left_out: Counter[str] = field(default_factory=Counter)


def build(records: Sequence[SessionRecord], reward: SignalReward, freshness: Freshness, *, step: int) -> Batch:
    """The groups of optimiser step `step` in the order of `records`, with what was left out and why."""
    kept: list[tuple[SessionRecord, list[list[RewardPart]]]] = []
    left_out: Counter[str] = Counter()
    for record in records:
        parts = reward.parts([turn.facts for turn in record.turns], record.signals)
        why = freshness.why_not(record.turns, step=step, reward=any(parts))
        if why:
            left_out[why] += 1
        else:
            kept.append((record, parts))
    rewarded = [total(turn) for _, parts in kept for turn in parts if turn]
    baseline = sum(rewarded) / len(rewarded) if rewarded else 0.0
    groups = [_group(record, parts, baseline, freshness) for record, parts in kept]
    oldest = min((group.oldest_version for group in groups), default=0)
    lag = {"sessions/staleness": float(step - 1 - oldest)}
    return Batch(groups, _metrics(kept, baseline, left_out) | lag, left_out)


def _group(record: SessionRecord, parts: list[list[RewardPart]], baseline: float, freshness: Freshness) -> TrainGroup:
    # Turns count by their place in the session; a turn that nobody said anything about has advantage 0.
    advantages = {
        turn.index: total(of_turn) - baseline if of_turn else 0.0
        for turn, of_turn in zip(record.turns, parts, strict=True)
    }
    streams = sequences(record.turns)
    versions = [version for stream in streams for version in stream.versions if version >= 0]
    rewards = [total(of_turn) for of_turn in parts if of_turn]
    return TrainGroup(
        group_id=record.id,
        prompt_index=record.prompt_index,
        # The run counts its versions from 0; what was served before its start has a negative number.
        dispatched_version=min(versions) - freshness.start,
        oldest_version=min(versions) - freshness.start,
        newest_version=max(versions) - freshness.start,
        rewards=[sum(rewards) / len(rewards)],
        samples=[_sample(stream, advantages) for stream in streams],
        stats=_stats(record, parts),
    )


def _sample(stream: TokenStream, advantages: dict[int, float]) -> TrainSample:
    return TrainSample(
        tokens=stream.tokens,
        loss_mask=stream.loss_mask,
        sampler_logprobs=stream.logprobs,
        experts=merge(stream.experts, len(stream.tokens)),
        advantages=[
            advantages[turn] if mask else 0.0 for turn, mask in zip(stream.turns, stream.loss_mask, strict=True)
        ],
    )


def _stats(record: SessionRecord, parts: list[list[RewardPart]]) -> dict[str, float]:
    turns = record.turns
    named: dict[str, float] = {}
    for part in (part for of_turn in parts for part in of_turn):
        name = f"reward/part/{part.name}"
        named[name] = named.get(name, 0.0) + part.value * part.weight / len(turns)
    return {
        "tokens/policy": float(sum(len(turn.token_ids) for turn in turns)),
        "turns/mean": float(len(turns)),
        "calls/mean": float(sum(turn.facts.calls for turn in turns)),
        **named,
    }


def _metrics(
    kept: Sequence[tuple[SessionRecord, list[list[RewardPart]]]], baseline: float, left_out: Counter[str]
) -> dict[str, float]:
    facts = [turn.facts for record, _ in kept for turn in record.turns]
    turns = max(1, len(facts))
    return {
        "sessions/used": float(len(kept)),
        "sessions/left_out": float(sum(left_out.values())),
        "sessions/baseline": baseline,
        "sessions/edit_rate": sum(fact.edits > 0 for fact in facts) / turns,
        "sessions/question_rate": sum(fact.question for fact in facts) / turns,
        "sessions/malformed_rate": sum(bool(fact.malformed) for fact in facts) / turns,
    }
