"""Generators of tasks from packages: mutation, deletion, refactoring, mining of commits, written tests, procedural tasks."""
