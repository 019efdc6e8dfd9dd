"""Version of grading, which controls name: what an older one accepted is to be found out again before it trains."""

GRADER = 12
"""Raised whenever grading or its controls would judge a task otherwise."""
