"""Definitions of all run metrics: name → title, unit, meaning. Pages, API and exports read this table.

Names are `<topic>/<name>`. Open families (`stop/`, `tool_error/`, `reward/part/`) are listed by prefix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainer.algorithms.advantage import is_zero_signal
from trainer.types import TrainGroup


@dataclass(frozen=True, slots=True)
class Metric:
    title: str
    unit: str
    meaning: str


METRICS: dict[str, Metric] = {
    "reward/mean": Metric("Reward", "", "mean reward of the rollouts of the step"),
    "reward/best_of_k": Metric("Best-of-K reward", "", "mean over groups of the best reward in the group"),
    "reward/part/": Metric("Reward part", "", "mean weighted value of one named reward part"),
    "reward/source/": Metric("Reward by source", "", "mean reward of the step's rollouts of tasks of one source"),
    "reward/environment/": Metric(
        "Reward by environment", "", "mean reward of the step's rollouts in one prepared environment, by its digest"
    ),
    "verdict/passed": Metric("Passed", "share", "rollouts whose hidden tests all pass"),
    "groups/solved_none": Metric("Groups: none solved", "share", "groups in which no rollout passed"),
    "groups/solved_some": Metric("Groups: some solved", "share", "groups in which some rollouts passed"),
    "groups/solved_all": Metric("Groups: all solved", "share", "groups in which every rollout passed"),
    "groups/zero_signal": Metric(
        "Zero-signal groups", "share", "groups whose rewards are all equal: they teach nothing"
    ),
    "groups/dispatched": Metric("Groups dispatched", "count", "groups that the gate admitted since the run began"),
    "groups/accepted": Metric("Groups accepted", "count", "groups with all verdicts since the run began"),
    "groups/dropped": Metric("Groups dropped", "count", "groups that were given up and replaced since the run began"),
    "groups/dropped/": Metric("Groups dropped", "count", "the same, for one reason"),
    "groups/in_flight": Metric("Groups in flight", "count", "groups dispatched and not yet accepted"),
    "groups/surplus": Metric("Groups ready", "count", "accepted groups that wait for a later step"),
    "concurrency/limit": Metric("Groups allowed in flight", "count", "limit that follows the engine's load"),
    "rollouts/cut": Metric(
        "Attempts cut", "share", "attempts that were ended because the rest of their group was done"
    ),
    "rollouts/reward_failed": Metric(
        "Rewards failed", "share", "judged attempts left out because a part of their reward failed at every try"
    ),
    "rollouts/unstored": Metric(
        "Rollouts not stored", "share", "judged attempts left out because the store did not take them at any try"
    ),
    "policy/entropy": Metric("Entropy", "nats/token", "mean entropy of the tempered distribution at policy tokens"),
    "mismatch/k3_mean": Metric("Mismatch k3, mean", "nat", "mean of r - log r - 1 with r = p_trainer / p_sampler"),
    "mismatch/k3_p99": Metric("Mismatch k3, p99", "nat", "99th percentile of the same over tokens"),
    "mismatch/k3_max": Metric("Mismatch k3, max", "nat", "the same, largest token"),
    "mismatch/k1_mean": Metric("Mismatch k1, mean", "nat", "mean of log p_sampler - log p_trainer at sampled tokens"),
    "mismatch/abs_mean": Metric("Log-probability gap, mean", "nat", "mean of |log p_trainer - log p_sampler|"),
    "mismatch/abs_p99": Metric("Log-probability gap, p99", "nat", "99th percentile of the same over tokens"),
    "mismatch/abs_max": Metric("Log-probability gap, max", "nat", "the same, largest token"),
    "routing/replayed": Metric(
        "Routing: recorded", "share", "tokens and layers for which the sampler's experts are known and repeated"
    ),
    "routing/differs": Metric(
        "Routing: differs", "share", "of these, where the trainer's router alone would choose other experts"
    ),
    "routing/replaced": Metric(
        "Routing: replaced", "share", "repeated experts that the plausibility filter replaced by the router's own"
    ),
    "routing/differs/": Metric("Routing differs, layer", "share", "the same of one mixture-of-experts layer"),
    "routing/replaced/": Metric("Routing replaced, layer", "share", "the same of one mixture-of-experts layer"),
    "routing/imbalance": Metric(
        "Expert load imbalance",
        "share",
        "how much more recorded tokens the busiest expert of a layer computes than the mean expert, mean over layers",
    ),
    "routing/imbalance/": Metric("Expert load imbalance, layer", "share", "the same of one mixture-of-experts layer"),
    "correction/ess": Metric("Effective sample size", "share", "(Σw)² / (N·Σw²) of the importance weights"),
    "correction/chi2": Metric("Chi²", "", "mean of r² minus 1: heavy tails of the ratio"),
    "correction/masked_share": Metric("Masked tokens", "share", "policy tokens whose importance weight is 0"),
    "correction/clipped_share": Metric(
        "Clipped tokens", "share", "policy tokens whose importance weight was cut to a bound above 0"
    ),
    "correction/ratio_mean": Metric("Ratio, mean", "", "mean of p_trainer / p_sampler"),
    "correction/ratio_max": Metric("Ratio, max", "", "largest p_trainer / p_sampler"),
    "feedback/turns": Metric("Hinted turns", "count", "turns of the step that textual feedback re-scored with a hint"),
    "feedback/dropped": Metric("Hints dropped", "share", "hinted turns whose hint moved nothing"),
    "feedback/shift": Metric(
        "Hinted KL", "nats/token", "mean KL from the policy with the hint to the one without, on hinted turns"
    ),
    "kl/k1": Metric(
        "KL to the reference",
        "nats/token",
        "mean log π - log π_ref at policy tokens; π_ref is the start, or a lagged policy",
    ),
    "staleness/mean": Metric(
        "Staleness, mean", "versions", "policy version trained minus the oldest that generated, mean over groups"
    ),
    "staleness/max": Metric("Staleness, max", "versions", "the same, largest group"),
    "staleness/p50": Metric("Staleness, median", "versions", "the same, median group"),
    "staleness/p90": Metric("Staleness, 90 %", "versions", "the same, 90th percentile of groups"),
    "staleness/at/": Metric(
        "Groups at staleness", "share", "groups of the step that lag this many versions (8: or more)"
    ),
    "staleness/versions": Metric(
        "Versions in a rollout", "count", "policy versions that wrote the tokens of one rollout"
    ),
    "optim/loss": Metric("Loss", "", "policy-gradient loss (its level means little; see reward)"),
    "optim/grad_norm": Metric("Gradient norm", "", "norm before clipping"),
    "optim/skipped": Metric("Step skipped", "", "1 when gradients were not finite and the weights stayed as they were"),
    "optim/learning_rate": Metric("Learning rate", "", "rate of this step"),
    "optim/skipped_samples": Metric(
        "Samples without gradient", "count", "samples of zero-signal groups, not run through the model"
    ),
    "tokens/policy": Metric("Policy tokens", "tokens/rollout", "tokens that the policy wrote"),
    "tokens/total": Metric("Context tokens", "tokens/rollout", "all tokens of the rollout, observations included"),
    "tokens/policy/passed": Metric(
        "Policy tokens: passed", "tokens/rollout", "tokens that the policy wrote in rollouts that pass"
    ),
    "tokens/policy/failed": Metric(
        "Policy tokens: failed", "tokens/rollout", "tokens that the policy wrote in rollouts that fail"
    ),
    "tokens/total/passed": Metric("Context tokens: passed", "tokens/rollout", "all tokens of rollouts that pass"),
    "tokens/total/failed": Metric("Context tokens: failed", "tokens/rollout", "all tokens of rollouts that fail"),
    "tokens/trained": Metric("Trained tokens", "tokens", "tokens run through the trainer in this step"),
    "turns/mean": Metric("Turns", "turns/rollout", "policy turns of a rollout"),
    "turns/passed": Metric("Turns: passed", "turns/rollout", "policy turns of rollouts that pass"),
    "turns/failed": Metric("Turns: failed", "turns/rollout", "policy turns of rollouts that fail"),
    "segments/mean": Metric("Context windows", "windows/rollout", "context windows of a rollout, linked by summaries"),
    "calls/mean": Metric("Tool calls", "calls/rollout", "tool calls of a rollout"),
    "stop/": Metric("Stop reason", "share", "rollouts that ended for this reason"),
    "tool_error/": Metric("Tool errors", "count/rollout", "tool calls that failed in this way"),
    "behaviour/": Metric(
        "Behaviour", "", "how rollouts work: mean of one measure of sandbox/grading/audit/behaviour.py"
    ),
    "audit/findings": Metric("Findings", "count/rollout", "findings of the auditor's rules"),
    "audit/quarantined": Metric("Quarantined", "share", "rollouts that a finding kept out of this step"),
    "truncated": Metric("Truncated", "share", "rollouts that ended at a turn, token or time limit"),
    "infra/retries": Metric(
        "Infrastructure retries", "count/group", "episodes that an infrastructure error ended, run again"
    ),
    "time/step": Metric("Step", "s", "whole optimiser step, waiting included"),
    "time/wait_for_batch": Metric("Wait for rollouts", "s", "time the trainer had nothing to train on"),
    "time/train": Metric("Train", "s", "the whole update: scoring, gradients, optimizer"),
    "time/forward_backward": Metric("Forward and backward", "s", "scoring and gradients"),
    "time/optimizer": Metric("Optimizer", "s", "clipping and update"),
    "time/publish": Metric(
        "Publish weights",
        "s",
        "time the step gave to it: copying its version, waiting for one to be in the weight store",
    ),
    "time/publish_background": Metric(
        "Publish weights, beside training", "s", "from the copy of the version until it is in the weight store"
    ),
    "time/heads": Metric(
        "Draft head training", "s", "the draft head, on the step's tokens or once after the last step"
    ),
    "time/checkpoint": Metric("Checkpoint", "s", "writing the step checkpoint"),
    "time/episode": Metric("Episode", "s", "mean wall time of a rollout, grading included"),
    "time/generate": Metric("Episode: generate", "s", "mean wall time a rollout waits for the engine"),
    "time/tools": Metric("Episode: tools", "s", "mean wall time of tool calls"),
    "time/grade": Metric("Episode: grade", "s", "mean wall time of grading"),
    "idle/trainer": Metric("Trainer idle", "share", "share of the step in which the trainer waited for rollouts"),
    "idle/rollouts": Metric(
        "Inference idle", "share", "share of the step in which the inference engine computed nothing"
    ),
    "cache/used": Metric(
        "KV cache used",
        "share",
        "largest share of the room for keys and values that running requests filled within 10 s, fullest engine",
    ),
    "cache/used_min": Metric("KV cache used, least", "share", "the same of the emptiest of several engines"),
    "cache/prefix_hits": Metric(
        "Prefix hits", "share", "tokens of prompts since the last step whose keys and values were there already"
    ),
    "cache/prefix_hits_min": Metric("Prefix hits, least", "share", "the same of the engine with the fewest"),
    "cache/prefix_hits_max": Metric("Prefix hits, most", "share", "the same of the engine with the most"),
    "cache/preemptions": Metric(
        "Pre-emptions",
        "count",
        "times since the last step that a running request lost its keys and values to others; the embedded engine never does",
    ),
    "cache/preemptions_min": Metric("Pre-emptions, least", "count", "the same of the engine with the fewest"),
    "cache/preemptions_max": Metric("Pre-emptions, most", "count", "the same of the engine with the most"),
    "speculation/accepted": Metric(
        "Draft tokens accepted", "share", "draft tokens of the engines since the last step that the policy accepted"
    ),
    "heads/accepted": Metric(
        "Draft head: accepted",
        "share",
        "guesses of the draft head that are the policy's first choice, as are those before them, on texts it has not yet "
        "learned from",
    ),
    "heads/loss": Metric("Draft head: divergence", "nats/token", "KL of the policy to the draft head on those texts"),
    "speed/train_tokens": Metric("Training speed", "tokens/s", "real tokens through the trainer by its busy seconds"),
    "speed/generate_tokens": Metric("Generation speed", "tokens/s", "policy tokens sampled by seconds of wall time"),
    "speed/model_flops": Metric(
        "Model FLOPs", "FLOP/s", "arithmetic that the model needs for the step by the seconds that it took to train"
    ),
    "speed/mfu": Metric(
        "MFU",
        "share",
        "model FLOPs a second against the fastest product of matrices that the device did when it was measured once, "
        "as the training began",
    ),
    "distributed/ranks": Metric(
        "Ranks", "count", "processes that trained the step together; fewer than configured while machines are missing"
    ),
    "memory/trainer": Metric(
        "Trainer memory",
        "bytes",
        "most memory within the step: allocated on the GPU, or resident where the CPU computes; of the rank with most",
    ),
    "weights/bytes": Metric("Version size", "bytes", "bytes written to the weight store for this version"),
    "weights/changed": Metric(
        "Weights changed", "share", "share of weights whose stored bits differ from the last version"
    ),
    "sync/version": Metric("Version served", "", "version that the cluster's last weight sync brought"),
    "sync/bytes": Metric("Weight sync: bytes", "bytes", "bytes that the cluster fetched for it"),
    "sync/fetch": Metric("Weight sync: fetch", "s", "reading the version from the weight store, while it generates"),
    "sync/decode": Metric("Weight sync: decode", "s", "decoding and checking it, while it generates"),
    "sync/wait": Metric("Weight sync: wait", "s", "from asking generation to stand still until it does"),
    "sync/pause": Metric("Weight sync: pause", "s", "total time that generation stood still"),
    "sync/apply": Metric("Weight sync: apply", "s", "of the pause: the new weights are put in"),
    "sync/resume": Metric(
        "Weight sync: resume", "s", "of the pause: from the new weights being in until the next step may begin"
    ),
    **{
        f"sync/{name}/": Metric(
            f"Weight sync by cluster: {name}", unit, "the same of the slowest engine of one cluster"
        )
        for name, unit in (
            ("version", ""),
            ("bytes", "bytes"),
            ("fetch", "s"),
            ("decode", "s"),
            ("wait", "s"),
            ("pause", "s"),
            ("apply", "s"),
            ("resume", "s"),
        )
    },
    "eval/pass1": Metric("Held-out pass@1", "share", "mean share of passing samples over held-out tasks"),
    "eval/best_of_k": Metric(
        "Held-out best-of-K",
        "share",
        "held-out tasks that at least one of K samples solves, K being the run's eval_samples",
    ),
    "eval/best_of/": Metric(
        "Held-out best-of",
        "share",
        "held-out tasks that at least one of so many samples solves, of all that have as many",
    ),
    "loss/train": Metric("Training loss", "nats/token", "weighted mean next-token loss"),
    "loss/accuracy": Metric("Training accuracy", "share", "weighted share of tokens that are the model's first choice"),
    "loss/heldout": Metric("Held-out loss", "nats/token", "the same loss on data never trained on"),
    "loss/language/": Metric("Held-out loss", "nats/token", "the same, documents of one language"),
    "loss/codebase": Metric("Codebase loss", "nats/token", "next-token loss on the chosen codebase, never trained on"),
    "sessions/used": Metric("Sessions", "count", "recorded sessions of users that the step was trained on"),
    "sessions/left_out": Metric("Sessions left out", "count", "looked at and not near enough, or without any signal"),
    "sessions/baseline": Metric("Session baseline", "", "mean reward over the turns of the step, which is subtracted"),
    "sessions/staleness": Metric("Session staleness", "versions", "version trained minus the oldest that was served"),
    "sessions/edit_rate": Metric("Turns that edit", "share", "turns of the step's sessions that change files"),
    "sessions/question_rate": Metric(
        "Turns that only ask", "share", "turns of the step's sessions that do nothing else"
    ),
    "sessions/malformed_rate": Metric(
        "Malformed tool calls", "share", "turns of the step's sessions with a malformed tool call"
    ),
    "tokens/context": Metric("Row length", "tokens", "length of the packed rows of this step"),
}

FAMILIES = tuple(name for name in METRICS if name.endswith("/"))
"""Prefixes of open families."""


OUTCOMES = ("passed", "failed")
BY_OUTCOME = {f"{name}/{one}": one for name in ("tokens/policy", "tokens/total", "turns") for one in OUTCOMES}
"""Means over a subset of the rollouts: absent for an empty subset, which never counts as 0 in an average."""

MAX_LAG = 8
"""Largest lag with a share of its own."""


def describe(name: str) -> Metric:
    """The definition of a metric; a member of an open family takes the family's meaning. Raises KeyError."""
    if name in METRICS:
        return METRICS[name]
    for prefix in FAMILIES:
        if name.startswith(prefix):
            family = METRICS[prefix]
            return Metric(f"{family.title}: {name.removeprefix(prefix)}", family.unit, family.meaning)
    raise KeyError(name)


