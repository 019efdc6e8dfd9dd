"""The procedural family: small repositories with one planted bug that a small policy can learn to find.

A function's docstring is its specification; one operator or constant of its body disagrees with it.
Every task is a pure function of (seed, split). Training and held-out tasks share no identifier (`vocabulary.py`)
and no semantic combination (skeleton + every phrase of the docstring): a fifth of the combinations, chosen by
hash, is never trained on. Code holds no double quotes, so that edits need no escapes inside JSON.
"""

from sandbox.tasks.procedural.functions import Function, Option, write_function
from sandbox.tasks.procedural.problems import ISSUES, TEST_COMMAND, Edit, Problem, generate, problem, problem_of
from sandbox.tasks.procedural.vocabulary import Split

__all__ = [
    "ISSUES",
    "TEST_COMMAND",
    "Edit",
    "Function",
    "Option",
    "Problem",
    "Split",
    "generate",
    "problem",
    "problem_of",
    "write_function",
]
