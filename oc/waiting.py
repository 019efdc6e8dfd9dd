"""Staying with work on the workers until it has ended: a build, an order of tasks, an evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from oc.client import Client
from oc.follow import POLL, FollowTimeout
from oc.models import EnvironmentOut, EvaluationOut, OrderOut, SuiteOut
from oc.show import Output

T = TypeVar("T")


class Ended(Exception):
    """What was waited for ended without what was wanted of it. The message says why."""


def until(look: Callable[[], T], ended: Callable[[T], bool], *, timeout: float, what: str, poll: float = POLL) -> T:
    """Look until it has ended. Raises FollowTimeout, ApiError, Unreachable."""
    end = time.monotonic() + timeout
    while not ended(found := look()):
        if time.monotonic() > end:
            raise FollowTimeout(f"{what} has not ended after {timeout:.0f} s; it goes on without us")
        time.sleep(poll)
    return found


def build(client: Client, name: str, output: Output, *, timeout: float) -> EnvironmentOut:
    """The environment of a repository, with its log as it is written. Raises Ended with the reason of a failed build."""
    seen = 0

    def look() -> EnvironmentOut:
        nonlocal seen
        found = client.environments.get(name)
        text = client.environments.get_log(name).text
        for line in text[seen:].splitlines():
            output.streamed(line, {"log": line})
        seen = len(text)
        return found

    found = until(look, lambda one: one.state in ("ready", "failed"), timeout=timeout, what=f"the build of {name}")
    if found.state == "failed":
        raise Ended(f"{name}: {found.failure}")
    return found


def order(client: Client, name: str, *, timeout: float) -> SuiteOut:
    """The suite that generators were asked for, its controls run. Raises Ended when they gave none."""

    def newest() -> OrderOut | None:
        return next((one for one in client.tasks.list_orders() if one.name == name), None)

    made = until(
        newest, lambda one: one is None or one.state != "under way", timeout=timeout, what=f"the order of {name}"
    )
    if made is None or made.state != "made":
        raise Ended(f"{name}: {made.why if made else 'nobody asked for it in the last two weeks'}")
    return proven(client, name, timeout=timeout)


def proven(client: Client, name: str, *, timeout: float) -> SuiteOut:
    """A suite whose controls have all run."""
    return until(
        lambda: client.suites.get(name),
        lambda one: one.valid_count + one.rejected_count >= one.task_count,
        timeout=timeout,
        what=f"the controls of {name}",
    )


def evaluation(client: Client, pk: int, output: Output, *, timeout: float) -> EvaluationOut:
    """An evaluation, with how far it is. Raises Ended when it failed or was stopped."""
    told = -1

    def look() -> EvaluationOut:
        nonlocal told
        found = client.evaluations.get(pk)
        if found.groups_done != told:
            told = found.groups_done
            data = {"evaluation": pk, "state": found.state, "groups_done": told, "groups_total": found.groups_total}
            output.streamed(f"{found.state}: {told} of {found.groups_total} tasks", data)
        return found

    ended = until(
        look,
        lambda one: one.state in ("finished", "failed", "cancelled"),
        timeout=timeout,
        what=f"evaluation {pk}",
    )
    if ended.state != "finished":
        raise Ended(f"evaluation {pk} is {ended.state}: {ended.failure or 'somebody stopped it'}")
    return ended
