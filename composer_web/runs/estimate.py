"""What a configuration will cost, from what an earlier run of the same kind and model has measured; nothing is guessed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection

from composer_web.env import env
from composer_web.ops.errors import UserError
from composer_web.policies.selectors import resolve
from composer_web.runs.models import Metric, Run
from composer_web.runs.plan import evaluation_rollouts
from trainer.config import HeadsConfig, RLConfig, RunConfig

MIN_STEPS = 3
CANDIDATES = 5


@dataclass(frozen=True)
class Measured:
    """Means over the steps of an earlier run."""

    source: Run
    steps: int
    train: float
    """Seconds of a step in which the trainer had something to do."""
    wait: float
    """Seconds in which it waited for rollouts."""
    tokens: float | None
    """Of a rollout."""
    idle: float
    """Share of a step in which the engine computed nothing."""
    ranks: float
    """That trained: fewer than configured while machines were missing."""


@dataclass(frozen=True)
class Estimate:
    training: float
    """Seconds."""
    evaluations: float
    """Seconds of the engine for the run's evaluations, as if they came one after the other."""
    tokens: float | None
    """Tokens of all training rollouts, where rollouts are made."""
    source: Run
    steps: int
    """Steps of `source` that were measured."""
    heads: float = 0.0
    """Seconds in which the head that guesses tokens ahead is trained, once; 0 too where no run has measured it."""

    @property
    def seconds(self) -> float:
        return self.training + self.evaluations + self.heads

    @property
    def dollars(self) -> float | None:
        """None while the installation does not say what an hour of its machines costs."""
        price = env().machine_hour_dollars
        return None if price is None else price * self.seconds / 3600


@dataclass(frozen=True)
class Total:
    """Of several runs one after the other; `unknown` of them have no estimate."""

    seconds: float
    dollars: float | None
    unknown: int


def estimate(config: RunConfig) -> Estimate | None:
    """Scaled from the newest run that trained a model of the same shape in the same kind of stage; None while there is
    none."""
    found = measured(config)
    return None if found is None else scaled(config, found)


def total(configs: Iterable[RunConfig]) -> Total:
    """Each kind of stage and policy is looked up once, however many runs there are."""
    known: dict[tuple[str, str, bool], Measured | None] = {}
    seconds, unknown = 0.0, 0
    for config in configs:
        key = (config.stage.kind, config.policy, _of_sessions(config))
        if key not in known:
            known[key] = measured(config)
        found = known[key]
        if found is None:
            unknown += 1
        else:
            seconds += scaled(config, found).seconds
    price = env().machine_hour_dollars
    return Total(seconds, None if price is None else price * seconds / 3600, unknown)


def measured(config: RunConfig) -> Measured | None:
    """The newest earlier run that says something."""
    try:
        architecture = resolve(config.policy).policy.architecture
    except UserError:
        return None
    earlier = Run.objects.filter(
        kind=config.stage.kind, policy_in__architecture=architecture, step__gte=MIN_STEPS
    ).defer("latest")
    for run in earlier.order_by("-pk")[:CANDIDATES]:
        if _of_sessions(run.configuration) != _of_sessions(config):
            continue  # one waits for rollouts, the other reads what users did
        steps, seconds, wait, tokens, idle, ranks = _means(run)
        if steps >= MIN_STEPS and seconds is not None:
            wait = min(wait or 0.0, seconds)
            ranks = ranks or run.configuration.stage.parallel.ranks
            return Measured(run, steps, seconds - wait, wait, tokens, min(max(idle or 0.0, 0.0), 1.0), ranks)
    return None


