"""Evaluations with their results as files."""

from __future__ import annotations

from composer_web.evals import selectors
from composer_web.evals.filters import EvaluationFilter
from composer_web.ops.sheets import Column
from composer_web.rollouts.exported import Table

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
