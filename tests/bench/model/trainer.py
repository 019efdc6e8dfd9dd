"""A whole step of reinforcement learning (generate, reward, learn, new weights) beside TRL's GRPOTrainer.

`make bench NAME=trainer`. TRL 1.16.0 runs under an interpreter of its own, since it is no dependency of the product: the one
that `TRL_PYTHON` names, or `.data/trl`, which the bench makes at its first run (it installs trl beside this project's packages).

Same policy (Qwen3, 4 layers of 256, vocabulary 4096, random weights, fp32), same prompts (8, of 64 tokens), 8 samples each,
128 new tokens, temperature 1, no KL, rewards minus their mean, token sum by a constant, AdamW, gradients clipped. TRL runs
at its best setting on a CPU: bf16 autocast, micro-batches of 16 rows, `generate`. Ours computes the training in bf16
autocast as well and generates in fp32 with the embedded engine in the same process.

Each side is a process of its own with one thread; their turns alternate. Times are CPU seconds of the process, medians
over steps without the first; memory is the largest resident size of the process, while it loads too. A turn that takes longer
than --seconds is ended, and the steps that it finished count. On a GPU: `gpu.py`.
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
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from tests.bench import report
from tests.bench.model.trainer_step import RATE, STEP, Sizes, Teller, prompts_of, reward

if TYPE_CHECKING:
    from trainer.inference.embedded.runner import Runner
    from trainer.types import TrainGroup

REPOSITORY = Path(__file__).parents[3]
PEER = REPOSITORY / ".data" / "trl"
TRL = "trl==1.16.0"


def ours(folder: Path, steps: int, sizes: Sizes) -> None:
    """The steps of this project's parts, in this process."""
    from trainer.config import ObjectiveConfig, OptimizerConfig
    from trainer.inference.embedded.factory import build_decoder, build_weights, read_shape
    from trainer.inference.embedded.runner import Limits, Runner, make_cache
    from trainer.learning.backend import SingleProcess
    from trainer.learning.importance_sampling import correction_of
    from trainer.learning.kernels.prefix_sharing import supports_prefix_sharing
    from trainer.learning.packing import pack
    from trainer.learning.step import Learner, work_of

    device = torch.device(sizes.device)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = prompts_of(tokenizer, sizes, steps)
    longest = max(len(tokenizer(text)["input_ids"]) for text in texts) + sizes.new
    rows = sizes.prompts * sizes.group
    objective = ObjectiveConfig(loss_divisor=float(rows * sizes.new))
    learner = Learner(
        model,
        objective=objective,
        correction=correction_of(objective),
        optimizer=OptimizerConfig(learning_rate=RATE, warmup_steps=0, decay_start=1.0),
        temperature=1.0,
        total_steps=steps,
        micro_batch_tokens=sizes.rows * longest,
        backend=SingleProcess(precision=sizes.precision),
    )
    shape = read_shape(folder)
    limits = Limits(max_num_seqs=rows, max_context=-(-longest // 128) * 128, kv_bytes=1 << 50)
    runner = Runner(limits)
    decoder = build_decoder(shape, learner.weights(), limits.max_context, device=device)
    runner.install(decoder, make_cache(decoder, limits), 0)
    teller = Teller(device)
    for step in range(1, steps + 1):
        began = teller.now()
        asked = [tokenizer(text)["input_ids"] for text in texts[(step - 1) * sizes.prompts : step * sizes.prompts]]
        groups = groups_of(runner, asked, sizes, step)
        generated = teller.now()
        values = learner.train(groups, step=step)
        trained = teller.now()
        runner.swap(build_weights(shape, learner.weights(), device=device), step)
        ended = teller.now()
        teller.saw(values.get("memory/trainer", 0.0))  # the learner asked for the peak so far, and so began a new one
        samples = [sample for group in groups for sample in group.samples if any(sample.advantages)]
        batches = pack(samples, max_tokens=learner.micro_batch_tokens)
        work = work_of(samples, batches, shared=supports_prefix_sharing(model))
        teller.say(
            ended - began,
            generated - began,
            weights=ended - trained,
            tokens=sum(len(sample.tokens) for group in groups for sample in group.samples),
            computed=work.tokens,
            predicted=work.predicted,
            pairs=work.pairs,
        )


def groups_of(runner: Runner, asked: Sequence[list[int]], sizes: Sizes, step: int) -> list[TrainGroup]:
    """The engine's answers to the prompts of a step, as the learner takes them."""
    from trainer.algorithms.advantage import group_advantages
    from trainer.inference.contract import GenerateRequest, GenerateResponse
    from trainer.inference.embedded.request import Job
    from trainer.types import TrainGroup, TrainSample

    assert runner.decoder is not None
    experts_from = 0 if runner.decoder.routed else None
    answers: list[GenerateResponse] = []
    jobs = []
    for number in range(sizes.prompts * sizes.group):
        request = GenerateRequest(
            prompt_ids=asked[number // sizes.group],
            max_tokens=sizes.new,
            seed=step * 1000 + number,
            experts_from=experts_from,
        )
        jobs.append(Job(request, time.monotonic() + 3600, answers.append))  # type: ignore[arg-type]
        runner.submit(jobs[-1])
    while len(answers) < len(jobs):
        runner.step()
    groups = []
    for index in range(sizes.prompts):
        members = jobs[index * sizes.group : (index + 1) * sizes.group]
        rewards = [reward(job.token_ids) for job in members]
        samples = [
            TrainSample(
                tokens=[*job.prompt, *job.token_ids],
                loss_mask=[0] * len(job.prompt) + [1] * sizes.new,
                sampler_logprobs=[0.0] * len(job.prompt) + job.logprobs,
                advantages=[0.0] * len(job.prompt) + [advantage] * sizes.new,
                experts=job.experts,
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
    return groups


def make_policy(folder: Path, model: PreTrainedModel) -> None:
    """The policy of both sides, with the shipped tokenizer (whose ids are a part of its vocabulary)."""
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(REPOSITORY / "policies" / "base").save_pretrained(folder)


def child(
    command: Sequence[str], folder: Path, steps: int, seconds: float, sizes: Sizes = Sizes()
) -> list[dict[str, float]]:
    """What a side says of each of its steps. Raises CalledProcessError, ValueError (no two steps within `seconds`)."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(REPOSITORY)}
    environment |= {"OMP_NUM_THREADS": str(sizes.threads)} if sizes.threads else {}
    whole = [*command, str(folder), str(steps), sizes.text()]
    try:
        output = subprocess.run(whole, env=environment, stdout=subprocess.PIPE, check=True, timeout=seconds).stdout
    except subprocess.TimeoutExpired as ended:
        output = ended.stdout or b""
    said = [json.loads(line) for line in output.decode().splitlines() if line.startswith(STEP)]
    if len(said) < 2:
        raise ValueError(
            f"{' '.join(command[1:])} made {len(said)} steps in {seconds:.0f} s, and the first does not count; raise --seconds"
        )
    return said


def peer_python() -> tuple[str, str]:
    """An interpreter that has TRL, made if there is none; or "", and why."""
    if named := os.environ.get("TRL_PYTHON"):
        return named, ""
    python, why = environment_of(PEER, TRL)
    return python, f"{why}; name an interpreter that has it with TRL_PYTHON" if why else ""


def environment_of(home: Path, *packages: str) -> tuple[str, str]:
    """An interpreter with these packages beside the product's, made if there is none; or "", and why."""
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=120)
            [own] = home.glob("lib/python*/site-packages")
            (own / "product.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
            install = [str(python), "-m", "pip", "install", "-q", *packages]
            subprocess.run(install, check=True, timeout=900, stdout=sys.stderr)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            return "", f"{' '.join(packages)} could not be installed ({error})"
        (home / "complete").touch()
    return str(python), ""


def sides_of(peer: str) -> dict[str, list[str]]:
    """How each side is started; TRL's where there is an interpreter for it."""
    sides = {"ours": [sys.executable, "-m", "tests.bench.model.trainer", "--child"]}
    return sides | ({"trl": [peer, "-m", "tests.bench.model.trainer_trl"]} if peer else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each side")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn; the first is not counted")
    parser.add_argument("--seconds", type=float, default=600.0, help="wall time of a turn")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        folder, steps, text = arguments.child
        sizes = Sizes.read(text)
        if sizes.threads:
            torch.set_num_threads(sizes.threads)
        ours(Path(folder), int(steps), sizes)
        return
    torch.set_num_threads(1)
    peer, why = peer_python()
    sides = sides_of(peer)
    said: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        from tests.bench.model.engine import bigger

        make_policy(Path(folder), bigger())
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
    conditions = {"trl_skipped": why, "trl_rows": Sizes().trl_rows, "steps": counted}
    report.emit("trainer", result, goals=goals, peers=peers, conditions=conditions)


if __name__ == "__main__":
    main()
