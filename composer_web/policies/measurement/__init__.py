"""Measurements of policies on codebases: as jobs, and the worker that runs them."""
