"""Views of mid-training studies: list, form, and results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.core.errors import UserError
from composer_web.studies import results, services
from composer_web.studies.http import form
from composer_web.studies.http.tables import StudyTable
from composer_web.studies.levels import LAST, LEVELS
from composer_web.studies.results import Chain, Results
from composer_web.ui.pages import Figure, PageRequest, act, page, show
from composer_web.ui.templatetags import ui

PER_PAGE = 25


@require_safe
@page()
def study_list(request: PageRequest) -> HttpResponse:
    table = StudyTable(results.studies())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    template = "partials/rows.html" if request.headers.get("HX-Request") else "studies/list.html"
    return show(request, template, {"table": table, "live": "runs"})


@page("operator")
def study_new(request: PageRequest) -> HttpResponse:
    """The form (`?policy=`); what is wrong stands at its field, and what was typed stays."""
    errors: dict[str, str] = {}
    values: dict[str, str] = form.initial(request.GET.get("policy", ""))
    if request.method == "POST":
        values = {name: str(value) for name, value in request.POST.items()}
        try:
            made = services.create_study(wanted=form.read(values), actor=request.user)
        except UserError as error:
            errors = error.fields or {"": error.message}
        else:
            messages.success(request, f"“{made.name}” is queued.")
            return redirect("studies:detail", pk=made.pk)
    offered = form.options()
    context = {
        "values": values,
        "errors": errors,
        "fieldsets": _fieldsets(offered, values, errors),
        "unplaced": [message for field, message in errors.items() if field not in FIELDS],
    }
    return show(request, "studies/new.html", context, status=422 if errors else 200)


def _fieldsets(
    offered: form.Options, values: dict[str, str], errors: dict[str, str]
) -> list[tuple[str, list[dict[str, Any]]]]:
    """(legend, fields) of the form."""

    def field(
        name: str, label: str, help: str, *, choices: Sequence[form.Choice] = (), kind: str = "text"
    ) -> dict[str, Any]:
        found = {"name": name, "label": label, "help": help, "choices": choices, "kind": kind}
        return {**found, "value": values.get(name, ""), "error": errors.get(name, "")}

    keeps = "Empty: as the preset has it"
    return [
        (
            "Study",
            [
                field("name", "Name", "First word of its runs"),
                field("policy", "Policy", "Every chain starts from it", choices=offered.policies),
                field("codebase", "Codebase", "Its loss is measured and never trained on", choices=offered.codebases),
                field("seeds", "Seeds", "Separated by commas: three chains each"),
            ],
        ),
        (
            "Mid-training",
            [
                field("midtrain", "Preset", "Other settings of the stage", choices=offered.midtrain),
                field("midtrain.corpus", "Corpus", "Trained on", choices=offered.corpora),
                field("midtrain.corpus_mixture", "Mixture", "Several corpora in place of one: code=3, docs=1"),
                field("midtrain.steps", "Steps of level S", "M has 3 times, L 9 times as many", kind="number"),
            ],
        ),
        (
            "SFT",
            [
                field("sft", "Preset", "Other settings of the stage", choices=offered.sft),
                field("sft.dataset", "Dataset", "Trained on", choices=offered.datasets),
                field("sft.episodes", "Expert episodes", f"Without a dataset. {keeps}", kind="number"),
                field("sft.steps", "Steps", keeps, kind="number"),
            ],
        ),
        (
            "RL",
            [
                field("rl", "Preset", "Other settings of the stage", choices=offered.rl),
                field("rl.suite", "Suite", "Trained on", choices=offered.suites),
                field(
                    "rl.eval_suite", "Evaluation suite", "Held-out pass@1 is of its tasks", choices=offered.eval_suites
                ),
                field("rl.steps", "Steps", keeps, kind="number"),
            ],
        ),
    ]


FIELDS = frozenset({"name", "policy", "codebase", "seeds", *form.STAGES, *form.OVERRIDES})


@require_safe
@page()
def study_detail(request: PageRequest, pk: int) -> HttpResponse:
    study = results.get_study(pk)
    found = results.results(study)
    context = {
        "study": study,
        "results": found,
        "figures": _figures(found),
        "plot": _plot(found),
        "loss_label": "Loss on the codebase after SFT" if study.wanted["codebase"] else "Held-out loss after SFT",
        "levels": [(level, study.wanted["midtrain"]["steps"] * factor) for level, factor in LEVELS.items()],
        "last": LAST,
    }
    template = "studies/_results.html" if request.headers.get("HX-Request") else "studies/detail.html"
    return show(request, template, context)


def _figures(found: Results) -> list[Figure]:
    points, chains = len(found.points), len(found.chains)
    made = [
        Figure(
            "Rank correlation",
            ui.num(found.correlation),
            note=f"{points} of {chains} points",
            help="Spearman's, of minus the loss after SFT and the mean reward of the last steps of RL: 1 where a lower loss "
            "always goes with a higher reward, 0 where one says nothing about the other.",
        ),
        Figure(
            "Points",
            f"{points} of {chains}",
            note="a chain failed" if any(chain.failed for chain in found.chains) else "one for each chain",
            help="Chains that ended with a loss after SFT and a reward. Only they are ranked.",
            tone="warn" if any(chain.failed for chain in found.chains) else "",
        ),
    ]
    if found.within_seeds is not None:
        help = "Mean of the rank correlations of each seed's levels."
        made.insert(1, Figure("Within seeds", ui.num(found.within_seeds), note="mean over seeds", help=help))
    return made


def _plot(found: Results) -> str:
    """Data for `js/pareto.js`: loss after SFT and reward, a colour a level."""
    return json.dumps(
        [{"policy": one.level, "name": _name(one), "x": one.sft_loss, "y": one.reward} for one in found.points]
    )


def _name(chain: Chain) -> str:
    return f"{chain.level}, seed {chain.seed}"


@require_POST
@page("operator")
def study_stop(request: PageRequest, pk: int) -> HttpResponse:
    study = results.get_study(pk)
    return act(
        request,
        lambda: services.stop_study(study=study, actor=request.user),
        done="Its runs are stopped.",
        to="studies:detail",
        pk=pk,
    )
