"""Form actions that remove what keeps tasks out of a suite, for all tasks of a filter at once."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from composer_web.core.errors import NotFound, UserError
from composer_web.tasks import selectors, services
from composer_web.tasks.curation import admission
from composer_web.tasks.curation import bulk as changes
from composer_web.tasks.curation.filters import TaskFilter
from composer_web.tasks.curation.services import MAX_TASKS
from composer_web.tasks.models import Suite, Task
from composer_web.ui.filters import strict
from composer_web.ui.pages import PageRequest, act, page


def back(request: PageRequest, otherwise: str) -> str:
    """The page `next` of the form, else the one of this name."""
    to = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(to, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return to if safe else reverse(otherwise)


@require_POST
@page("reviewer")
def suite_admit(request: PageRequest, name: str, action: str) -> HttpResponse:
    """`action` is the reason that leaves tasks out of the suite; the query string has the filters of the queue."""
    suite = selectors.get_suite(name)
    rows = strict(TaskFilter, request.GET, queryset=selectors.tasks(), request=request).qs
    try:
        reason, held = admission.left_out_by(rows, suite, action)
    except UserError as error:
        raise NotFound("reason", repr(action[:40])) from error
    if reason.fix not in FIXES:
        raise NotFound("fix for tasks", reason.why)
    tasks = list(held.order_by("pk")[: MAX_TASKS + 1])
    do, done = FIXES[reason.fix]
    told = done.format(f"{len(tasks)} task{'s' * (len(tasks) != 1)}")

    def fix() -> None:
        if not tasks:
            raise UserError("tasks", f"no task is {reason.why} any more")
        if len(tasks) > MAX_TASKS:
            raise UserError("tasks", f"more than {MAX_TASKS} tasks; narrow the filters and do it in parts")
        do(request, tasks)

    return act(request, fix, done=told, to=back(request, "tasks:review"))


def _leave_training(request: PageRequest, tasks: list[Task]) -> None:
    changes.change(tasks=tasks, action=changes.LEAVE_TRAINING, value="", actor=request.user)


def _clear_split(request: PageRequest, tasks: list[Task]) -> None:
    changes.change(tasks=tasks, action="split", value="", actor=request.user)


def _validate(request: PageRequest, tasks: list[Task]) -> None:
    newest = [task.newest_version_id for task in tasks if task.newest_version_id is not None]
    versions = list(selectors.task_versions().filter(pk__in=newest))
    services.request_task_controls(versions=versions, actor=request.user)


FIXES: dict[str, tuple[Callable[[PageRequest, list[Task]], None], str]] = {
    "leave_training": (_leave_training, "{} moved out of training."),
    "split": (_clear_split, "The split of {} is cleared."),
    "controls": (_validate, "The validation of {} is queued."),
}


def offer(error: UserError, tasks: list[Task], suite: Suite) -> str | SafeString:
    """A refusal to add ticked tasks to a suite, with the buttons that remove the obstacles of these tasks."""
    chosen = Task.objects.filter(pk__in=[task.pk for task in tasks])
    found = [one for one in admission.left_out(chosen, suite) if one.fix]
    if not found:
        return str(error)
    return render_to_string("tasks/_bulk_fixes.html", {"problem": str(error), "found": found})
