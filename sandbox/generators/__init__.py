"""Generators of tasks from packages: mutation, deletion, refactoring, mining of commits, written tests and examples.

`registry` runs a generator over a package: order, splits, store and cost accounting. `building/` turns a draft into a
task whose controls hold, `analysis/` reads a package's code, and each kind of task has a module or a folder. `python
-m sandbox.generators` is the command.
"""

from sandbox.generators.building.yields import Yield
from sandbox.generators.registry import GENERATORS, GeneratorName, generate_tasks, mutation_tasks

__all__ = ["GENERATORS", "GeneratorName", "Yield", "generate_tasks", "mutation_tasks"]
