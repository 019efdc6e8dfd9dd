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
        "failed": "At least one hidden test failed. The page of the rollout lists the failed cases.",
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
        "failed": "Validation failed. It is never trained or scored on; the page of the task lists the failed checks.",
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
        "failed": "The build failed; its page shows the cause and the log.",
    },
    "policy": {
        "weights": "Weights that runs train, in numbered versions.",
        "endpoint": "A model behind an API. It is evaluated, never trained; its answers come without tokens.",
        "toy": "Repairs small generated repositories only. It shows every part of the loop on two CPU cores.",
    },
    "worker": {
        "alive": "Its last heartbeat is recent.",
        "replaced": "It sends no heartbeats; a newer process of its kind has taken its place.",
        "dead": "It sends no heartbeats, and nothing has taken its place.",
    },
    "deployment": {
        "serving": "It answers requests.",
        "paused": "It takes no requests while new weights are put in.",
        "loading": "It reads its weights.",
        "failed": "It cannot serve; the error is beside it.",
    },
    "lease": {
        "held": "Its owner renews it in time.",
        "expired": "Its owner no longer renews it. Another process may take it.",
    },
    "webhook": {
        "on": "It receives messages.",
        "off": "It receives nothing until it is switched on.",
    },
    "rule": {
        "alerting": "What it watches is out of its bounds now.",
        "nothing found": "All that it watches is within its bounds.",
        "off": "It watches nothing until it is switched on.",
    },
    "token": {
        "active": "Requests with it are accepted, within its scopes.",
        "expired": "Its day has passed. Requests with it are refused.",
        "revoked": "Somebody revoked it. Requests with it are refused.",
    },
    "queue": {
        "open": "Reviewers can label its rollouts.",
        "closed": "It takes no more labels. Those that it has stay.",
    },
    "alert": {
        "open": "What the rule watches is out of its bounds now.",
        "resolved": "It is within its bounds again.",
        "quiet": "Nobody was notified: the rule was muted or in its cooldown.",
    },
    "delivery": {
        "waiting": "To be sent; failed attempts are repeated.",
        "sent": "The receiver accepted it.",
        "failed": "All attempts failed; the error is beside it. Try again sends it once more.",
    },
    "export": {
        "waiting": "Waiting for a worker.",
        "running": "A worker writes the file.",
        "done": "The file can be downloaded until it expires.",
        "failed": "The file could not be written; the cause is beside it.",
        "void": "A recorded session in it was deleted, and the file with it. Export again without it.",
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
LABELS: dict[str, dict[str, str]] = {
    "review": {"new": "not reviewed", "one": "one review"},
    "split": {"train": "training", "held-out": "held out"},
    "suite": {"train": "training", "held-out": "held out"},
    "validation": {"missing": "not run", "failed": "rejected"},
    "generation": {"empty": "no task"},
    "export": {"void": "withdrawn"},
}
"""Kind → state → what its badge in lists says, where that is not the state itself."""