def scaled(config: RunConfig, found: Measured) -> Estimate:
    """Training grows with tokens and passes over them, and shrinks with ranks; waiting grows with the tokens of rollouts and
    shrinks with how many are in flight. What evaluations take is the engine's and no trainer makes it shorter."""
    stage, before = config.stage, found.source.configuration.stage
    more = _tokens(config) / _tokens(found.source.configuration)
    train = found.train * more * _passes(config) / _passes(found.source.configuration)
    train *= found.ranks / stage.parallel.ranks
    wait, evaluations = found.wait, 0.0
    rollouts = 0
    if isinstance(stage, RLConfig) and isinstance(before, RLConfig):
        faster = _in_flight(before) / _in_flight(stage)
        wait *= more * faster
        if not stage.sessions.channel:
            rollouts = stage.groups_per_step * stage.group_size
            engine = (found.train + found.wait) * (1 - found.idle) / (before.groups_per_step * before.group_size)
            longer = stage.sampling.max_context_tokens / before.sampling.max_context_tokens
            evaluations = engine * longer * faster * evaluation_rollouts(stage)
    tokens = found.tokens * rollouts * stage.steps if found.tokens is not None and rollouts else None
    return Estimate(
        (train + wait) * stage.steps, evaluations, tokens, found.source, found.steps, heads=_heads(config, found.source)
    )


def _heads(config: RunConfig, source: Run) -> float:
    """As the newest run of a policy of that shape took, of any kind of stage, by the positions that the head learns from."""
    if not config.stage.heads.ahead:
        return 0.0
    alike = Run.objects.filter(policy_in__architecture=source.policy_in.architecture)
    taught = (
        Metric.objects.filter(key__name="time/heads", run__in=alike).select_related("run").order_by("-run_id").first()
    )
    if taught is None or not taught.run.configuration.stage.heads.ahead:
        return 0.0
    return taught.value * _positions(config.stage.heads) / _positions(taught.run.configuration.stage.heads)


def _positions(heads: HeadsConfig) -> int:
    return heads.steps * heads.batch * heads.window * heads.ahead


def _passes(config: RunConfig) -> int:
    """Over the tokens of a step: forward, and two of the same size backward; a reference scores them once more."""
    stage = config.stage
    return 3 + (isinstance(stage, RLConfig) and stage.objective.kl_coefficient > 0)


def _of_sessions(config: RunConfig) -> bool:
    return isinstance(config.stage, RLConfig) and bool(config.stage.sessions.channel)


def _means(run: Run) -> tuple[int, float | None, float | None, float | None, float | None, float | None]:
    """Steps measured, mean seconds of a step (without the head that is trained after the last) and of its waiting, mean
    tokens of a rollout, mean share in which the engine was idle, mean ranks where machines may have been missing."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT count(*) FILTER (WHERE k.name = 'time/step'),
                   (sum(m.value) FILTER (WHERE k.name = 'time/step')
                    - coalesce(sum(m.value) FILTER (WHERE k.name = 'time/heads'), 0))
                   / nullif(count(*) FILTER (WHERE k.name = 'time/step'), 0),
                   avg(m.value) FILTER (WHERE k.name = 'time/wait_for_batch'),
                   avg(m.value) FILTER (WHERE k.name = 'tokens/total'),
                   avg(m.value) FILTER (WHERE k.name = 'idle/rollouts'),
                   avg(m.value) FILTER (WHERE k.name = 'parallel/ranks')
            FROM runs_metric m JOIN runs_metrickey k ON k.id = m.key_id
            WHERE m.run_id = %s
              AND k.name IN ('time/step', 'time/heads', 'time/wait_for_batch', 'tokens/total', 'idle/rollouts',
                             'parallel/ranks')
            """,
            [run.pk],
        )
        steps, *means = cursor.fetchone()
        return int(steps), *means


def _tokens(config: RunConfig) -> int:
    """What the time of one step grows with: its tokens, at most."""
    stage = config.stage
    if isinstance(stage, RLConfig):
        return stage.groups_per_step * stage.group_size * stage.sampling.max_context_tokens
    return stage.batch_tokens


def _in_flight(stage: RLConfig) -> int:
    return stage.max_in_flight_groups * stage.group_size
