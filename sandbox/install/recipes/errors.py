"""Errors with a named reason for a checkout that did not become an environment."""

from __future__ import annotations

from enum import StrEnum

from sandbox.errors import PackageError


class Reason(StrEnum):
    """What stood in the way; the word that pages, records and the bench carry."""

    NO_RECIPE = "no-recipe"
    """Nothing in the checkout says how to install it, in a language that is known here."""
    NO_TESTS = "no-tests"
    LANGUAGE_VERSION = "language-version"
    """It asks for an interpreter or toolchain version that this machine does not have."""
    DEPENDENCY = "dependency"
    """A package that it needs cannot be had, or no set of versions fits."""
    SYSTEM_PACKAGE = "system-package"
    NATIVE_BUILD = "native-build"
    SERVICE = "service"
    GPU = "gpu"
    NETWORK = "network-in-tests"
    SECRETS = "secrets"
    TIMEOUT = "timeout"
    INTERACTIVE = "interactive"
    FAILING_TESTS = "failing-tests"
    GOALS = "goals"
    """A command that the goal-setter wrote did not give what it expects."""
    FLAKY = "flaky"
    LEAK = "leak"
    INSTALL = "install"
    """The installer failed in a way that none of the others names."""


class InstallFailed(PackageError):
    """The checkout is discarded (or the attempt is); `reason` says why in a word, the text in a sentence."""

    def __init__(self, reason: Reason, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.reason = reason


class InstallCancelled(PackageError):
    """Somebody asked for the work to stop; what is kept already is used when it goes on."""
