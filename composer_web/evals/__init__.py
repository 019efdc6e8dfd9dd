"""Evaluations of policies on suites and releases: scores with intervals, best-of-K, comparisons, leaderboards."""
