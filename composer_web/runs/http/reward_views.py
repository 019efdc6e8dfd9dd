"""Two operator pages of a run: its reward, which may change while it goes on, and a probe before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST
from pydantic import ValidationError

from composer_web.core.errors import Conflict, UserError
from composer_web.evals import services as evals
from composer_web.runs import rewards, selectors
from composer_web.runs.launch.forms import BoundField, BoundGroup
from composer_web.runs.launch.schema_form import Group, field_errors, flatten, form_schema, nest
from composer_web.runs.models import RunEvent
from composer_web.ui.pages import PageRequest, page, refuse, show
from trainer.config import RewardConfig

SCHEMA = form_schema(RewardConfig)


@page("operator")
def run_reward(request: PageRequest, pk: int) -> HttpResponse:
    """Groups that start after a change are scored by it."""
    run = selectors.get_run(pk)
    try:
        current = flatten(SCHEMA, rewards.in_force(run))
    except UserError as error:  # not a run with rewards
        messages.error(request, str(error))
        return redirect("runs:detail", pk=pk)
    values, errors = current, dict[str, list[str]]()
    if request.method == "POST":
        posted = {name: str(request.POST.get(name, "")) for name in SCHEMA.by_name}
        values = current | posted
        errors = _change(request, pk, posted)
        if not errors:
            return redirect("runs:detail", pk=pk)
    changes = RunEvent.objects.filter(run=run, kind=rewards.KIND).order_by("-pk")[:20]
    context = {
        "run": run,
        "tab": "config",
        "group": _bound(SCHEMA.root, values, errors, current),
        "problems": [text for name, told in errors.items() if name not in SCHEMA.by_name for text in told],
        "may_change": run.state in rewards.LIVE,
        "changes": changes,
    }
    return show(request, "runs/reward.html", context, status=422 if errors else 200)


@require_POST
@page("operator")
def run_probe(request: PageRequest, pk: int) -> HttpResponse:
    """Play three tasks as the run would, and show that evaluation."""
    try:
        made = evals.probe(run=selectors.get_run(pk), actor=request.user)
    except UserError as error:
        return refuse(request, error, to="runs:detail", pk=pk)
    messages.success(request, "Three tasks are played as the run would play them.")
    return redirect("evals:detail", pk=made.pk)


def _change(request: PageRequest, pk: int, posted: Mapping[str, str]) -> dict[str, list[str]]:
    """Errors by field; empty after a change."""
    try:
        reward = RewardConfig.model_validate(nest(SCHEMA, posted))
        event = rewards.change(run=selectors.get_run(pk), reward=reward, actor=request.user)
    except ValidationError as error:
        return field_errors(SCHEMA, error)
    except UserError as error:
        return {error.field: [error.message]}
    except Conflict as error:
        return {"": [str(error)]}
    messages.success(request, f"{event.message}. Groups that start from now on are scored by it.")
    return {}


def _bound(
    group: Group, values: Mapping[str, str], errors: Mapping[str, Sequence[str]], before: Mapping[str, str]
) -> BoundGroup:
    fields = [
        BoundField(
            item,
            values.get(item.name, ""),
            errors.get(item.name, ()),
            before[item.name] if values.get(item.name) != before[item.name] else None,
        )
        for item in group.fields
    ]
    return BoundGroup(
        name=group.name,
        label=group.label or "Reward",
        help=group.help,
        fields=fields,
        groups=[_bound(inner, values, errors, before) for inner in group.groups],
    )
