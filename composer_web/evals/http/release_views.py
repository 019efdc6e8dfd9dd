"""Views of benchmark releases: list and publish, one release with its leaderboard, run a policy on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.core.errors import UserError
from composer_web.evals.http.tables import ReleaseTable
from composer_web.evals.models import Release
from composer_web.evals.results import leaderboard, releases
from composer_web.evals.results.behaviour_scores import QUESTIONS, TITLES
from composer_web.evals.results.statistics import PUBLIC, Statistics
from composer_web.policies import selectors as policies
from composer_web.tasks import selectors as tasks
from composer_web.ui import form_parsing
from composer_web.ui.pages import Figure, PageRequest, act, may_use, page, show
from composer_web.ui.templatetags import ui

PER_PAGE = 50


@require_safe
@page()
def release_list(request: PageRequest) -> HttpResponse:
    if request.headers.get("HX-Request"):
        return show(request, "partials/rows.html", {"table": _table(request)})
    return _list(request, given={"suite": request.GET.get("suite", "")})


def _table(request: PageRequest) -> ReleaseTable:
    table = ReleaseTable(leaderboard.releases())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    return table


def _list(request: PageRequest, *, given: Mapping[str, str], problem: str = "") -> HttpResponse:
    """The releases, and the form for another one with what is `given` for it."""
    suites = list(tasks.suites().filter(retired_at=None)) if request.user.may("operator") else []
    context = {
        "table": _table(request),
        "tab": "releases",
        "live": "evals",
        "ready": [suite for suite in suites if suite.valid_count],
        "waiting": [suite for suite in suites if not suite.valid_count],
        "given": given,
        "problem": problem,
        "open": bool(problem or given.get("suite")),
    }
    return show(request, "evals/releases.html", context, status=422 if problem else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@page("operator")
def release_publish(request: PageRequest) -> HttpResponse:
    """A refusal shows the form again with what was given. Its links and refreshes lead to the list."""
    if request.method != "POST":
        return redirect(f"{reverse('evals:releases')}?{request.GET.urlencode()}")
    given = request.POST
    try:
        made = releases.publish(
            benchmark=given.get("benchmark", ""),
            suite=tasks.get_suite(given.get("suite", "")),
            keep="keep" in given,
            unreviewed="unreviewed" in given,
            notes=given.get("notes", "")[:2000],
            actor=request.user,
        )
    except UserError as error:
        return _list(request, given=given.dict(), problem=str(error))
    except ValidationError as error:
        words = "; ".join(f"{name}: {' '.join(told)}" for name, told in error.message_dict.items())
        return _list(request, given=given.dict(), problem=words)
    messages.success(request, f"{made} is published; its tasks never change.")
    return redirect("evals:release", benchmark=made.benchmark, number=made.number)


@require_safe
@page()
def release_detail(request: PageRequest, benchmark: str, number: int) -> HttpResponse:
    release = leaderboard.get_release(benchmark, number)
    rows = leaderboard.leaderboard(release)
    members = leaderboard.tasks(release)
    context: dict[str, Any] = {
        "release": release,
        "rows": rows,
        "own_rows": urlencode({"benchmark": release.benchmark, "release": release.number}),
        "plots": [_plot("tokens", rows), _plot("cost", rows)],
        "carried": leaderboard.carried(release),
        "members": members,
        "flagged": [task for task in members if task.flag],
        "open": release.evaluations.filter(state__in=["pending", "running"]).select_related("policy"),
        "statistics": Statistics.model_validate(release.statistics),
        "published": PUBLIC,
        "figures": _figures(release, members),
        "may_run": (may_run := may_use(request)),
        "policies": policies.references() if may_run else [],
        "endpoints": policies.endpoints() if may_run else [],
        "aspects": _aspects(rows),
        "tab": "releases",
    }
    template = "evals/_release.html" if request.headers.get("HX-Request") else "evals/release.html"
    return show(request, template, context)


@require_POST
@page("operator")
def release_run(request: PageRequest, benchmark: str, number: int) -> HttpResponse:
    release = leaderboard.get_release(benchmark, number)
    return act(
        request,
        lambda: releases.run(
            release=release,
            reference=request.POST.get("policy", ""),
            samples=form_parsing.whole(request, "samples", 4),
            temperature=form_parsing.number(request, "temperature", 0.8),
            effort=request.POST.get("effort", ""),
            price_input=form_parsing.optional_number(request, "price_input"),
            price_output=form_parsing.optional_number(request, "price_output"),
            turns=form_parsing.optional_whole(request, "turns"),
            context_tokens=form_parsing.optional_whole(request, "context_tokens"),
            interrupt="interrupt" in request.POST,
            grader=request.POST.get("grader", ""),
            actor=request.user,
        ),
        done="The evaluation is on its way; its score appears here when its last rollout has a verdict.",
        to="evals:release",
        benchmark=benchmark,
        number=number,
    )


@require_POST
@page("operator")
def release_check(request: PageRequest, benchmark: str, number: int) -> HttpResponse:
    release = leaderboard.get_release(benchmark, number)
    return act(
        request,
        lambda: releases.request_check(release=release, actor=request.user),
        done="The training suites are read; what is found appears here.",
        to="evals:release",
        benchmark=benchmark,
        number=number,
    )


def _aspects(rows: list[leaderboard.Row]) -> list[tuple[str, str, str]]:
    """Behaviour score columns with a value in any row, as (aspect, title, what it asks)."""
    shown = [aspect for aspect in TITLES if any(aspect in row.sides for row in rows)]
    return [(aspect, TITLES[aspect], QUESTIONS[aspect]) for aspect in shown]


def _figures(release: Release, members: list[leaderboard.TaskResult]) -> list[Figure]:
    statistics = Statistics.model_validate(release.statistics)
    took_over = sum(task.member.carried for task in members)
    flags = [task.flag for task in members]
    found = (release.contamination or {}).get("hits")
    return [
        Figure(
            "Tasks", ui.num(statistics.tasks), note=f"{took_over} from the release before" if release.parent else ""
        ),
        Figure("Lines changed", ui.num(statistics.lines), note="median of a task"),
        Figure("Files changed", ui.num(statistics.files), note="median of a task"),
        Figure("Prompt", ui.num(statistics.prompt_characters), unit="characters", note="characters, median of a task"),
        Figure("Saturated", ui.num(flags.count("saturated")), note="everyone always passes"),
        Figure("Unsolved", ui.num(flags.count("unsolved")), note="nobody ever passes"),
        Figure("Broken", ui.num(flags.count("broken"))),
        Figure(
            "In training suites",
            "–" if found is None else ui.num(len(found)),
            note="not checked yet" if found is None else "by content",
        ),
    ]


def _plot(resource: str, rows: list[leaderboard.Row]) -> dict[str, Any]:
    """Data for `js/pareto.js`: score over tokens or cost."""
    points = [
        {
            "name": row.name,
            "policy": row.evaluation.policy.at(row.evaluation.version),
            "x": getattr(row, resource),
            "y": row.score,
            "low": row.low,
            "high": row.high,
            "front": getattr(row, f"pareto_{resource}"),
        }
        for row in rows
        if getattr(row, resource) is not None
    ]
    titles = {
        "tokens": ("Score over tokens", "completion tokens, median of a rollout", ""),
        "cost": ("Score over cost", "dollars, median of a rollout", "$"),
    }
    title, axis, unit = titles[resource]
    return {"title": title, "axis": axis, "unit": unit, "count": len(points), "points": json.dumps(points)}
