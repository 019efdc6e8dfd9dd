"""Environments: repositories installed into sandboxes, with their builds, logs and tests."""
