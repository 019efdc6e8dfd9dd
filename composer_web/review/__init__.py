"""Human review: queues of rollouts with questions, blind labels, agreement, and drafts of tasks."""
