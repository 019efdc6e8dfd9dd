"""Measurements: one module a figure, run by `make bench NAME=module`; the last line printed is one JSON object."""
