"""Mutation operators on Python source: small changes that make a function a little wrong.

`rules` changes expressions, `block_rules` statements and blocks; `syntax` is the concrete syntax tree they read. Task
generators plant bugs with them, controls measure with them how much hidden tests notice.
"""

from sandbox.mutation.operators import OPERATORS, Change, Mutation, Source, is_valid, mutations_of

__all__ = ["OPERATORS", "Change", "Mutation", "Source", "is_valid", "mutations_of"]
