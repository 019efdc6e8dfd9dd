"""Measurements: one module a figure, run by `make bench NAME=module`; the last line printed is one JSON object.

Benches of one part of the system share a folder; what all of them use (`report`, `points`, `figures`) lies here.
"""
