"""Views of one prompt: all its rollouts side by side, and two of them turn by turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.views.decorators.http import require_safe

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import NotFound
from composer_web.core.numbers import whole
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch.advantages import Weight, weights_of
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.trajectory import comparing, differences, trajectory_store, transcript
from composer_web.rollouts.trajectory.trajectory_store import Reading
from composer_web.runs.selectors import get_run
from composer_web.ui.pages import PageRequest, page, show


@dataclass(frozen=True)
class Column:
    """One rollout of the group. `reading` is None if its trajectory is missing or unreadable."""

    rollout: Rollout
    reading: Reading | None
    parts: list[float | None]
    weight: Weight | None


@require_safe
@page()
def group_detail(request: PageRequest, pk: int) -> HttpResponse:
    """`?pair=A&pair=B` shows two rollouts turn by turn, `&turn=` the window."""
    group = selectors.get_group(pk)
    rollouts = list(selectors.of_group(group))
    shown = rollouts[: comparing.MAX_ROLLOUTS]
    names = comparing.part_names(shown)
    weights = weights_of(group, rollouts)
    columns = [
        Column(
            rollout,
            _read(rollout),
            [comparing.part_value(rollout, name) for name in names],
            weights.get(rollout.sample),
        )
        for rollout in shown
    ]
    context: dict[str, Any] = {
        "group": group,
        "columns": columns,
        "cut": len(rollouts) - len(shown),
        "part_names": names,
        "expected": any(not weight.trained for weight in weights.values()),
        "paid": any(c.weight is not None and c.weight.reward != c.rollout.reward for c in columns),
        "ways": comparing.ways([column.reading for column in columns]),
        "pair": _pair(request, columns),
    }
    return show(request, "rollouts/group.html", context)


def _read(rollout: Rollout) -> Reading | None:
    """Open the reading copy: turns without tokens, at any size."""
    try:
        return trajectory_store.of(rollout)
    except (NotFound, ArtifactError):
        return None  # the column's head says what became of the rollout


def _pair(request: PageRequest, columns: list[Column]) -> dict[str, Any] | None:
    """Two trajectories in the same window. None unless the URL names two recorded ones."""
    asked = request.GET.getlist("pair")[:2]
    chosen = [column for pk in asked for column in columns if str(column.rollout.pk) == pk and column.reading]
    if len(chosen) != 2:
        return None
    text = request.GET.get("turn", "0")
    turn = whole(text)
    if turn is None:
        raise Http404(f"turn is a number, not {text!r}")
    left, right = (column.reading for column in chosen)
    assert left is not None and right is not None, "chosen above"
    longer = max(left, right, key=lambda read: read.total)
    place = transcript.window_of(longer, range(longer.total), turn)
    ends = [range(place.first, min(place.end, read.total)) for read in (left, right)]
    views = [
        {turn.index: transcript.view(turn) for turn in read.turns(places)}
        for read, places in zip((left, right), ends, strict=True)
    ]
    return {
        "columns": chosen,
        "blocks": differences.blocks(
            [(views[0].get(index), views[1].get(index)) for index in range(place.first, place.end)], place.first
        ),
        "window": place,
        "address": "?" + "".join(f"pair={column.rollout.pk}&" for column in chosen) + "turn=",
        "parting": comparing.ways([left, right]).parting,
    }


WAFFLE_ROWS = 100


@require_safe
@page()
def waffle(request: PageRequest, run_id: int) -> HttpResponse:
    """Task × rollout grid of a run: one row per prompt, one cell per rollout. `?sort=reward` lists the hardest
    first."""
    run = get_run(run_id)
    order = ("mean_reward", "prompt_index") if request.GET.get("sort") == "reward" else ("prompt_index",)
    rows = selectors.groups().filter(run=run).exclude(state="pending").order_by(*order)
    found = Paginator(rows, WAFFLE_ROWS).get_page(request.GET.get("page"))
    cells: dict[int, list[dict[str, Any]]] = {}
    shown = Rollout.objects.filter(group__in=[group.pk for group in found])
    for cell in shown.order_by("sample").values("pk", "group_id", "sample", "verdict", "state", "reward"):
        cells.setdefault(cell["group_id"], []).append({**cell})
    context = {"run": run, "page": found, "rows": [(group, cells.get(group.pk, [])) for group in found]}
    return show(request, "rollouts/waffle.html", {**context, "sort": request.GET.get("sort", "")})
