"""The inference contract in front of vLLM servers (0.32): one process that owns their weights."""
