"""Recipes: how repositories of one language are installed.

`base` is the interface; `cargo`, `go`, `npm/` and `python/` implement it. `goals` says what an attempt must achieve,
`toolchain` and `system` install what a language needs beneath it, `diagnosis` and `errors` name why an attempt
failed.
"""

from sandbox.install.recipes.base import Installed, Log, Recipe
from sandbox.install.recipes.errors import InstallFailed, Reason
from sandbox.install.recipes.goals import Goal, GoalSet

__all__ = ["Goal", "GoalSet", "InstallFailed", "Installed", "Log", "Reason", "Recipe"]
