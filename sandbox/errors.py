"""Errors of tasks and packages, each with its remedy."""

from __future__ import annotations


class TaskError(Exception):
    """Base of everything that makes a task source unusable. `remedy` is one line for the person who asked."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(f"{message}. {remedy}" if remedy else message)
        self.remedy = remedy


class TaskInvalid(TaskError):
    """A task bundle that must not train: unreadable, changed since its hash was taken, or failing its controls."""


class EnvironmentMissing(TaskError):
    """A built environment that this store does not hold."""


class PackageError(TaskError):
    """A package from which no environment can be built."""


class PackageWithoutTests(PackageError):
    """The source distribution carries no test that runs and passes here."""


class PackageUnavailable(PackageError):
    """The package is neither in the cache nor reachable."""
