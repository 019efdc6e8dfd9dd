"""Grading: verdicts on patches, computed outside a clean sandbox from what ran inside it."""
