"""The way of a suite: import or generate, validate, review, publish, score. What each step has and what comes next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlencode

from django.urls import reverse

from composer_web.accounts.models import User
from composer_web.evals.models import Evaluation
from composer_web.evals.results.leaderboard import releases
from composer_web.tasks.models import Suite


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    says: str
    done: bool
    action: str = ""
    url: str = ""
    why: str = ""
    """Why there is nothing to do in this step yet."""
    current: bool = False

    @property
    def state(self) -> str:
        return "done" if self.done else "current" if self.current else "open"


def steps(suite: Suite, user: User) -> list[Step]:
    """The first step that is not done is the current one. Four queries."""
    review, operate = user.may("reviewer"), user.may("operator")
    query = urlencode({"suite": suite.name})
    published = list(releases().filter(suite=suite).order_by("-pk")[:1])
    scores = Evaluation.objects.filter(suite=suite, state="finished", interruption__isnull=True).count()
    admitted = suite.memberships.filter(task__review="admitted").count()
    total, missing = suite.task_count, suite.task_count - suite.valid_count - suite.rejected_count
    empty = "" if total else "Add tasks first."
    found = [
        Step(
            "Tasks",
            f"{total} in the suite",
            total > 0,
            "Add via review" if review and not suite.retired_at else "",
            f"{reverse('tasks:review')}?{urlencode({'into': suite.name})}",
        ),
        Step(
            "Validate",
            f"{suite.valid_count} of {total} valid"
            + (f", {suite.rejected_count} rejected" if suite.rejected_count else ""),
            total > 0 and not missing,
            "Show those not validated" if missing else "",
            f"{reverse('tasks:list')}?{query}&controls=none",
            empty,
        ),
        Step(
            "Review",
            f"{admitted} of {total} admitted",
            total > 0 and admitted == total,
            "Review" if review and total and admitted < total else "",
            f"{reverse('tasks:review')}?{query}",
            empty,
        ),
    ]
    newest = published[0] if published else None
    found += [
        Step(
            "Publish",
            str(newest) if newest else "not published",
            newest is not None,
            ("Publish again" if newest else "Publish") if operate and suite.valid_count else "",
            f"{reverse('evals:releases')}?{query}#publish",
            "" if suite.valid_count else "No task is valid yet.",
        ),
        Step(
            "Score",
            f"{scores} evaluation{'s' * (scores != 1)}",
            newest is not None and scores > 0,
            "Leaderboard" if newest else "",
            reverse("evals:release", args=[newest.benchmark, newest.number]) if newest else "",
            "" if newest else "Publish it first.",
        ),
    ]
    return _marked(found)


def _marked(found: list[Step]) -> list[Step]:
    first = next((index for index, step in enumerate(found) if not step.done), None)
    return [replace(step, current=index == first) for index, step in enumerate(found)]
