"""What a configuration will cost, by what an earlier run measured: each setting moves the number as it moves the work."""

from __future__ import annotations

from typing import Any

import pytest

from composer_web.runs import metrics, services
from composer_web.runs.launch.estimate import Estimate, estimate, total
from composer_web.runs.launch.summary import as_data, summarise
from composer_web.runs.models import Run
from tests.web.making import SMALL
from trainer.config import RLConfig, RunConfig

pytestmark = pytest.mark.django_db
STEPS = 4
TRAIN, WAIT, IDLE, TOKENS = 6.0, 2.0, 0.25, 50.0


def of(**fields: Any) -> RunConfig:
    """The measured configuration with other settings."""
    stage = RLConfig.model_validate({**SMALL.model_dump(), **fields})
    return RunConfig(name="next", stage=stage)


@pytest.fixture
def source(running: Run) -> Run:
    """Four steps of 8 seconds, of which the trainer waited 2."""
    measure(running)
    return running


def measure(run: Run, **more: float) -> None:
    named = {
        "time/step": TRAIN + WAIT, "time/wait_for_batch": WAIT, "tokens/total": TOKENS, "idle/rollouts": IDLE, **more
    }  # fmt: skip
    metrics.record_many(run=run, rows=[(step, name, v) for step in range(1, STEPS + 1) for name, v in named.items()])
    services.set_progress(run=run, step=STEPS)


def told(config: RunConfig) -> Estimate:
    found = estimate(config)
    assert found is not None
    return found


def test_the_same_again_takes_the_same(source: Run) -> None:
    found = told(of())
    assert (found.source, found.steps) == (source, STEPS)
    assert found.training == SMALL.steps * (TRAIN + WAIT)
    assert (found.evaluations, found.heads, found.seconds) == (0.0, 0.0, found.training)
    assert found.tokens == SMALL.steps * 4 * TOKENS


def test_more_steps_groups_samples_and_context_are_more_work(source: Run) -> None:
    """The trainer's part and the wait for rollouts both grow with what a step reads."""
    for more, fields in (
        (3.0, {"steps": 3 * SMALL.steps}),
        (2.0, {"groups_per_step": 4}),
        (
            2.0,
            {"sampling": {**SMALL.sampling.model_dump(), "max_context_tokens": 2 * SMALL.sampling.max_context_tokens}},
        ),
    ):
        found = told(of(**fields))
        assert found.training == pytest.approx(more * SMALL.steps * (TRAIN + WAIT)), fields
    found = told(of(group_size=4))
    assert found.training == pytest.approx(SMALL.steps * (2 * TRAIN + WAIT)), "twice as many are in flight, too"
    assert found.tokens == SMALL.steps * 8 * TOKENS


def test_ranks_shorten_training_and_flight_shortens_waiting(source: Run) -> None:
    found = told(of(parallel={"world_size": 2, "dp_replicate": 2}))
    assert found.training == pytest.approx(SMALL.steps * (TRAIN / 2 + WAIT))
    found = told(of(max_in_flight_groups=2 * SMALL.max_in_flight_groups, max_off_policy_steps=3))
    assert found.training == pytest.approx(SMALL.steps * (TRAIN + WAIT / 2))


def test_ranks_of_missing_machines_trained_nothing(source: Run) -> None:
    sizes = {"world_size": 4, "dp_replicate": 4, "max_nodes": 4, "min_nodes": 1}
    short = services.create_run(config=of(parallel=sizes).model_copy(update={"policy": source.config["policy"]}))
    measure(short, **{"distributed/ranks": 2.0})
    found = told(of(parallel={"world_size": 8, "dp_replicate": 8}))
    assert found.source == short and found.training == pytest.approx(SMALL.steps * (TRAIN / 4 + WAIT))


def test_a_reference_is_one_pass_more(source: Run) -> None:
    """Forward and two backward without; the reference scores the same tokens once."""
    found = told(of(objective={**SMALL.objective.model_dump(), "kl_coefficient": 0.1}))
    assert found.training == pytest.approx(SMALL.steps * (TRAIN * 4 / 3 + WAIT))


def test_and_one_less_where_the_measured_run_had_it(source: Run) -> None:
    config = {**source.config, "stage": {**source.config["stage"]}}
    config["stage"]["objective"] = {**config["stage"]["objective"], "kl_coefficient": 0.1}
    with_reference = services.create_run(config=RunConfig.model_validate(config))
    measure(with_reference)
    found = told(of())
    assert found.source == with_reference and found.training == pytest.approx(SMALL.steps * (TRAIN * 3 / 4 + WAIT))


