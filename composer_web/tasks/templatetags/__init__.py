"""Template tags of suites."""
