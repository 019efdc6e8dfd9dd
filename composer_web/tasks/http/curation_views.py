"""Views of curation: review queue, bulk changes with undo, history, version comparison, disagreements."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from composer_web.core.errors import NotFound, UserError
from composer_web.core.numbers import row_ids, whole
from composer_web.rollouts import selectors as rollouts
from composer_web.rollouts.trajectory.transcript import clip, diff_view
from composer_web.tasks import reviewing, selectors, services
from composer_web.tasks.curation import admission, comparing, training
from composer_web.tasks.curation import bulk as changes_of_many
from composer_web.tasks.curation import services as curation
from composer_web.tasks.curation.facets import LABELS, facets, unasked
from composer_web.tasks.curation.filters import TaskFilter
from composer_web.tasks.http.admission_views import back, offer
from composer_web.tasks.http.views import suites_page
from composer_web.tasks.models import Split, Suite, Task, TaskVersion
from composer_web.ui import refused
from composer_web.ui.filters import strict
from composer_web.ui.pages import PageRequest, page, refuse, show

MAX_FILE = 20_000
MAX_FILES = 30
SAMPLES = 6
PER_PAGE = 100
MAX_COUNTED = 1000
"""Tasks of a queue that are counted."""
DONE = {"accept": "Accepted", "reject": "Rejected", "withdrawn": "Withdrawn"}


def _tasks(request: PageRequest) -> Any:
    return strict(TaskFilter, request.GET, queryset=selectors.tasks(), request=request).qs


def _queue(request: PageRequest) -> Any:
    """The tasks to review: into a suite (`?into=`), those that can join it, or those that one reason leaves out."""
    rows, suite = _tasks(request), _into(request)
    return rows if suite is None or "left_out" in request.GET else admission.admissible(rows, suite)


def _left_out(request: PageRequest, into: Suite | None) -> dict[str, Any]:
    """What the queue into a suite leaves out, for `_left_out.html`."""
    if into is None or "left_out" in request.GET:
        return {"left_out": []}
    others = request.GET.copy()
    others.pop("into", None)
    return {
        "left_out": admission.left_out(_tasks(request), into),
        "others": others.urlencode(),
        "queue": f"{reverse('tasks:review')}?{request.GET.urlencode()}",
    }


def _into(request: PageRequest) -> Suite | None:
    """The suite that accepted tasks join."""
    name = request.GET.get("into", "")
    return Suite.objects.filter(name=name).first() if name else None


def _address(request: PageRequest, task: Task | None) -> str:
    """Where the queue goes on, with the same filters."""
    place = reverse("tasks:review-task", args=[task.slug]) if task else reverse("tasks:review")
    query = request.GET.urlencode()
    return f"{place}?{query}" if query else place


@require_safe
@page()
def task_facets(request: PageRequest) -> HttpResponse:
    """Counts beside the list, asked for after it: a scan of all tasks must not hold the page up. `only` is the facet that
    somebody opened, where opening it counts it."""
    if only := request.GET.get("only"):
        found = facets(request, [only])
        return show(request, "partials/facet.html", {"facet": found[0] if found else None})
    later = unasked(request)
    now = {name for name, _ in LABELS} - {name for name, _ in later}
    return show(request, "tasks/_facets.html", {"facets": facets(request, now), "later": later})


@require_safe
@page("reviewer")
def review(request: PageRequest) -> HttpResponse:
    """The first task of the queue, or that there is none."""
    task = reviewing.following(_queue(request), request.user, None)
    if task is not None:
        return redirect(_address(request, task))
    into = _into(request)
    context = {
        "query": request.GET.urlencode(), "into": into.name if into else "", **_left_out(request, into),
    }  # fmt: skip
    return show(request, "tasks/review_done.html", context)


@require_safe
@page("reviewer")
def review_task(request: PageRequest, slug: str) -> HttpResponse:
    """Instruction, environment, hidden tests, gold patch and rollouts of one task, and what to do with it."""
    task = selectors.get_task(slug)
    version = selectors.newest_version(task)
    queue, into = _queue(request), _into(request)
    following = reviewing.following(queue, request.user, task)
    before = reviewing.preceding(queue, task)
    mine = reviewing.opinion(version, request.user)
    sees = reviewing.sees_opinions(version, request.user)
    template = "tasks/_review.html" if request.headers.get("HX-Request") else "tasks/review.html"
    spec = version.bundle
    files = sorted(comparing.environment_files(spec).items())
    context = {
        "task": task,
        "version": version,
        "versions": list(task.versions.order_by("-number").values_list("number", flat=True)),
        "spec": spec,
        "files": [(name, *clip(text, MAX_FILE)) for name, text in files[:MAX_FILES]],
        "files_cut": max(0, len(files) - MAX_FILES),
        "hidden": [
            (name, *clip(text, MAX_FILE)) for name, text in list(comparing.hidden_files(spec).items())[:MAX_FILES]
        ],
        "gold": diff_view(comparing.gold_diff(spec)),
        "samples": list(rollouts.rollouts().filter(group__task_version__task=task).order_by("-pk")[:SAMPLES]),
        "mine": mine,
        "own": version.author_id == request.user.pk,
        "opinions": reviewing.opinions(version) if sees else None,
        "waiting": _waiting(request, queue),
        "next": _address(request, following) if following else "",
        "previous": _address(request, before) if before else "",
        "here": _address(request, task),
        "into": request.GET.get("into", ""),
        "obstacles": admission.obstacles(task, version, into) if into else [],
        **_left_out(request, into),
        "splits": Split.choices,
        "suites": selectors.suites().values_list("name", flat=True)[:200],
    }
    return show(request, template, context)


@require_POST
@page("reviewer")
def review_submit(request: PageRequest, slug: str, action: str) -> HttpResponse:
    """One thing done to the task of the queue. Answers a script with where to go on, anybody else with that page."""
    task = selectors.get_task(slug)
    version = selectors.newest_version(task)
    following = reviewing.following(_queue(request), request.user, task)
    try:
        if action not in ACTIONS:
            raise Http404(f"a task has no action {action!r}")
        text, goes_on, undo = ACTIONS[action](request, task, version)
    except UserError as error:
        return _answer(request, 422, str(error), _address(request, task))
    to = _address(request, following if goes_on else task)
    if goes_on and following is None:
        to = _address(request, None)
    return _answer(request, 200, text, to, undo, _waiting(request, _queue(request)) if goes_on else None)


def _waiting(request: PageRequest, queue: Any) -> str:
    """How many wait for this person, as the page says it."""
    count = reviewing.waiting(queue, request.user).values("pk")[: MAX_COUNTED + 1].count()
    return f"more than {MAX_COUNTED}" if count > MAX_COUNTED else str(count)


def _answer(
    request: PageRequest, status: int, text: str, to: str, undo: str = "", waiting: str | None = None
) -> HttpResponse:
    """The next task was fetched before this answer: `waiting` mends what it says of the queue."""
    if request.headers.get("X-Requested-With") == "fetch":
        return JsonResponse({"message": text, "next": to, "undo": undo, "waiting": waiting}, status=status)
    if status != 200:
        return refuse(request, UserError("", text), to=to)
    messages.success(request, text)
    return redirect(to)


Done = tuple[str, bool, str]
"""What to say, whether the queue goes on, and what undoes it."""


def _decide(request: PageRequest, task: Task, version: TaskVersion) -> Done:
    wanted = reviewing.as_decision(request.POST.get("decision", ""))
    if str(version.number) != request.POST.get("version", str(version.number)):
        raise UserError("version", f"{task} has a newer version than the one that you saw; look again")
    into, note = request.POST.get("into", "").strip(), request.POST.get("note", "")
    joined = curation.decide(task=task, version=version, decision=wanted, actor=request.user, note=note, into=into)
    text = f"{DONE[wanted]}: {task.slug}."
    if joined is not None:
        text += f" It is in {into}." if joined else f" It joins {into} when another reviewer accepts it too."
    return text, wanted != "withdrawn", ""


def _edit(request: PageRequest, task: Task, version: TaskVersion) -> Done:
    made = curation.edit_instruction(task=task, text=request.POST.get("instruction", ""), actor=request.user)
    return (
        f"Version {made.number} has the new text; its validation is queued. Somebody else reviews it.",
        False,
        "",
    )


def _tag(request: PageRequest, task: Task, version: TaskVersion) -> Done:
    action = "untag" if request.POST.get("remove") else "tag"
    done = curation.apply(tasks=[task], action=action, value=request.POST.get("value", ""), actor=request.user)  # type: ignore[arg-type]
    return ("Tagged." if action == "tag" else "Tag removed."), False, str(done.id)


def _split(request: PageRequest, task: Task, version: TaskVersion) -> Done:
    side = request.POST.get("value", "")
    done = curation.apply(tasks=[task], action="split", value=side, actor=request.user)
    return (f"Split: {Split(side).label}." if side else "Split cleared."), False, str(done.id)


def _leave_training(request: PageRequest, task: Task, version: TaskVersion) -> Done:
    """Take the task out of every training suite, so that the suite of the queue can have it."""
    consequences = [one.consequence for one in training.holdings(task)]
    training.move_out(tasks=[task], actor=request.user)
    return f"{task.slug} is out of training: {'; '.join(consequences)}.", False, ""


def _validate(request: PageRequest, task: Task, version: TaskVersion) -> Done:
    services.request_task_controls(versions=[version], actor=request.user)
    return f"The validation of {task.slug} is queued.", False, ""


ACTIONS = {
    "decide": _decide, "edit": _edit, "tag": _tag, "split": _split, "leave-training": _leave_training, "validate": _validate,
}  # fmt: skip


# --- many tasks -------------------------------------------------------------------------------------------------


@require_POST
@page("operator")
def bulk(request: PageRequest) -> HttpResponse:
    """One change of all ticked tasks; the message has the button that undoes it."""
    wanted = row_ids(request.POST.getlist("task"))
    action = request.POST.get("action", "")
    value = request.POST.get(f"value_{action.removeprefix('un')}", "")
    tasks = list(Task.objects.filter(pk__in=wanted))
    if action == "unsplit":
        action, value = "split", ""
    try:
        done = changes_of_many.change(tasks=tasks, action=action, value=value, actor=request.user)
    except UserError as error:
        suite = Suite.objects.filter(name=value).first() if action == "suite" else None
        words = offer(error, tasks, suite) if suite else str(error)
        return refuse(request, error, words=words, to=back(request, "tasks:list"))
    if action == changes_of_many.LEAVE_TRAINING:  # they are still ticked, to be added to the suite now
        refused.keep(request)
    same = f", {done.unchanged} were so already" if done.unchanged else ""
    messages.success(
        request, f"{done.changed} task{'s' * (done.changed != 1)} changed{same}.", extra_tags=f"undo:{done.id}"
    )
    return redirect(back(request, "tasks:list"))


@require_POST
@page("reviewer")
def undo(request: PageRequest) -> HttpResponse:
    """Undo a batch: one's own for reviewers, anybody's for operators."""
    try:
        batch = curation.batch_of(request.POST.get("batch", ""))
        curation.require_may_undo(batch=batch, actor=request.user)
        done = curation.undo(batch=batch, actor=request.user)
    except UserError as error:
        return _answer(request, 422, str(error), back(request, "tasks:changes"))
    text = f"Undone: {done.changed} task{'s' * (done.changed != 1)} changed back."
    return _answer(request, 200, text, back(request, "tasks:changes"))


@require_http_methods(["GET", "HEAD", "POST"])
@page("reviewer")
def suite_open(request: PageRequest) -> HttpResponse:
    """Create an empty suite to curate into. A refusal shows the form again with what was given."""
    if request.method != "POST":
        return redirect("tasks:suites")
    values: QueryDict = request.POST
    name = values.get("name", "").strip()
    try:
        curation.open_suite(
            name=name,
            purpose=values.get("purpose", ""),
            description=values.get("description", "")[:2000],
            reviewed=bool(values.get("reviewed")),
            actor=request.user,
        )
    except UserError as error:
        return suites_page(request, given={key: str(values[key]) for key in values}, problem=str(error))
    messages.success(request, f"Suite {name} is open; review tasks into it.")
    return redirect("tasks:suite", name=name)


@require_safe
@page()
def changes(request: PageRequest) -> HttpResponse:
    """What was changed, newest first; of one task with ?task=."""
    slug = request.GET.get("task", "")
    pages = Paginator(selectors.changes(selectors.get_task(slug) if slug else None), PER_PAGE)
    current = pages.get_page(request.GET.get("page"))
    return show(request, "tasks/changes.html", {"changes": current, "slug": slug, "tab": "changes"})


@require_safe
@page()
def compare(request: PageRequest, slug: str) -> HttpResponse:
    """Two versions of a task, ?from= and ?to=; without them the newest and the one before."""
    task = selectors.get_task(slug)
    numbers = list(task.versions.order_by("number").values_list("number", flat=True))
    pair = [request.GET.get("from", ""), request.GET.get("to", "")]
    first, second = (whole(text) for text in pair)
    second = second or numbers[-1]
    first = first or max([number for number in numbers if number < second], default=second)
    versions = {v.number: v for v in task.versions.filter(number__in=[first, second])}
    if not {first, second} <= versions.keys():
        raise NotFound(f"pair of versions of task {slug}", f"{first} and {second}")
    secrets = request.user.may("reviewer")
    parts = comparing.compare(versions[first], versions[second])
    context = {
        "task": task,
        "numbers": numbers,
        "first": first,
        "second": second,
        "parts": [(part.name, diff_view(part.diff)) for part in parts if secrets or not part.secret],
        "withheld": [part.name for part in parts if part.secret and not secrets],
    }
    return show(request, "tasks/compare.html", context)


@require_safe
@page()
def disagreements(request: PageRequest) -> HttpResponse:
    """Tasks whose reviewers do not agree; others' words only for those who have said theirs."""
    rows = reviewing.disagreements(request.user)
    return show(request, "tasks/disagreements.html", {"rows": rows, "tab": "disagreements"})
