"""The way of a suite: import or generate, validate, review, publish, score. What each step has, what can go on, and why the
rest cannot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlencode

from django.db.models import Count
from django.urls import reverse

from composer_web.accounts.models import User
from composer_web.evals.models import Release
from composer_web.evals.results.leaderboard import releases
from composer_web.tasks.models import ReviewState, Suite
from composer_web.ui.pages import PageRequest

WAITING = {
    ReviewState.ONE: "with one of two reviews",
    ReviewState.DISPUTED: "disputed",
    ReviewState.REJECTED: "rejected by reviewers",
}


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do in a step: a link, or a form that is sent (`post`)."""

    title: str
    url: str
    post: bool = False


@dataclass(frozen=True, slots=True)
class Rest:
    """Tasks that the step cannot take further now, and where they are listed."""

    text: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    says: str
    done: bool
    actions: tuple[Action, ...] = ()
    rest: tuple[Rest, ...] = ()
    current: bool = False

    @property
    def state(self) -> str:
        return "done" if self.done else "current" if self.current else "open"


def steps(suite: Suite, user: User) -> list[Step]:
    """The first step that is not done is the current one. Three queries."""
    newest = releases().filter(suite=suite).order_by("-pk").first()
    reviews = dict(suite.memberships.values_list("task__review").annotate(Count("pk")).order_by())
    found = [
        _tasks(suite, user),
        _validation(suite, user),
        _review(suite, user, reviews),
        _publication(suite, user, newest, unreviewed=suite.task_count - reviews.get(ReviewState.ADMITTED, 0)),
        _scores(suite, newest),
    ]
    first = next((index for index, step in enumerate(found) if not step.done), None)
    return [replace(step, current=index == first) for index, step in enumerate(found)]


def suite_in_play(request: PageRequest) -> str:
    """Name of the suite that the page is a step for (`?into=`)."""
    name = request.GET.get("into", "")
    return name if name and Suite.objects.filter(name=name).exists() else ""


def _listed(suite: Suite, **filters: str) -> str:
    return f"{reverse('tasks:list')}?{urlencode({'suite': suite.name, **filters})}"


def _tasks(suite: Suite, user: User) -> Step:
    into = urlencode({"into": suite.name})
    open_to = user.may("reviewer") and not suite.retired_at
    actions = (
        Action("Add via review", f"{reverse('tasks:review')}?{into}"),
        Action("Import", f"{reverse('tasks:imports')}?{into}"),
        Action("Generate", f"{reverse('tasks:generators')}?{into}"),
    )
    return Step("Tasks", f"{suite.task_count} in the suite", suite.task_count > 0, actions if open_to else ())


def _validation(suite: Suite, user: User) -> Step:
    total, valid, rejected = suite.task_count, suite.valid_count, suite.rejected_count
    missing = total - valid - rejected
    rest = [Rest("Add tasks first.")] if not total else []
    if missing:
        rest.append(Rest(f"{missing} not validated", _listed(suite, controls="none")))
    if rejected:
        rest.append(Rest(f"{rejected} rejected: no release takes them", _listed(suite, controls="false")))
    run = Action("Run validation", reverse("tasks:suite-controls", args=[suite.name]), post=True)
    actions = (run,) if missing and user.may("reviewer") else ()
    return Step("Validate", f"{valid} of {total} valid", total > 0 and not missing, actions, tuple(rest))


def _review(suite: Suite, user: User, reviews: dict[str, int]) -> Step:
    total, admitted = suite.task_count, reviews.get(ReviewState.ADMITTED, 0)
    rest = [Rest("Add tasks first.")] if not total else []
    for state, words in WAITING.items():
        if count := reviews.get(state, 0):
            rest.append(Rest(f"{count} {words}", _listed(suite, review=state)))
    to_review = total - admitted - reviews.get(ReviewState.REJECTED, 0)
    link = Action("Review", f"{reverse('tasks:review')}?{urlencode({'suite': suite.name})}")
    actions = (link,) if to_review and user.may("reviewer") else ()
    return Step("Review", f"{admitted} of {total} admitted", total > 0 and admitted == total, actions, tuple(rest))


def _publication(suite: Suite, user: User, newest: Release | None, *, unreviewed: int) -> Step:
    valid, rest = suite.valid_count, []
    if not valid:
        rest.append(Rest("No task is valid yet."))
    elif valid < suite.task_count:
        rest.append(Rest(f"{valid} of {suite.task_count} can be published: the others are not valid"))
    if valid and unreviewed:
        rest.append(Rest(f"{unreviewed} not admitted: the release says so for good"))
    link = Action(
        "Publish again" if newest else "Publish",
        f"{reverse('evals:releases')}?{urlencode({'suite': suite.name})}#publish",
    )
    actions = (link,) if valid and user.may("operator") else ()
    return Step("Publish", str(newest) if newest else "not published", newest is not None, actions, tuple(rest))


def _scores(suite: Suite, newest: Release | None) -> Step:
    if newest is None:
        return Step("Score", "no scores", False, rest=(Rest("Publish it first."),))
    scores = newest.evaluation_count  # type: ignore[attr-defined]  # annotated by `releases`
    link = Action("Leaderboard", reverse("evals:release", args=[newest.benchmark, newest.number]))
    return Step("Score", f"{scores} evaluation{'s' * (scores != 1)}", scores > 0, (link,))
