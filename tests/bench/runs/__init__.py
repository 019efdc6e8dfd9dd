"""Whole training runs: learning, dispatch, summaries, feedback."""
