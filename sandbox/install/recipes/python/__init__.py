"""The installation recipe for Python repositories: requirements, interpreter, virtual environment, test run, repair."""

from sandbox.install.recipes.python.recipe import PythonRecipe

__all__ = ["PythonRecipe"]
