"""Rollout workers: they run a group, record it while it runs, and accept its results."""
