"""Names of the queues that every installation has. (Queues of training: `composer_web.runs.train_queues`.)"""

QUEUES = ("control", "io", "maintenance", "rollout", "eval", "build", "train")
