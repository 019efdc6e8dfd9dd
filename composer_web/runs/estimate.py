"""What a configuration will cost, from what an earlier run of the same kind and model has measured; nothing is guessed."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from composer_web.env import env
from composer_web.ops.errors import UserError
from composer_web.policies.selectors import resolve
from composer_web.runs.models import Run
from trainer.config import RLConfig, RunConfig

MIN_STEPS = 3
CANDIDATES = 5


@dataclass(frozen=True)
class Estimate:
    seconds: float
    tokens: float | None
    """Tokens of all training rollouts, where rollouts are made."""
    source: Run
    steps: int
    """Steps of `source` that were measured."""

    @property
    def dollars(self) -> float | None:
        """None while the installation does not say what an hour of its machines costs."""
        price = env().machine_hour_dollars
        return None if price is None else price * self.seconds / 3600


def estimate(config: RunConfig) -> Estimate | None:
    """Seconds of training (evaluations come on top), scaled by rollouts or by batch tokens from the newest run that
    trained a model of the same shape in the same kind of stage; None while there is none."""
    try:
        architecture = resolve(config.policy).policy.architecture
    except UserError:
        return None
    earlier = Run.objects.filter(
        kind=config.stage.kind, policy_in__architecture=architecture, step__gte=MIN_STEPS
    ).defer("latest")
    for run in earlier.order_by("-pk")[:CANDIDATES]:
        steps, seconds, tokens = _measured(run)
        if steps < MIN_STEPS or seconds is None:
            continue
        factor = _work(config) / _work(run.configuration)
        rollouts = _rollouts(config)
        return Estimate(
            seconds * config.stage.steps * factor,
            tokens * rollouts if tokens is not None and rollouts else None,
            run,
            steps,
        )
    return None


def _measured(run: Run) -> tuple[int, float | None, float | None]:
    """Steps measured, mean seconds of a step, mean tokens of a rollout."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT count(*) FILTER (WHERE k.name = 'time/step'), avg(m.value) FILTER (WHERE k.name = 'time/step'),
                   avg(m.value) FILTER (WHERE k.name = 'tokens/total')
            FROM runs_metric m JOIN runs_metrickey k ON k.id = m.key_id
            WHERE m.run_id = %s AND k.name IN ('time/step', 'tokens/total')
            """,
            [run.pk],
        )
        steps, seconds, tokens = cursor.fetchone()
        return int(steps), seconds, tokens


def _work(config: RunConfig) -> int:
    """What the time of one step grows with: rollouts, or tokens."""
    stage = config.stage
    return stage.groups_per_step * stage.group_size if isinstance(stage, RLConfig) else stage.batch_tokens


def _rollouts(config: RunConfig) -> int:
    stage = config.stage
    return stage.steps * stage.groups_per_step * stage.group_size if isinstance(stage, RLConfig) else 0
