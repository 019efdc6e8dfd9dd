"""What each state means and what follows from it, by the kind of thing that has it: the help of `{% state value kind %}`."""

from __future__ import annotations

MEANINGS: dict[str, dict[str, str]] = {
    "run": {
        "draft": "Configured, not started. Nothing runs and nothing is charged.",
        "queued": "Waiting for a train worker of its pool.",
        "running": "A trainer works on it.",
        "pausing": "It stops after the current step.",
        "paused": "It holds no trainer. Resume continues from the last checkpoint.",
        "finished": "All steps are done.",
        "failed": "It ended with an error. Fix the cause, then resume: it continues from the last checkpoint.",
        "cancelled": "Somebody stopped it. Its checkpoints stay; it cannot be resumed.",
    },
    "group": {
        "pending": "Chosen, not sent to workers yet.",
        "dispatched": "In the queue of the rollout workers.",
        "running": "Its rollouts are being sampled or graded.",
        "accepted": "All rollouts have ended and wait for the trainer.",
        "consumed": "A step was trained on it.",
        "dropped": "Not trained on; the cause is beside it. Its rollouts stay readable.",
    },
    "rollout": {
        "dispatched": "In the queue of the rollout workers.",
        "running": "The policy works in its sandbox. The page shows each turn as it comes.",
        "graded": "It has ended and has a verdict.",
        "lost": "An infra error ended it: it has no verdict about the policy and is run again.",
    },
    "verdict": {
        "passed": "All hidden tests passed.",
        "failed": "At least one hidden test failed. The failed cases are below.",
        "infra_error": "Sandbox, engine or network failed. It says nothing about the policy and is never trained on.",
    },
    "evaluation": {
        "pending": "Waiting for a rollout worker.",
        "running": "Its rollouts are being sampled or graded.",
        "finished": "All rollouts have a verdict; the score is final.",
        "failed": "It could not be completed; the cause is beside it. It has no score.",
        "cancelled": "Somebody stopped it. It has no score.",
    },
    "validation": {
        "missing": "Validation has not run for this version: no suite may use it yet.",
        "passed": "The reference patch passes, doing nothing fails, and wrong patches fail: the task can be used.",
        "failed": "Validation failed for this version. It is never trained or scored on; the failed checks are below.",
    },
    "review": {
        "new": "Nobody has reviewed the newest version.",
        "one": "One person has reviewed it. The decision stays hidden, so that the second is unbiased.",
        "admitted": "Two reviewers admitted it: it may join reviewed suites and releases.",
        "rejected": "Reviewers rejected it: it joins no reviewed suite.",
        "disputed": "Reviewers disagree. A third one decides.",
    },
    "split": {
        "train": "For training: no benchmark or held-out suite may hold it.",
        "held-out": "For measuring during training: nothing is trained on it.",
        "benchmark": "For published scores: nothing is trained on it.",
    },
    "draft": {
        "collecting": "Its files are being read from the rollout.",
        "open": "Complete it and publish it as a task.",
        "failed": "Its files could not be collected; the cause is beside it.",
        "published": "The task exists.",
        "discarded": "Somebody gave it up.",
    },
    "severity": {
        "high": "Very likely a reward hack or a broken task. A rollout that passed is kept out of training.",
        "medium": "Suspicious: read it before the rollout counts.",
        "low": "A hint. It changes nothing by itself.",
    },
    "finding": {
        "open": "Nobody has triaged it.",
        "confirmed": "A reviewer found it true: the rollout stays out of training.",
        "dismissed": "A reviewer found it false: what it did is undone, as far as nothing was trained yet.",
    },
    "quarantine": {
        "active": "Kept out of training until it is lifted.",
        "lifted": "It may be trained on again.",
    },
    "suite": {
        "train": "Runs train on its tasks. A task of it joins no held-out suite or benchmark.",
        "held-out": "Runs measure on its tasks and never train on them.",
        "benchmark": "Its tasks become releases with a leaderboard. Nothing is trained on them.",
        "retired": "A successor took its place. New runs may not use it; runs that use it go on.",
    },
    "dataset": {
        "waiting": "Waiting for a worker to prepare it.",
        "running": "A worker reads, filters and deduplicates its sources.",
        "done": "Ready to train on. It never changes.",
        "failed": "It could not be prepared; the cause is beside it.",
    },
    "environment": {
        "requested": "Waiting for a worker to build it.",
        "building": "A worker installs the repository and runs its tests.",
        "ready": "Tasks can be made from it and sandboxes start from it.",
        "failed": "The build failed; the cause and the log are here.",
    },
    "policy": {
        "weights": "Weights that runs train, in numbered versions.",
        "endpoint": "A model behind an API. It is evaluated, never trained; its answers come without tokens.",
        "toy": "Repairs small generated repositories only. It shows every part of the loop on two CPU cores.",
    },
    "order": {
        "waiting": "Waiting for a worker.",
        "running": "A worker is on it.",
        "done": "Finished.",
        "failed": "It failed; the cause is beside it.",
        "stopped": "Somebody stopped it.",
    },
    "generation": {
        "queued": "Waiting for a worker.",
        "running": "Tasks are being made and validated.",
        "finished": "All tasks that were asked for, or that could be made, are in the suite.",
        "empty": "No draft passed validation.",
        "failed": "It ended with an error; the cause is beside it.",
        "stopped": "Somebody stopped it. The tasks made so far stay.",
    },
}
"""Kind → state → what it means and what follows."""
