"""Other projects' formats of tasks and trajectories: what each can hold goes there and back unchanged; the rest is named."""
