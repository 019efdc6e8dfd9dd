"""Feature tasks: a function, class or method and all that only it needs is removed, and has to be written again."""

from sandbox.generators.deletion.deletion import deletions, removal
from sandbox.generators.deletion.features import Feature, find_features

__all__ = ["Feature", "deletions", "find_features", "removal"]
