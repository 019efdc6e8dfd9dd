"""Refactoring tasks: rename a function, move it to another module, or migrate callers off a deprecated name."""

from sandbox.generators.refactoring.migration import migrate
from sandbox.generators.refactoring.moving import move
from sandbox.generators.refactoring.renaming import rename

__all__ = ["migrate", "move", "rename"]
