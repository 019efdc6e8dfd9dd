"""`make bench NAME=dispatch`: train workers and trainer processes are killed -9 at random moments of real runs.

A throw-away Postgres and Valkey, real Celery workers (two of the queue `train`, one of `control`, the clock) and real trainer
processes. Groups are accepted through the services, without sandboxes and engine, so that steps come quickly. Each kill is
at a random moment; the conditions say between which acts it fell. Every run is then trained again in one process, without
interruption, on the batches that were recorded: the digests of the weights after each step must be the same ones.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.stack import ports, throwaway
from tests.bench import report

if TYPE_CHECKING:
    from composer_web.runs.models import Run
    from tests.web.kills import Chaos

GOALS: dict[str, report.Goal] = {"kills": (">=", 200.0), "trained_twice": ("==", 0.0), "lost": ("==", 0.0)}
LIVE_RUNS = 2
SPARED = 6
"""A run that lost so many trainers in a row is let get to its next checkpoint."""
END_SECONDS = 900.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20, help="of each run")
    parser.add_argument("--between", type=float, default=8.0, help="most seconds between two kills")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with throwaway.services() as variables:
        os.environ.update(variables, DJANGO_SETTINGS_MODULE="composer_web.settings")
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """Print the line. The database of the environment is migrated and empty."""
    from tests.web.forked import ForkedProduct
    from tests.web.kills import Chaos, prove

    began = time.monotonic()
    prepare(2 * arguments.steps)
    with tempfile.TemporaryDirectory() as place:
        product = ForkedProduct(Path(place), ports.any_free(), OPENCOMPOSER_TRAINER_LEASE_SECONDS="3")
        workers = ["train-a", "train-b"]
        for name in workers:
            product.add_train_worker(name, "train", name=name)
        for name in ("control", "beat", *workers):
            product.start(name)
        chaos = Chaos(product, workers, seed=arguments.seed)
        try:
            runs = kill_and_train(chaos, arguments)
        finally:
            product.stop()
    seconds = time.monotonic() - began
    proofs = [prove(run) for run in runs]
    metrics = {
        "kills": float(chaos.count),
        "trained_twice": float(sum(proof.trained_twice for proof in proofs)),
        "lost": float(sum(proof.lost for proof in proofs)),
        "steps": float(sum(proof.steps for proof in proofs)),
        "runs": float(len(runs)),
        "recoveries": float(sum(run.recoveries for run in runs)),
        "seconds": round(seconds, 1),
    }
    report.emit("dispatch", metrics, goals=GOALS, conditions={"moments": dict(sorted(chaos.kills.items()))})


def prepare(prompts: int) -> None:
    """The shipped policy, and a suite of enough tasks."""
    from composer_web.env import REPOSITORY
    from composer_web.policies.services import import_base
    from composer_web.tasks.services import build_suite
    from sandbox.tasks.procedural import generate

    import_base(path=REPOSITORY / "policies" / "base", name="base", toy=True)
    build_suite(name="train", purpose="train", specs=[generate(seed, "train") for seed in range(prompts)])


def start(number: int, steps: int) -> Run:
    from composer_web.runs import services
    from tests.trainer.stages.memory import small_config
    from trainer.config import CheckpointConfig, RunConfig

    stage = small_config(
        steps=steps, eval_suite=None, max_in_flight_groups=4, checkpoint=CheckpointConfig(every_steps=1, keep=2)
    )
    run = services.create_run(config=RunConfig(name=f"killed {number}", seed=number, stage=stage))
    return services.start_run(run=run)


def kill_and_train(chaos: Chaos, arguments: argparse.Namespace) -> list[Run]:
    """Kill until it was often enough, always beside live runs; then let them end. Returns all runs."""
    from composer_web.runs.models import RUN_FINAL

    runs: list[Run] = []
    moments = random.Random(arguments.seed)
    while chaos.count < arguments.kills:
        live = [run for run in runs if run.state not in RUN_FINAL]
        while len(live) < LIVE_RUNS:
            live.append(start(len(runs), arguments.steps))
            runs.append(live[-1])
        chaos.play(live, moments.uniform(0.0, arguments.between))
        while any(run.lost_in_a_row >= SPARED for run in live):
            chaos.play(live, 0.5)  # a run is given up that loses its trainers too often without a checkpoint
        if chaos.kill(live) and chaos.count % 10 == 0:
            print(f"{chaos.count} kills; runs {[(run.step, run.recoveries) for run in runs]}", flush=True)
    end = time.monotonic() + END_SECONDS
    while live := [run for run in runs if run.state not in RUN_FINAL]:
        assert time.monotonic() < end, f"{live} did not end within {END_SECONDS:g} s"
        chaos.play(live, 1.0)
    return runs


if __name__ == "__main__":
    main()
