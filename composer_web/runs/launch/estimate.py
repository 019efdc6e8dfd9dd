"""Cost estimate of a configuration, from measurements of an earlier run of the same kind and model. It contains no
guesses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection

from composer_web.core.errors import UserError
from composer_web.env import env
from composer_web.policies.selectors import resolve
from composer_web.runs.defaults import derived
from composer_web.runs.launch.plan import evaluation_rollouts
from composer_web.runs.models import Metric, Run
from trainer.config import MTPConfig, RLConfig, RunConfig
from trainer.config.auto import automatic

MIN_STEPS = 3
CANDIDATES = 5


@dataclass(frozen=True)
class Measured:
    """Means over the steps of an earlier run."""

    source: Run
    steps: int
    train: float
    """Seconds of a step in which the trainer is busy."""
    wait: float
    """Seconds of a step in which the trainer waits for rollouts."""
    tokens: float | None
    """Tokens per rollout."""
    idle: float
    """Share of a step in which the engine is idle."""
    ranks: float
    """Number of ranks that trained. Lower than configured while nodes were missing."""


@dataclass(frozen=True)
class Estimate:
    training: float
    """Seconds of training."""
    evaluations: float
    """Engine seconds for the run's evaluations, as if they ran one after the other."""
    tokens: float | None
    """Tokens of all training rollouts, if the stage makes rollouts."""
    source: Run
    steps: int
    """Number of measured steps of `source`."""
    heads: float = 0.0
    """Seconds to train the MTP head, at every step or once. Also 0 if no run has measured it."""

    @property
    def seconds(self) -> float:
        return self.training + self.evaluations + self.heads

    @property
    def dollars(self) -> float | None:
        """None until the installation sets a price per machine hour."""
        price = env().machine_hour_dollars
        return None if price is None else price * self.seconds / 3600


@dataclass(frozen=True)
class Total:
    """Estimate for several consecutive runs. `unknown` of them have no estimate."""

    seconds: float
    dollars: float | None
    unknown: int


def estimate(config: RunConfig) -> Estimate | None:
    """Estimate scaled from the newest run of the same kind of stage and model shape. None without such a run."""
    found = measured(config)
    return None if found is None else scaled(config, found)


def total(configs: Iterable[RunConfig]) -> Total:
    """Sum of the estimates. Each kind of stage and policy is looked up once, for any number of runs. Raises UserError."""
    known: dict[tuple[str, str, bool], Measured | None] = {}
    seconds, unknown = 0.0, 0
    for given in configs:
        config = derived(given).config if automatic(given) else given
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
    """Newest earlier run with usable measurements."""
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
            ranks = ranks or run.configuration.stage.parallel.world_size
            return Measured(run, steps, seconds - wait, wait, tokens, min(max(idle or 0.0, 0.0), 1.0), ranks)
    return None


def scaled(config: RunConfig, found: Measured) -> Estimate:
    """Scale measured times to `config`. Training time grows with tokens and passes and shrinks with ranks. Waiting
    time grows with rollout tokens and shrinks with rollouts in flight. Evaluation time depends on the engine
    only."""
    stage, before = config.stage, found.source.configuration.stage
    more = _tokens(config) / _tokens(found.source.configuration)
    train = found.train * more * _passes(config) / _passes(found.source.configuration)
    train *= found.ranks / stage.parallel.world_size
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
    """Seconds to train the MTP head, from the newest run of a policy of this shape in any kind of stage, scaled by
    the trained positions."""
    if not config.stage.mtp.num_speculative_tokens:
        return 0.0
    alike = Run.objects.filter(policy_in__architecture=source.policy_in.architecture)
    taught = (
        Metric.objects.filter(key__name="time/heads", run__in=alike).select_related("run").order_by("-run_id").first()
    )
    if taught is None or not taught.run.configuration.stage.mtp.num_speculative_tokens:
        return 0.0
    once = taught.value * _positions(config.stage.mtp) / _positions(taught.run.configuration.stage.mtp)
    return once * config.stage.steps if config.stage.mtp.joint else once


def _positions(heads: MTPConfig) -> int:
    """Most positions that the head trains on at one of the steps, or after the last one."""
    tokens = heads.tokens_per_step if heads.joint else heads.steps * heads.batch_size * heads.seq_len
    return tokens * heads.num_speculative_tokens


def _passes(config: RunConfig) -> int:
    """Passes over the tokens of a step: one forward pass, a backward pass worth two, and one more to score with a
    reference."""
    stage = config.stage
    return 3 + (isinstance(stage, RLConfig) and stage.objective.kl_coefficient > 0)


def _of_sessions(config: RunConfig) -> bool:
    return isinstance(config.stage, RLConfig) and bool(config.stage.sessions.channel)


def _means(run: Run) -> tuple[int, float | None, float | None, float | None, float | None, float | None]:
    """Number of measured steps, then means: seconds of a step (without training the MTP head),
    seconds of waiting, tokens per rollout, idle share of the engine, and ranks if nodes may have been missing."""
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
                   avg(m.value) FILTER (WHERE k.name = 'distributed/ranks')
            FROM runs_metric m JOIN runs_metrickey k ON k.id = m.key_id
            WHERE m.run_id = %s
              AND k.name IN ('time/step', 'time/heads', 'time/wait_for_batch', 'tokens/total', 'idle/rollouts',
                             'distributed/ranks')
            """,
            [run.pk],
        )
        steps, *means = cursor.fetchone()
        return int(steps), *means


def _tokens(config: RunConfig) -> int:
    """Maximum number of tokens in one step. The step time scales with it."""
    stage = config.stage
    if isinstance(stage, RLConfig):
        return stage.groups_per_step * stage.group_size * stage.sampling.max_context_tokens
    return stage.batch_tokens


def _in_flight(stage: RLConfig) -> int:
    return stage.max_in_flight_groups * stage.group_size
