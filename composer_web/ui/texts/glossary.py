"""What the figures and columns of pages mean, by their label: the help that `{% help_term label %}` opens.

Metrics that a trainer records have their meaning where they are defined (`trainer/learning/metrics.py`).
"""

from __future__ import annotations

import re

TERMS: dict[str, str] = {
    # Rollouts and their verdicts
    "rollouts": "Attempts of the policy, each with a verdict from the hidden tests.",
    "verdict": "Passed or failed by the hidden tests. An infra error says that no judgement was possible.",
    "reward": "What the algorithm learns from: the sum of the reward parts, of which the hidden tests are the first.",
    "advantage": "Reward relative to the others of the same prompt. Positive: the policy is trained towards this rollout.",
    "expected advantage": "The advantage that the rollout would have if its group were trained on now.",
    "stop reason": "Why the rollout ended: the policy finished, or a limit of turns, tokens or time was reached.",
    "stop reasons": "Why rollouts ended: the policy finished, or a limit of turns, tokens or time was reached.",
    "hidden tests": "Cases that the policy never sees and that decide the verdict: how many passed, of how many.",
    "turns": "Messages that the policy wrote, each with the tool calls that followed from it.",
    "turns, tool errors": "Messages that the policy wrote, and tool calls that ended with an error.",
    "steps": "Messages of the agent in this trajectory.",
    "calls": "Tool calls in this trajectory.",
    "tool errors": "Tool calls that ended with an error, such as a missing file or a malformed call.",
    "output tokens": "Tokens that the policy wrote. The total also counts the prompt and what tools answered.",
    "policy version": "Version of the weights that sampled the first token. A run publishes a new version after a step.",
    "policy versions": "Versions of the weights that sampled the tokens, from the oldest to the newest.",
    "duration": "Time from start to end.",
    "infra errors": "Attempts lost to the sandbox, engine or network. They are missing data, never a reward or a failure.",
    # Evaluations and releases
    "pass@1": "Mean share of rollouts that pass, first over the rollouts of a task, then over tasks.",
    "best of k": "Share of tasks that at least one of K rollouts passes. Compare it for the same K only.",
    "score": "pass@1: mean share of rollouts that pass, over the tasks of the release.",
    "95 % interval": "Normal interval of the mean over independent tasks (Wilson's where all or none pass): 95 of 100 such "
    "intervals hold the true value. Policies whose intervals overlap may be equally good; compare them task by task.",
    "tasks done": "Tasks whose rollouts have all ended, of all tasks of the evaluation.",
    "passed": "Rollouts whose hidden tests all passed.",
    "failed": "Rollouts with at least one hidden test that failed.",
    "tokens": "Tokens that the policy wrote for a rollout, median.",
    "temperature": "Sampling temperature. 0 takes the likeliest token; 1 samples from the policy's own distribution.",
    "cost": "Price of a rollout's tokens, median, by the prices of its endpoint.",
    "front": "Pareto front. ◆: no policy has a better score with fewer tokens. $: none has a better score at a lower cost.",
    "vs. first": "Paired comparison with the policy of the first rank, task by task.",
    "tasks": "Tasks that are counted here.",
    "lines changed": "Lines that the reference patch of a task adds or removes, median.",
    "files changed": "Files that the reference patch of a task changes, median.",
    "prompt": "Length of the instruction that the policy reads, median of a task.",
    "prompt characters": "Length of the instruction that the policy reads, median of a task.",
    "saturated": "Tasks that every policy always passes. They no longer tell policies apart.",
    "unsolved": "Tasks that no policy has ever passed.",
    "broken": "Tasks whose own validation fails now. They say nothing about a policy.",
    "in training suites": "Tasks of this release that a training suite holds too, compared by content.",
    "difference": "Second less first, with the margin that may be chance.",
    "worse": "Tasks of which the second evaluation passes fewer rollouts.",
    "better": "Tasks of which the second evaluation passes more rollouts.",
    "same": "Tasks of which both evaluations pass the same share of rollouts.",
    "in one only": "Tasks that only one of the two evaluations has. They are not compared.",
    "p-value": "Probability of a difference this large if both policies were equally good on the task.",
    # Review
    "reviewed": "Rollouts that have all the labels that they need.",
    "labels": "Submissions of reviewers. A reviewer's newest one counts.",
    "awaiting you": "Rollouts that lack reviewers and that you have not labelled.",
    "disagreements": "Rollouts to whose questions two reviewers gave different answers.",
    "by two or more": "Rollouts that at least two people have labelled: only they say anything about agreement.",
    "all the same": "Share of those rollouts on which everybody gave the same answer. Chance alone makes some.",
    "alpha": "Krippendorff's alpha: agreement beyond chance, for any number of reviewers. 1 is perfect, 0 is what chance "
    "gives, below 0 is systematic disagreement. Above 0.8 is reliable; below 0.67 the question is unclear.",
    "kappa": "Cohen's kappa: agreement of two people beyond chance, mean over all pairs. 1 is perfect, 0 is what chance gives.",
    # Findings and the red team
    "findings": "Suspicious places that the auditor or a monitor found, such as a likely reward hack.",
    "high": "Findings that very likely show a reward hack. A rollout that passed is kept out of training.",
    "open": "Findings that nobody has triaged.",
    "confirmed": "Findings that a reviewer found to be true.",
    "rules": "Rules of the auditor that found something.",
    "exploits that score": "Attacks of the catalogue that got a reward. It has to be 0.",
    "honest runs that pass": "Honest solutions beside each attack that the same defences let pass.",
    "found as expected": "Attacks that the auditor reported under the rule that is meant for them.",
    "catalogue": "Known attacks on grading, each with an honest run for comparison.",
    "faults": "Rows of the table that went wrong. It has to be 0.",
    # Tasks and suites
    "validated": "Tasks whose validation passed: the reference patch passes, doing nothing fails, wrong patches fail.",
    "rejected": "Tasks whose validation failed. They are never used.",
    "oracle": "Verdicts of the reference patch, graded several times. All have to pass.",
    "no-op": "Verdicts of doing nothing. It has to be rejected.",
    "wrong patches": "Patches that are known to be wrong. The hidden tests have to reject each; a badge says what it does.",
    "exploits": "Attacks on grading, tried against this task. Each has to be rejected; a badge says what it does.",
    "test strength": "Share of wrong patches that the hidden tests reject. 100 %: none passes.",
    # Fidelity
    "tells": "Ways in which a sandbox differs from a real machine, of all that were looked at.",
    "fidelity score": "Weighted share of what was looked at that looks like a real machine.",
    "first turns": "How well a classifier tells sandbox and machine apart by an agent's first commands (AUC). 0.5 is chance.",
    "suspicious agent": "The same for an agent that looks for a sandbox (AUC). 0.5 is chance.",
    "checkouts": "Repositories in which both were measured.",
    # Quotas
    "your rollouts in flight": "Rollouts of your runs and evaluations that run now.",
    "your checkpoints": "Disk that the checkpoints of your runs take.",
    "your share": "Your part of all rollouts in flight. Projects share workers fairly.",
    "your gpus": "GPUs that your runs hold: one for each rank that trains.",
    # Production and measurements
    "measure": "What is compared between canary and promoted policy, over the recorded sessions of both.",
    "bound": "How far a measure may get worse before the canary is ended.",
    "guard": "Whether the bound holds. Too few sessions, or a difference that may be chance, say nothing.",
    "all lines": "Bits that the policy needs to predict a byte of the code. Lower is better.",
    "recent lines": "The same over lines newer than the chosen commit, which the model can hardly have learned by heart.",
    "state distance": "Characters to insert, delete or replace in the policy's answers about the state of a program, mean. "
    "Lower is better.",
    "tokens a byte": "Tokens that the policy's tokenizer makes of a byte of this code. Fewer: more code fits its context.",
    "against": "Difference of bits a byte, file by file. Below zero this policy predicts the code better.",
    "window": "Tokens that the policy reads at a time while it is measured.",
    "read a second": "Bytes of code that the policy scored in a second, on the machine that measured.",
}  # fmt: skip
"""Label in lower case → what it means. Numbers of a label are K: `best of 8` is `best of k`."""


def sentence(text: str) -> str:
    """A meaning as it stands alone: with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}." if text else ""


def meaning(label: str) -> str:
    """Empty for a label without an entry."""
    return TERMS.get(re.sub(r"\d+$", "k", label.lower()), "") or TERMS.get(label.lower(), "")
