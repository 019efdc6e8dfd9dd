"""The production gateway: an OpenAI-compatible endpoint that serves promoted policies and records consenting sessions.

Recorded sessions carry signals, can be reviewed, and become tasks or training batches.
"""
