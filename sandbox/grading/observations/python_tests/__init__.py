"""Tests of pytest and unittest taken apart: where values come from, what decides, and what the first run may hold.

`python` rewrites assertions into reports; `isolation` makes the files that show no expectation.
"""
