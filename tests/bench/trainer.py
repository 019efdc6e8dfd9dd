"""A whole step of reinforcement learning (generate, reward, learn, new weights) beside TRL's GRPOTrainer.

`make bench NAME=trainer`, with `TRL_PYTHON` naming an interpreter that has trl 1.16.0 and this project's dependencies
(`pip install trl==1.16.0` in an environment of its own; it is no dependency of the product). Same policy (Qwen3, 4 layers of
256, vocabulary 4096, random weights, fp32), same prompts (8, of 64 tokens), 8 samples each, 128 new tokens, temperature
1, no KL, rewards minus their mean, token sum by a constant, AdamW, gradients clipped. TRL runs at its best setting on a CPU:
bf16 autocast, micro-batches of 16 rows, `generate`. Ours computes the training in bf16 autocast as well and generates in
fp32 with the embedded engine in the same process.

Each side is a process of its own with one thread; their turns alternate. Times are CPU seconds of the process, medians
over steps without the first; memory is the largest resident size of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.bench import report
from tests.bench.trainer_step import GROUP, NEW, PROMPTS, RATE, prompts_of, reward

MICRO_ROWS = 16
REPOSITORY = Path(__file__).parents[2]


def ours(folder: Path, steps: int) -> dict[str, object]:
    """The steps of this project's parts, in this process."""
    from trainer.config import ObjectiveConfig, OptimizerConfig
    from trainer.inference.contract import GenerateRequest, GenerateResponse
    from trainer.inference.embedded.jobs import Job
    from trainer.inference.embedded.kinds import build_decoder, build_weights
    from trainer.inference.embedded.runner import Limits, Runner, make_cache
    from trainer.inference.embedded.shape import DecoderShape
    from trainer.learning.advantage import group_advantages
    from trainer.learning.algorithms import correction_of
    from trainer.learning.step import Learner
    from trainer.rollouts.types import TrainGroup, TrainSample

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    objective = ObjectiveConfig(loss_divisor=float(PROMPTS * GROUP * NEW))
    learner = Learner(
        model,
        objective=objective,
        correction=correction_of(objective),
        optimizer=OptimizerConfig(learning_rate=RATE, warmup_steps=0, decay_from=1.0),
        temperature=1.0,
        total_steps=steps,
        micro_batch_tokens=2048,
        precision="bfloat16",
    )
    shape = DecoderShape.read(folder)
    limits = Limits(max_slots=PROMPTS * GROUP, max_context=256)
    runner = Runner(limits)
    decoder = build_decoder(shape, learner.weights(), limits.max_context)
    runner.install(decoder, make_cache(decoder, limits), 0)
    texts = prompts_of(tokenizer, steps)
    seconds: dict[str, list[float]] = {"step": [], "generate": []}
    for step in range(1, steps + 1):
        began = time.process_time()
        asked = [tokenizer(text)["input_ids"] for text in texts[(step - 1) * PROMPTS : step * PROMPTS]]
        answers: list[GenerateResponse] = []
        jobs = []
        for number in range(PROMPTS * GROUP):
            request = GenerateRequest(prompt_ids=asked[number // GROUP], max_tokens=NEW, seed=step * 1000 + number)
            jobs.append(Job(request, time.monotonic() + 3600, answers.append))  # type: ignore[arg-type]
            runner.submit(jobs[-1])
        while len(answers) < len(jobs):
            runner.step()
        seconds["generate"].append(time.process_time() - began)
        groups = []
        for index in range(PROMPTS):
            members = jobs[index * GROUP : (index + 1) * GROUP]
            rewards = [reward(job.token_ids) for job in members]
            samples = [
                TrainSample(
                    tokens=[*job.prompt, *job.token_ids],
                    loss_mask=[0] * len(job.prompt) + [1] * NEW,
                    sampler_logprobs=[0.0] * len(job.prompt) + job.logprobs,
                    advantages=[0.0] * len(job.prompt) + [advantage] * NEW,
                )
                for job, advantage in zip(members, group_advantages(rewards), strict=True)
            ]
            groups.append(
                TrainGroup(
                    group_id=str(index),
                    prompt_index=index,
                    dispatched_version=step - 1,
                    oldest_version=step - 1,
                    rewards=rewards,
                    samples=samples,
                )
            )
        learner.train(groups, step=step)
        runner.swap(build_weights(shape, learner.weights()), step)
        seconds["step"].append(time.process_time() - began)
        print(f"ours {step}: {seconds['step'][-1]:.2f} CPU s", file=sys.stderr)
    return {**seconds, "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def make_policy(folder: Path) -> None:
    """The policy of both sides, with the shipped tokenizer (whose ids are a part of its vocabulary)."""
    from tests.bench.engine import bigger

    model = bigger()
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(REPOSITORY / "policies" / "base").save_pretrained(folder)


def child(command: Sequence[str], folder: Path, steps: int) -> dict[str, object]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [*command, str(folder), str(steps)], env=environment, stdout=subprocess.PIPE, check=True, timeout=3600
    )
    result: dict[str, object] = json.loads(done.stdout.decode().strip().splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each side")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn; the first is not counted")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.child:
        folder, steps = arguments.child
        print(json.dumps(ours(Path(folder), int(steps))))
        return
    peer = os.environ.get("TRL_PYTHON", "")
    sides = {"ours": [sys.executable, "-m", "tests.bench.trainer", "--child"]}
    if peer:
        sides["trl"] = [peer, "-m", "tests.bench.trainer_trl"]
    seconds: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        make_policy(Path(folder))
        for _ in range(arguments.rounds):
            for name, command in sides.items():
                got = child(command, Path(folder), arguments.steps)
                memory.setdefault(name, []).append(float(got["mib"]))  # type: ignore[arg-type]
                for part in ("step", "generate"):
                    seconds.setdefault(f"{name}_{part}", []).extend(got[part][1:])  # type: ignore[index]
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    result = {f"{name}_cpu_s": round(value, 3) for name, value in middle.items() if name.startswith("ours")}
    peers = {f"{name}_cpu_s": round(value, 3) for name, value in middle.items() if name.startswith("trl")}
    result["ours_mib"] = round(max(memory["ours"]))
    if peer:
        peers["trl_mib"] = round(max(memory["trl"]))
        result["ratio_to_trl"] = round(middle["trl_step"] / middle["ours_step"], 2)
        result["memory_ratio_to_trl"] = round(max(memory["ours"]) / max(memory["trl"]), 3)
    goals: dict[str, report.Goal] = {"ratio_to_trl": (">=", 3.0), "memory_ratio_to_trl": ("<=", 0.7)}
    why = "" if peer else "TRL_PYTHON names no interpreter with trl"
    report.emit("trainer", result, goals=goals, peers=peers, conditions={"trl_skipped": why, "rows": MICRO_ROWS})


if __name__ == "__main__":
    main()