def batch_metrics(groups: Sequence[TrainGroup], *, trained_version: int) -> dict[str, float]:
    """Metrics of a training batch that need no model. `trained_version` is the version that the step updates."""
    if not groups:
        raise ValueError("a batch needs at least one group")
    rewards = [group.rewards for group in groups]
    rollouts = sum(len(r) for r in rewards)
    lag = [max(0, trained_version - group.oldest_version) if group.oldest_version >= 0 else 0 for group in groups]
    out = {
        "reward/mean": sum(map(sum, rewards)) / rollouts,
        "reward/best_of_k": sum(map(max, rewards)) / len(groups),
        "groups/zero_signal": sum(map(is_zero_signal, rewards)) / len(groups),
        "staleness/mean": sum(lag) / len(lag),
        "staleness/max": float(max(lag)),
        "staleness/p50": float(_quantile(lag, 0.5)),
        "staleness/p90": float(_quantile(lag, 0.9)),
    }
    for versions in lag:
        name = f"staleness/at/{min(versions, MAX_LAG)}"
        out[name] = out.get(name, 0.0) + 1 / len(lag)
    whole = [{name: value for name, value in group.stats.items() if name not in BY_OUTCOME} for group in groups]
    out.update(mean_of_stats((stats, len(group.rewards)) for stats, group in zip(whole, groups, strict=True)))
    out.update(_by_outcome(groups))
    out.update(_by_label(groups))
    return out


