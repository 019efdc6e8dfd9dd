"""Pages and API of review queues, their items, and drafts of tasks."""
