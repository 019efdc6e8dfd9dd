"""Sandboxes, grading, installation and task generation."""
