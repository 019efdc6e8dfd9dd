"""Patches of an agent: made from files, filtered before grading, applied in a clean sandbox."""
