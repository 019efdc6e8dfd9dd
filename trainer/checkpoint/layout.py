"""Names of what lies in a checkpoint."""

STATE_FILE = "state.json"
OPTIMIZER_FILE = "optimizer.safetensors"
POLICY_DIR = "policy"
SHARDS = "shards"
"""Folder of what several ranks write together (`sharded.py`)."""