def _by_label(groups: Sequence[TrainGroup]) -> dict[str, float]:
    """Mean reward of rollouts whose tasks share a label: `reward/source/mutation`."""
    rewards: dict[str, list[float]] = {}
    for group in groups:
        for label, value in group.labels.items():
            rewards.setdefault(f"reward/{label}/{value}", []).extend(group.rewards)
    return {name: sum(found) / len(found) for name, found in sorted(rewards.items()) if found}


def _by_outcome(groups: Sequence[TrainGroup]) -> dict[str, float]:
    """Mean lengths of passed and failed rollouts; an outcome without rollouts is absent."""
    out: dict[str, float] = {}
    for name, outcome in BY_OUTCOME.items():
        total = rollouts = 0.0
        for group in groups:
            passed = group.stats.get("verdict/passed", 0.0)
            weight = (passed if outcome == "passed" else 1.0 - passed) * len(group.rewards)
            if name in group.stats:
                total, rollouts = total + weight * group.stats[name], rollouts + weight
        if rollouts:
            out[name] = total / rollouts
    return out


def _quantile(values: Sequence[int], share: float) -> int:
    """The smallest value that at least `share` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def mean_of_stats(stats: Iterable[tuple[Mapping[str, float], int]]) -> dict[str, float]:
    """Weighted mean of per-group numbers. A name missing in a group counts as 0 (such as a stop reason that did not
    occur)."""
    total = 0
    sums: dict[str, float] = {}
    for values, weight in stats:
        total += weight
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value * weight
    return {name: value / total for name, value in sorted(sums.items())} if total else {}
