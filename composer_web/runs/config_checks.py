"""Checks of a run's configuration by apps that are built on runs. Each registers its own in `AppConfig.ready`."""

from __future__ import annotations

from collections.abc import Callable

from trainer.config import RunConfig

Check = Callable[[RunConfig], list[str]]
"""Returns warnings for the user. Raises UserError naming the setting."""

_checks: list[Check] = []


def register(check: Check) -> None:
    if check not in _checks:
        _checks.append(check)


def warnings_of(config: RunConfig) -> list[str]:
    """The warnings of every registered check. Raises UserError."""
    return [warning for check in _checks for warning in check(config)]
