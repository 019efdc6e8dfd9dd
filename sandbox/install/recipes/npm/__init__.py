"""The installation recipe for JavaScript and TypeScript repositories."""

from sandbox.install.recipes.npm.recipe import NpmRecipe

__all__ = ["NpmRecipe"]
