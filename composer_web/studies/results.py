"""Reads of mid-training studies: the list, and what the runs of one came to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from django.db.models import Count, F, Q, QuerySet

from composer_web.core.errors import NotFound
from composer_web.runs.models import RUN_LIVE, Metric, Run, RunState
from composer_web.studies.correlation import spearman
from composer_web.studies.levels import LAST, LEVELS
from composer_web.studies.models import Study, StudyRun

STAGES = {"midtrain": "mid-training", "sft": "SFT", "rl": "RL"}


@dataclass(frozen=True)
class Chain:
    """One level and seed: its three runs, and what they came to. Losses are in nats per token; None until they are known."""

    level: str
    seed: int
    midtrain: Run
    sft: Run
    rl: Run
    reward: float | None
    """Mean over the last steps of RL, once that has finished."""
    measured: str
    """Name of the metric that is the loss after SFT."""

    @property
    def heldout_loss(self) -> float | None:
        return _final(self.midtrain, "loss/heldout")

    @property
    def codebase_loss(self) -> float | None:
        return _final(self.midtrain, "loss/codebase")

    @property
    def sft_loss(self) -> float | None:
        """After SFT: on the codebase, or on held-out data where the study has no codebase."""
        return _final(self.sft, self.measured)

    @property
    def pass1(self) -> float | None:
        """Share of held-out tasks that the final policy passes at the first attempt, where RL evaluates."""
        return _final(self.rl, "eval/pass1")

    @property
    def complete(self) -> bool:
        return self.sft_loss is not None and self.reward is not None

    @property
    def missing(self) -> str:
        """Why there is no point of it; empty if there is one."""
        if self.complete:
            return ""
        for run in (self.midtrain, self.sft, self.rl):
            if run.state != RunState.FINISHED:
                why = f": {run.failure}" if run.failure else ""
                return f"{STAGES[run.kind]} (run {run.pk}) is {run.state}{why}"
        return f"its runs finished without {'a reward' if self.reward is None else self.measured}"

    @property
    def failed(self) -> bool:
        return any(run.state in (RunState.FAILED, RunState.CANCELLED) for run in (self.midtrain, self.sft, self.rl))


@dataclass(frozen=True)
class Results:
    """Correlations are Spearman's, of minus the loss and the reward: 1 where a lower loss always goes with a higher reward."""

    chains: Sequence[Chain]
    measured: str
    correlation: float | None
    """Over all points; None where it is not defined."""
    within_seeds: float | None
    """Mean of the correlations of each seed's points; None with one seed."""

    @property
    def points(self) -> list[Chain]:
        return [chain for chain in self.chains if chain.complete]

    @property
    def missing(self) -> list[Chain]:
        return [chain for chain in self.chains if not chain.complete]


def studies() -> QuerySet[Study]:
    """For lists, with `run_count`, `live_count`, `finished_count` and `failed_count`."""
    runs = "members__run__state"
    rows = Study.objects.select_related("created_by").annotate(
        run_count=Count("members"),
        live_count=Count("members", filter=Q(**{f"{runs}__in": RUN_LIVE})),
        finished_count=Count("members", filter=Q(**{runs: RunState.FINISHED})),
        failed_count=Count("members", filter=Q(**{f"{runs}__in": [RunState.FAILED, RunState.CANCELLED]})),
    )
    return rows.order_by("-pk")  # grouped queries have no order of their own


def get_study(pk: int) -> Study:
    """Raises NotFound."""
    found = studies().filter(pk=pk).first()
    if found is None:
        raise NotFound("study", pk)
    return found


def results(study: Study) -> Results:
    """Two queries, whatever the number of runs."""
    members = StudyRun.objects.filter(study=study).select_related("run").order_by("pk")
    runs: dict[tuple[int, str], dict[str, Run]] = defaultdict(dict)
    for member in members:
        runs[member.run.seed, member.level][member.run.kind] = member.run
    rewards = _rewards([of["rl"].pk for of in runs.values()])
    measured = "loss/codebase" if study.wanted.get("codebase") else "loss/heldout"
    chains = [
        Chain(level, seed, of["midtrain"], of["sft"], of["rl"], rewards.get(of["rl"].pk), measured)
        for (seed, level), of in runs.items()
    ]
    chains.sort(key=lambda one: list(LEVELS).index(one.level))
    points = [chain for chain in chains if chain.complete]
    seeds = sorted({chain.seed for chain in chains})
    within = [_correlation([point for point in points if point.seed == seed]) for seed in seeds]
    defined = [value for value in within if value is not None]
    return Results(chains, measured, _correlation(points), fmean(defined) if len(seeds) > 1 and defined else None)


def _correlation(points: Sequence[Chain]) -> float | None:
    return spearman([-(point.sft_loss or 0.0) for point in points], [point.reward or 0.0 for point in points])


def _rewards(runs: Sequence[int]) -> dict[int, float]:
    """Mean reward of the last steps of each of these runs that has finished."""
    rows = Metric.objects.filter(
        run__in=runs, run__state=RunState.FINISHED, key__name="reward/mean", step__gt=F("run__steps_total") - LAST
    )
    found: dict[int, list[float]] = defaultdict(list)
    for run, value in rows.values_list("run_id", "value"):
        found[run].append(value)
    return {run: fmean(values) for run, values in found.items()}


def _final(run: Run, metric: str) -> float | None:
    """Last value of a metric of a finished run."""
    value = run.latest.get(metric) if run.state == RunState.FINISHED else None
    return None if value is None else float(value)
