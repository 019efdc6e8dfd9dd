"""`make bench NAME=learning SEEDS=0+1+2`: RL alone from the shipped base policy, through real sandboxes, per seed.

Each seed runs `trainer.rl.rl_sync` for the configured steps (STEPS, default that of RLConfig) with prompts of its
own, and evaluates the same held-out tasks before and after, at the temperature of training. Rewards come from hidden
tests executed in second, clean sandboxes. One JSON line a step goes to stderr, the result to stdout; curves go to
`$OPENCOMPOSER_DATA/bench/learning.json`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from sandbox.backends.capacity import sandboxes_at_once
from sandbox.backends.choice import default_backend
from sandbox.tasks.environments import EnvironmentStore
from tests.bench import report
from trainer import policy as policies
from trainer.config import RLConfig
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import DeploymentSpec
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.rl.evaluate import EvalReport
from trainer.rl.rl_sync import (
    DEPLOYMENT,
    SyncRun,
    SyncStep,
    build_run,
    held_out,
    procedural_held_out,
    procedural_prompts,
    publish,
    train,
)
from trainer.rollouts.episode import RolloutServices
from trainer.toy.preset import toy_rl
from trainer.weights import WeightStore

POLICY = Path(os.environ.get("POLICY", "policies/base"))
GOALS: dict[str, report.Goal] = {
    "pass1_before_min": (">=", 0.10),
    "pass1_before_max": ("<=", 0.40),
    "pass1_after_min": (">=", 0.75),
    "gain_min": (">=", 0.25),
    "best8_drop_max": ("<=", 0.0),
}
CURVES = ("reward/mean", "reward/best_of_k", "verdict/passed", "policy/entropy", "groups/zero_signal", "tokens/policy")


def say(values: dict[str, Any]) -> None:
    print(json.dumps(values), file=sys.stderr, flush=True)


def process_cpu(pid: int) -> float:
    """User and system seconds that a running process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_cpu(who: int = resource.RUSAGE_SELF) -> float:
    """User and system seconds of this process, or of the children that it has waited for."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def shown(report: EvalReport) -> dict[str, Any]:
    return {
        "pass1": round(report.pass1, 4),
        "interval": [round(v, 3) for v in report.pass1_interval],
        "best": None if report.best_of_k is None else round(report.best_of_k, 4),
        "missing": report.missing,
        "finished": round(report.finished, 3),
        "output_tokens": round(report.output_tokens, 1),
        "turns": round(report.turns, 2),
    }


async def one_seed(seed: int, config: RLConfig, scratch: Path, environments: EnvironmentStore) -> dict[str, Any]:
    """Train one seed; returns its curves, evaluations and costs."""
    store = WeightStore(scratch / f"weights-{seed}", dtype="float32")
    curve: list[dict[str, float]] = []
    backend = default_backend()
    children_before = own_cpu(resource.RUSAGE_CHILDREN)
    with EmbeddedServer(scratch / f"engine-{seed}") as server, InferenceAdmin(server.url) as admin:
        spec = DeploymentSpec(name=DEPLOYMENT, policy_dir=str(POLICY.resolve()), store=str(store.root), follow=True)
        await asyncio.to_thread(admin.deploy, spec)

        async def update_engine(version: int) -> None:
            await asyncio.to_thread(admin.update, DEPLOYMENT, version)

        async def on_step(step: SyncStep) -> None:
            values = {name: round(step.metrics.get(name, 0.0), 4) for name in CURVES}
            times = {n: round(v, 2) for n, v in step.metrics.items() if n.startswith("time/")}
            curve.append({"step": step.step, **values, **times})
            say(
                {
                    "seed": seed,
                    "step": step.step,
                    **values,
                    **times,
                    "cpu": {"loop": round(own_cpu(), 1), "engine": round(process_cpu(server.pid), 1)},
                }
            )

        async with HttpInferenceClient(server.url) as client:
            services = RolloutServices(
                client=client,
                renderer=policies.load(POLICY).renderer,
                backend=backend,
                environments=environments,
                deployment=DEPLOYMENT,
                slots=asyncio.Semaphore(sandboxes_at_once()),
            )
            run: SyncRun = build_run(
                policy_dir=POLICY,
                config=config,
                seed=seed,
                store=store,
                services=services,
                update_engine=update_engine,
            )
            try:
                seconds: dict[str, float] = {}
                cpu = {"loop": own_cpu(), "engine": process_cpu(server.pid)}
                await publish(run)
                tasks = procedural_held_out(config.eval_tasks)
                before, seconds["eval_before"] = await timed(held_out(run, tasks, samples=config.eval_samples))
                say({"seed": seed, "before": shown(before)})
                _, seconds["train"] = await timed(train(run, procedural_prompts(seed), on_step=on_step))
                after, seconds["eval_after"] = await timed(held_out(run, tasks, samples=config.eval_samples))
                say({"seed": seed, "after": shown(after)})
                cpu = {"loop": own_cpu() - cpu["loop"], "engine": process_cpu(server.pid) - cpu["engine"]}
                if os.environ.get("KEEP_POLICY"):
                    policies.save(run.policy, Path(os.environ["KEEP_POLICY"]) / f"seed-{seed}")
            finally:
                await backend.close()
    # Engine and sandbox supervisors are the only children, and both have ended.
    cpu["sandboxes"] = own_cpu(resource.RUSAGE_CHILDREN) - children_before - cpu["engine"]
    return {
        "seed": seed,
        "before": shown(before),
        "after": shown(after),
        "steps": config.steps,
        "temperature": config.sampling.temperature,
        "lost_attempts": len(run.lost),
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "cpu_seconds": {name: round(value, 1) for name, value in cpu.items()},
        "curve": curve,
    }


async def timed(work: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    return await work, time.perf_counter() - began


def main() -> None:
    torch.set_num_threads(1)
    seeds = [int(text) for text in os.environ.get("SEEDS", "0+1+2").split("+")]
    defaults = toy_rl()
    config = toy_rl(
        steps=int(os.environ.get("STEPS", defaults.steps)),
        eval_tasks=int(os.environ.get("EVAL_TASKS", defaults.eval_tasks)),
        eval_samples=int(os.environ.get("EVAL_SAMPLES", defaults.eval_samples)),
    )
    data = Path(os.environ.get("OPENCOMPOSER_DATA", ".data")) / "bench"
    data.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="learning-", dir=data))
    environments = EnvironmentStore(data / "environments")
    try:
        runs = [asyncio.run(one_seed(seed, config, scratch, environments)) for seed in seeds]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    (data / "learning.json").write_text(json.dumps({"config": config.model_dump(), "runs": runs}, indent=1))
    metrics: dict[str, float] = {
        "pass1_before_min": min(run["before"]["pass1"] for run in runs),
        "pass1_before_max": max(run["before"]["pass1"] for run in runs),
        "pass1_after_min": min(run["after"]["pass1"] for run in runs),
        "gain_min": round(min(run["after"]["pass1"] - run["before"]["pass1"] for run in runs), 4),
        "best8_drop_max": round(max(run["before"]["best"] - run["after"]["best"] for run in runs), 4),
        "lost_attempts": sum(run["lost_attempts"] for run in runs),
    }
    for run in runs:
        for name in ("pass1", "best"):
            metrics |= {f"{name}_{when}_seed{run['seed']}": run[when][name] for when in ("before", "after")}
    conditions = {
        "seeds": seeds,
        "steps": config.steps,
        "temperature": config.sampling.temperature,
        "held_out_tasks": config.eval_tasks,
        "samples": config.eval_samples,
        "seconds": {run["seed"]: run["seconds"] for run in runs},
        "cpu_seconds": {run["seed"]: run["cpu_seconds"] for run in runs},
    }
    report.emit("learning", metrics, goals=GOALS, conditions=conditions)


if __name__ == "__main__":
    main()
