"""A whole step of reinforcement learning (generate, reward, learn, new weights) beside TRL's GRPOTrainer.

`make bench NAME=trainer`. TRL 1.16.0 runs under an interpreter of its own, since it is no dependency of the product: the one
that `TRL_PYTHON` names, or `.data/trl`, which the bench makes at its first run (it installs trl beside this project's packages).

Same policy (Qwen3, 4 layers of 256, vocabulary 4096, random weights, fp32), same prompts (8, of 64 tokens), 8 samples each,
128 new tokens, temperature 1, no KL, rewards minus their mean, token sum by a constant, AdamW, gradients clipped. TRL runs
at its best setting on a CPU: bf16 autocast, micro-batches of 16 rows, `generate`. Ours computes the training in bf16
autocast as well and generates in fp32 with the embedded engine in the same process.

Each side is a process of its own with one thread; their turns alternate. Times are CPU seconds of the process, medians
over steps without the first; memory is the largest resident size of the process. A turn that takes longer than --seconds
is ended, and the steps that it finished count.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.bench import report
from tests.bench.trainer_step import GROUP, NEW, PROMPTS, RATE, STEP, TRL_ROWS, prompts_of, reward, say

REPOSITORY = Path(__file__).parents[2]
PEER = REPOSITORY / ".data" / "trl"
TRL = "trl==1.16.0"


def ours(folder: Path, steps: int) -> None:
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
    texts = prompts_of(tokenizer, steps)
    longest = max(len(tokenizer(text)["input_ids"]) for text in texts)
    objective = ObjectiveConfig(loss_divisor=float(PROMPTS * GROUP * NEW))
    learner = Learner(
        model,
        objective=objective,
        correction=correction_of(objective),
        optimizer=OptimizerConfig(learning_rate=RATE, warmup_steps=0, decay_from=1.0),
        temperature=1.0,
        total_steps=steps,
        micro_batch_tokens=GROUP * (longest + NEW),  # a group
        precision="bfloat16",
    )
    shape = DecoderShape.read(folder)
    limits = Limits(max_slots=PROMPTS * GROUP, max_context=256)
    runner = Runner(limits)
    decoder = build_decoder(shape, learner.weights(), limits.max_context)
    runner.install(decoder, make_cache(decoder, limits), 0)
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
        generated = time.process_time()
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
        say(time.process_time() - began, generated - began)


def make_policy(folder: Path) -> None:
    """The policy of both sides, with the shipped tokenizer (whose ids are a part of its vocabulary)."""
    from tests.bench.engine import bigger

    model = bigger()
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(REPOSITORY / "policies" / "base").save_pretrained(folder)


def child(command: Sequence[str], folder: Path, steps: int, seconds: float) -> list[dict[str, float]]:
    """What a side says of each of its steps. Raises CalledProcessError, ValueError (no two steps within `seconds`)."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(REPOSITORY)}
    whole = [*command, str(folder), str(steps)]
    try:
        output = subprocess.run(whole, env=environment, stdout=subprocess.PIPE, check=True, timeout=seconds).stdout
    except subprocess.TimeoutExpired as ended:
        output = ended.stdout or b""
    said = [json.loads(line) for line in output.decode().splitlines() if line.startswith(STEP)]
    if len(said) < 2:
        raise ValueError(
            f"{command[-1]} made {len(said)} steps in {seconds:.0f} s, and the first does not count; raise --seconds"
        )
    return said


def peer_python() -> tuple[str, str]:
    """An interpreter that has TRL, made if there is none; or "", and why."""
    if named := os.environ.get("TRL_PYTHON"):
        return named, ""
    python = PEER / "bin" / "python"
    if not (PEER / "complete").exists():
        shutil.rmtree(PEER, ignore_errors=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True, timeout=120)
            [packages] = PEER.glob("lib/python*/site-packages")
            (packages / "product.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
            subprocess.run([str(python), "-m", "pip", "install", "-q", TRL], check=True, timeout=900, stdout=sys.stderr)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            return "", f"{TRL} could not be installed ({error}); name an interpreter that has it with TRL_PYTHON"
        (PEER / "complete").touch()
    return str(python), ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each side")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn; the first is not counted")
    parser.add_argument("--seconds", type=float, default=600.0, help="wall time of a turn")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.child:
        folder, steps = arguments.child
        ours(Path(folder), int(steps))
        return
    peer, why = peer_python()
    sides = {"ours": [sys.executable, "-m", "tests.bench.trainer", "--child"]}
    if peer:
        sides["trl"] = [peer, "-m", "tests.bench.trainer_trl"]
    said: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        make_policy(Path(folder))
        for _ in range(arguments.rounds):
            for name, command in sides.items():
                said[name] += child(command, Path(folder), arguments.steps, arguments.seconds)[1:]
    middle = {
        f"{name}_{part}": statistics.median(step[part] for step in steps)
        for name, steps in said.items()
        for part in ("step", "generate")
    }
    memory = {name: max(step["mib"] for step in steps) for name, steps in said.items()}
    result = {f"{name}_cpu_s": round(value, 3) for name, value in middle.items() if name.startswith("ours")}
    peers = {f"{name}_cpu_s": round(value, 3) for name, value in middle.items() if name.startswith("trl")}
    result["ours_mib"] = round(memory["ours"])
    if peer:
        peers["trl_mib"] = round(memory["trl"])
        result["ratio_to_trl"] = round(middle["trl_step"] / middle["ours_step"], 2)
        result["memory_ratio_to_trl"] = round(memory["ours"] / memory["trl"], 3)
    goals: dict[str, report.Goal] = {"ratio_to_trl": (">=", 3.0), "memory_ratio_to_trl": ("<=", 0.7)}
    counted = {name: len(steps) for name, steps in said.items()}
    conditions = {"trl_skipped": why, "trl_rows": TRL_ROWS, "steps": counted}
    report.emit("trainer", result, goals=goals, peers=peers, conditions=conditions)


if __name__ == "__main__":
    main()