EVALUATED = {"eval_suite": "train", "eval_tasks": 5, "eval_samples": 4, "steps": 9, "eval_every": 3}
ROLLOUTS = 5 * (2 * 4 + 2 * 1)
"""Five tasks: four samples before and after, and one each at two times between."""
EACH = (TRAIN + WAIT) * (1 - IDLE) / 4
"""Seconds of the engine for a rollout: of a step's four, while it computed."""


def test_evaluations_take_the_engine_what_rollouts_took_it(source: Run) -> None:
    assert told(of(**EVALUATED)).evaluations == pytest.approx(ROLLOUTS * EACH)
    assert told(of(**EVALUATED)).seconds == pytest.approx(9 * (TRAIN + WAIT) + ROLLOUTS * EACH)
    for fields in ({"parallel": {"world_size": 4, "dp_replicate": 4}}, {"groups_per_step": 4}, {"group_size": 2}):
        assert told(of(**{**EVALUATED, **fields})).evaluations == pytest.approx(ROLLOUTS * EACH), fields
    assert told(of(**{**EVALUATED, "eval_samples": 8})).evaluations == pytest.approx(5 * (2 * 8 + 2 * 2) * EACH)
    assert told(of(**{**EVALUATED, "eval_tasks": 10})).evaluations == pytest.approx(2 * ROLLOUTS * EACH)


def test_evaluations_cost_where_the_trainer_never_waited_too(running: Run) -> None:
    measure(running, **{"time/wait_for_batch": 0.0, "idle/rollouts": 0.75})
    assert told(of(**EVALUATED)).evaluations == pytest.approx(ROLLOUTS * (TRAIN + WAIT) * 0.25 / 4)


HEADS = {"num_speculative_tokens": 2, "schedule": "end", "steps": 100, "batch_size": 4, "seq_len": 32}


def test_a_head_is_trained_once_and_its_time_is_no_steps(source: Run) -> None:
    """The last step's time has the head's in it: it is taken out, and counted once, by the positions it learns from."""
    assert told(of(mtp=HEADS)).heads == 0.0, "nothing has measured one"
    config = of(mtp=HEADS).model_copy(update={"policy": source.config["policy"]})
    taught = services.create_run(config=config)
    measure(taught)
    metrics.record(run=taught, step=STEPS, values={"time/step": TRAIN + WAIT + 30.0, "time/heads": 30.0})
    found = told(of(mtp=HEADS))
    assert found.source == taught and found.training == pytest.approx(SMALL.steps * (TRAIN + WAIT))
    assert found.heads == 30.0 and found.seconds == pytest.approx(found.training + 30.0)
    assert told(of(mtp={**HEADS, "steps": 200, "num_speculative_tokens": 1})).heads == 30.0
    assert told(of(mtp={**HEADS, "seq_len": 64})).heads == 60.0
    assert told(of()).heads == 0.0
    joint = {"num_speculative_tokens": 2, "tokens_per_step": 1280}  # a tenth of the positions, at each step
    assert told(of(mtp=joint)).heads == pytest.approx(3.0 * SMALL.steps)
    data = as_data(summarise(of(mtp=HEADS)))["estimate"]
    assert (data["head_seconds"], data["seconds"]) == (30.0, found.seconds)


def test_a_run_on_sessions_says_nothing_of_one_with_rollouts(source: Run) -> None:
    sessions = {**SMALL.sessions.model_dump(), "channel": "production"}
    assert estimate(of(sessions=sessions)) is None
    live = services.create_run(config=of(sessions=sessions))
    measure(live)
    found = told(of(sessions=sessions))
    assert (found.source, found.tokens, found.evaluations) == (live, None, 0.0)
    assert told(of()).source == source


def test_a_sweep_is_the_sum_of_its_runs(source: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from composer_web.runs.launch import estimate as module

    configs = [of(steps=2), of(steps=4), of(**EVALUATED), of().model_copy(update={"policy": "nobody"})]
    wanted = sum(told(config).seconds for config in configs[:3])
    found = total(configs)
    assert found.seconds == pytest.approx(wanted) and (found.unknown, found.dollars) == (1, None)
    monkeypatch.setattr(module.env(), "machine_hour_dollars", 36.0)
    assert total(configs).dollars == pytest.approx(wanted / 100)
    assert told(of()).dollars == pytest.approx(SMALL.steps * (TRAIN + WAIT) / 100)
    assert total([]).seconds == 0.0
