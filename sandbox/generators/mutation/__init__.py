"""Debugging tasks: one small wrong change in a function that tests cover, or several in one task."""

from sandbox.generators.mutation.combination import combined, join
from sandbox.generators.mutation.mutants import candidates, mutants_of

__all__ = ["candidates", "combined", "join", "mutants_of"]
