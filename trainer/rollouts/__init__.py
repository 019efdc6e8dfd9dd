"""Episodes: turns, tool calls, context windows, deadlines, groups of attempts, and resumption of interrupted ones."""
