"""Class C: the letter of the task is met without the work."""
