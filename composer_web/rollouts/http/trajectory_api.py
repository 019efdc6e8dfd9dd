"""HTTP API of the details of a rollout or group: token data, search, download, and the divergence of a prompt's
rollouts."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Query, Schema
from pydantic import Field

from composer_web.api.schemas import ErrorOut, file_of
from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import NotFound, UserError
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch.advantages import weights_of
from composer_web.rollouts.http.api import groups, rollouts  # which it adds to
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.search import searching
from composer_web.rollouts.trajectory import comparing, lens, trajectory_store
from composer_web.rollouts.trajectory.trajectory_store import Reading
from composer_web.rollouts.worker import standalone
from composer_web.ui.streaming import streamed

__all__ = ["groups", "rollouts"]  # with all their operations
Numbers = list[float | None]
WHOLE = {"html": "text/html", "jsonl": "application/jsonl"}


class TokensOut(Schema):
    """Columns of the tokens [first, end) of a segment; numbers are null where a token was not sampled."""

    segment: int
    total: int = Field(description="Tokens of the segment")
    first: int
    end: int
    before: int | None = Field(description="`at` of the page before this one")
    after: int | None = Field(description="`at` of the next page")
    texts: list[str]
    ids: list[int]
    sampled: list[int]
    versions: list[int]
    logprobs: Numbers
    trainer_logprobs: Numbers
    entropy: Numbers
    advantages: Numbers
    weights: Numbers
    step: int | None = Field(description="Optimiser step that trained on them")
    missing: dict[str, str] = Field(description="Column → why it is empty")


class HitOut(Schema):
    turn: int | None = Field(description="null outside the turns: then `where` says whether patch or report")
    where: str
    before: str
    match: str
    after: str


class HitsOut(Schema):
    hits: list[HitOut] = Field(description=f"The first {searching.MAX_HITS}")
    total: int
    turns: int = Field(description="Turns that have one")


class GroupColumnOut(Schema):
    rollout: int
    sample: int
    reward: float | None = Field(description="With what reviewers pay")
    advantage: float | None = Field(description="null of one that is not trained on")
    trained: bool = Field(description="Otherwise expected: labels and findings may still change it")


class GroupComparisonOut(Schema):
    columns: list[GroupColumnOut]
    ways: list[list[str | None]] = Field(
        description="Turn → a letter for each column, the same for those that did exactly the same so far; null after its end"
    )
    parting: int | None = Field(description="First turn in which not all did the same")
    cut: int = Field(description="Turns of the longest that are not shown")


@rollouts.get(
    "/{rollout_id}/tokens",
    response={200: TokensOut, 404: ErrorOut, 422: ErrorOut, 503: ErrorOut},
    summary="What is known of its tokens, number by number",
)
def get_tokens(
    request: HttpRequest,
    rollout_id: int,
    turn: int | None = Query(None, ge=0),
    segment: int | None = Query(None, ge=0),
    at: int = Query(0, ge=0),
) -> Any:
    """Tokens of a turn and its tool results, or of a whole segment: the page that holds position `at`."""
    rollout, read = _read(rollout_id)
    if turn is not None and segment is None:
        span = lens.span_of_turn(read, turn)
    elif segment is not None and turn is None:
        span = lens.span_of_segment(read, segment)
    else:
        raise UserError("turn", "turn or segment, one of them, says which tokens")
    if span is None:
        there = f"it has {read.total} turns and {len(read.head.segment_tokens)} segments with tokens"
        raise NotFound("turn or segment of rollout", f"{rollout_id} ({there})")
    return lens.of(rollout, read, span, at)


@rollouts.get(
    "/{rollout_id}/search",
    response={200: HitsOut, 404: ErrorOut, 503: ErrorOut},
    summary="Where a text is in it",
)
def search_rollout(request: HttpRequest, rollout_id: int, q: str = Query(min_length=1, max_length=200)) -> Any:
    """Upper and lower case alike, in everything that its page shows as text."""
    return searching.search(_read(rollout_id)[1], q)


@rollouts.get(
    "/{rollout_id}/whole/{format}",
    response={200: Any, 404: ErrorOut, 422: ErrorOut, 503: ErrorOut},
    openapi_extra=file_of(*WHOLE.values()),
    summary="All of it as a page that needs no server, or as JSON lines with its tokens",
)
def get_whole(request: HttpRequest, rollout_id: int, format: Literal["html", "jsonl"]) -> HttpResponseBase:
    rollout, read = _read(rollout_id)
    pieces = standalone.page(rollout, read) if format == "html" else standalone.lines(rollout)
    kind = f"{WHOLE[format]}; charset=utf-8"
    return streamed(request, pieces, content_type=kind, name=f"rollout-{rollout_id}.{format}")


@groups.get(
    "/{group_id}/comparison",
    response={200: GroupComparisonOut, 404: ErrorOut, 503: ErrorOut},
    summary="What its rollouts weigh, and where they part",
)
def compare_group(request: HttpRequest, group_id: int) -> Any:
    group = selectors.get_group(group_id)
    every = list(selectors.of_group(group))
    shown, weights = every[: comparing.MAX_ROLLOUTS], weights_of(group, every)
    ways = comparing.ways([_readable(rollout) for rollout in shown])
    return {
        "columns": [
            {
                "rollout": rollout.pk,
                "sample": rollout.sample,
                "reward": weight.reward if (weight := weights.get(rollout.sample)) else rollout.reward,
                "advantage": weight.advantage if weight else None,
                "trained": bool(weight and weight.trained),
            }
            for rollout in shown
        ],
        "ways": [[cell.branch if cell else None for cell in row] for row in ways.rows],
        "parting": ways.parting,
        "cut": ways.cut,
    }


def _read(pk: int) -> tuple[Rollout, Reading]:
    """Raises NotFound, also for a rollout without a recorded trajectory."""
    rollout = selectors.get_rollout(pk)
    read = trajectory_store.of(rollout)
    if read.head.trajectory is None:
        raise NotFound("recorded trajectory of rollout", f"{pk} (it is {rollout.state})")
    return rollout, read


def _readable(rollout: Rollout) -> Reading | None:
    try:
        return trajectory_store.of(rollout)
    except (NotFound, ArtifactError):
        return None
