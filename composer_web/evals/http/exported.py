"""Exports of evaluations with their results, and of release leaderboards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet

from composer_web.evals import selectors
from composer_web.evals.http.filters import EvaluationFilter, LeaderboardFilter
from composer_web.evals.models import Release
from composer_web.evals.results import leaderboard
from composer_web.rollouts.exports.exported import Table
from composer_web.ui.table_writers import Column, Columns, Row

EVALUATIONS = Table(
    noun="Evaluations",
    filter=EvaluationFilter,
    rows=selectors.evaluations,
    page="evals:list",
    columns={
        "evaluation": Column("id", "integer"),
        "run": Column("run_id", "integer"),
        "policy": Column("policy__name"),
        "version": Column("version", "integer"),
        "effort": Column("effort"),
        "suite": Column("suite__name"),
        "benchmark": Column("release__benchmark"),
        "release": Column("release__number", "integer"),
        "phase": Column("phase"),
        "state": Column("state"),
        "tasks": Column("tasks", "integer"),
        "samples": Column("samples", "integer"),
        "temperature": Column("temperature", "number"),
        "seed": Column("seed", "integer"),
        "pass1": Column("results__pass1", "number"),
        "pass1_low": Column("results__pass1_low", "number"),
        "pass1_high": Column("results__pass1_high", "number"),
        "best": Column("results__best", "number"),
        "best_of": Column("results__best_of", "integer"),
        "results": Column("results", "data"),
        "sides": Column("sides", "data"),
        "interruption": Column("interruption", "data"),
        "failure": Column("failure"),
        "created_at": Column("created_at", "time"),
        "started_at": Column("started_at", "time"),
        "finished_at": Column("finished_at", "time"),
    },
)


def _ranked(releases: QuerySet[Any], columns: Columns, size: int, _: int | None) -> Iterator[list[Row]]:
    """One leaderboard per page, in the order of its web page."""
    for release in releases.order_by("benchmark", "number"):
        yield [_standing(release, row) for row in leaderboard.leaderboard(release)]


def _standing(release: Release, row: leaderboard.Row) -> Row:
    return {
        "benchmark": release.benchmark,
        "release": release.number,
        "rank": row.rank,
        "name": row.name,
        "evaluation": row.evaluation.pk,
        "policy": row.evaluation.policy.name,
        "version": row.evaluation.version,
        "effort": row.evaluation.effort,
        "samples": row.evaluation.samples,
        "score": row.score,
        "low": row.low,
        "high": row.high,
        "best": row.best,
        "tokens_p50": row.tokens,
        "seconds_p50": row.seconds,
        "cost_p50": row.cost,
        "front_tokens": row.pareto_tokens,
        "front_cost": row.pareto_cost,
        "sides": row.sides,
    }


LEADERBOARD = Table(
    noun="Leaderboards",
    filter=LeaderboardFilter,
    rows=leaderboard.scored_releases,
    page="evals:releases",
    linked=False,
    pages=_ranked,
    columns={
        "benchmark": Column("release__benchmark"),
        "release": Column("release__number", "integer"),
        "rank": Column("rank", "integer"),
        "name": Column("name"),
        "evaluation": Column("id", "integer"),
        "policy": Column("policy__name"),
        "version": Column("version", "integer"),
        "effort": Column("effort"),
        "samples": Column("samples", "integer"),
        "score": Column("results__pass1", "number"),
        "low": Column("results__pass1_low", "number"),
        "high": Column("results__pass1_high", "number"),
        "best": Column("results__best", "number"),
        "tokens_p50": Column("results__tokens_p50", "number"),
        "seconds_p50": Column("results__seconds_p50", "number"),
        "cost_p50": Column("results__cost_p50", "number"),
        "front_tokens": Column("front_tokens", "truth"),
        "front_cost": Column("front_cost", "truth"),
        "sides": Column("sides", "data"),
    },
)
