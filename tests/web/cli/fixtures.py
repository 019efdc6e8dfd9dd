"""Command lines of people; `tests/web/conftest.py` gives them to every test of the web."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from composer_web.accounts.models import User
from composer_web.accounts.services import create_token
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.runs import metrics, services
from composer_web.runs.models import Run
from tests.web.cli.support import Cli, command_line
from tests.web.making import claim, finish


@pytest.fixture
def line(people: dict[str, User]) -> Callable[[str, str], Cli]:
    """line(role, scope): the command line of that person."""

    def of(role: str, scope: str) -> Cli:
        _, secret = create_token(user=people[role], name="cli", scopes=[scope])
        return command_line(secret)

    return of


@pytest.fixture
def cli(line: Callable[[str, str], Cli]) -> Cli:
    """The operator's command line."""
    return line("operator", "operate")


@pytest.fixture
def reviewer(line: Callable[[str, str], Cli]) -> Cli:
    """The reviewer's command line."""
    return line("reviewer", "review")


@pytest.fixture
def trained(running: Run) -> Run:
    """A run of two steps whose groups have verdicts."""
    rollouts.pump(run_id=running.pk)
    for group in Group.objects.filter(run=running):
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])
    metrics.record_many(run=running, rows=[(s, "reward/mean", s / 10) for s in (1, 2)])
    services.set_progress(run=running, step=2)
    services.add_event(run=running, kind="note", message="hello")
    return running
