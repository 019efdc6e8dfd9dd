"""Weights of a real policy after steps of AdamW, for the bench `real`: mismatch, delta, swap.

`python -m tests.bench.model.real_weights BEFORE AFTER` prints the bytes that ARC v3 codes a delta to, under an interpreter
that has its package.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from transformers import AutoModelForCausalLM

from tests.bench.model.codec import ours
from tests.bench.model.codec_peers import State, arc
from tests.bench.model.trainer import REPOSITORY, environment_of, groups_of
from tests.bench.model.trainer_step import Sizes
from trainer.config import CheckpointConfig, ObjectiveConfig, OptimizerConfig
from trainer.inference.client import InferenceAdmin
from trainer.inference.contract import DeploymentSpec
from trainer.inference.embedded.factory import build_decoder, build_weights, read_shape
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.learning.backend import SingleProcess
from trainer.learning.importance_sampling import correction_of
from trainer.learning.step import Learner
from trainer.weights import WeightStore
from trainer.weights.differences import code

SIZES = Sizes(prompts=2, group=4, prompt_tokens=96, new=48, precision="float32")
RATES = {"1e6": 1e-6, "3e5": 3e-5}
"""Learning rates, by their names in metrics."""
APART = CheckpointConfig().every_steps
"""Steps between two checkpoints."""
ARC = REPOSITORY / ".data" / "arc"
ARC_PACKAGES = ("fireworks-delta-compression==0.1.0", "zstandard")


def rounded(state: Mapping[str, torch.Tensor]) -> State:
    """As published: a tied weight once."""
    kept = {tensor.data_ptr(): name for name, tensor in reversed(state.items())}
    return {name: tensor.detach().bfloat16() for name, tensor in state.items() if kept[tensor.data_ptr()] == name}


def after_steps(folder: Path) -> tuple[dict[str, float], dict[str, tuple[State, State]]]:
    """Steps of reinforcement learning at each rate on samples of the weights that are published (bf16): the trainer's own
    mismatch at staleness 0, what an older checkpoint takes as a difference, and the published weights before and after the
    second step."""
    shape = read_shape(folder)
    metrics: dict[str, float] = {}
    pairs: dict[str, tuple[State, State]] = {}
    generator = torch.Generator().manual_seed(2)
    for name, rate in RATES.items():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        objective = ObjectiveConfig(loss_divisor=float(SIZES.prompts * SIZES.group * SIZES.new))
        learner = Learner(
            model,
            objective=objective,
            correction=correction_of(objective),
            optimizer=OptimizerConfig(learning_rate=rate, warmup_steps=0, decay_start=1.0),
            temperature=1.0,
            total_steps=APART,
            micro_batch_tokens=4 * (SIZES.prompt_tokens + SIZES.new),
            backend=SingleProcess(precision="float32"),
            round_weights=True,
        )
        published = rounded(learner.weights())
        limits = Limits(max_num_seqs=SIZES.prompts * SIZES.group, max_context=256)
        runner = Runner(limits)
        decoder = build_decoder(shape, published, limits.max_context)
        runner.install(decoder, make_cache(decoder, limits), 0)
        first = published
        for step in range(1, APART + 1):
            asked = torch.randint(
                0, shape.vocab_size, (SIZES.prompts, SIZES.prompt_tokens), generator=generator
            ).tolist()
            values = learner.train(groups_of(runner, asked, SIZES, step), step=step)
            metrics["k3_bf16"] = max(metrics.get("k3_bf16", 0.0), values["mismatch/k3_mean"])
            before, published = published, rounded(learner.weights())
            runner.swap(build_weights(shape, published), step)
            if step == 2:
                pairs[name] = before, published
        metrics[f"older_checkpoint_ratio_{name}"] = as_difference(first, published)
    return metrics, pairs


def as_difference(older: State, newer: State) -> float:
    """Bytes of an older checkpoint's weights, kept as a difference, by those of the file."""
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / part / "model.safetensors" for part in ("older", "newer")]
        for file, state in zip(files, (older, newer), strict=True):
            file.parent.mkdir()
            safetensors.torch.save_file({n: tensor.contiguous().clone() for n, tensor in state.items()}, file)
        coded = code(*files)
        return coded.stat().st_size / files[0].stat().st_size if coded else 1.0


def deltas(pairs: Mapping[str, tuple[State, State]]) -> tuple[dict[str, float], str]:
    """Bytes of a delta to ARC's, and why they are missing where they are."""
    metrics: dict[str, float] = {}
    python, why = environment_of(ARC, *ARC_PACKAGES)
    for name, (before, after) in pairs.items():
        changed = sum(int((before[n].view(torch.int16) != after[n].view(torch.int16)).sum()) for n in after)
        mine = ours(before, after, "small", 1)["bytes"]
        metrics[f"changed_{name}"] = changed / sum(tensor.numel() for tensor in after.values())
        metrics[f"bytes_per_change_{name}"] = mine / max(changed, 1)
        if not python:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            files = [Path(scratch) / f"{part}.safetensors" for part in ("before", "after")]
            for file, state in zip(files, (before, after), strict=True):
                safetensors.torch.save_file({n: tensor.contiguous().clone() for n, tensor in state.items()}, file)
            command = [python, "-m", "tests.bench.model.real_weights", *map(str, files)]
            done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
        if done.returncode:
            return metrics, f"ARC v3 failed: {done.stderr.strip().splitlines()[-1]}"
        theirs = float(done.stdout.split()[-1])
        metrics[f"arc_v3_bytes_per_change_{name}"] = theirs / max(changed, 1)
        metrics["delta_ratio_to_arcv3"] = max(metrics.get("delta_ratio_to_arcv3", 0.0), mine / theirs)
    return metrics, why


def swap(folder: Path, pair: tuple[State, State]) -> dict[str, float]:
    """A served deployment follows a store while it generates: phases of the swap of one delta, milliseconds."""
    before, after = pair
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        store = WeightStore(root / "weights")
        store.publish(0, before)
        with EmbeddedServer(root / "data") as server, InferenceAdmin(server.url, timeout=300.0) as admin:
            spec = DeploymentSpec(name="policy", policy_dir=str(folder), store=str(root / "weights"), follow=True)
            admin.deploy(spec)
            generating = threading.Event()
            busy = threading.Thread(target=_generate, args=(server.url, generating), daemon=True)
            busy.start()
            generating.wait(60.0)
            store.publish(1, after)
            deadline = time.monotonic() + 300.0
            while (status := admin.deployments()[0]).version < 1:
                if time.monotonic() > deadline:
                    raise SystemExit(f"the engine did not follow within 300 s: {status.error or status.state}")
                time.sleep(0.1)
            busy.join(120.0)
    sync = status.last_sync
    assert sync is not None
    return {f"swap_{phase}_ms": 1000 * getattr(sync, phase) for phase in ("fetch", "decode", "wait", "pause")}


def _generate(url: str, begun: threading.Event) -> None:
    import asyncio

    from trainer.inference.client import HttpInferenceClient
    from trainer.inference.contract import GenerateRequest

    async def ask() -> None:
        async with HttpInferenceClient(url) as client:
            requests = [
                GenerateRequest(prompt_ids=[1 + n, 2, 3], max_tokens=256, seed=n, timeout_seconds=110.0, partial=True)
                for n in range(4)
            ]
            waiting = asyncio.gather(*(client.generate(request) for request in requests))
            await asyncio.sleep(0.5)
            begun.set()
            await waiting

    asyncio.run(ask())


def main() -> None:
    import fireworks_delta_compression as package

    before, after = (safetensors.torch.load_file(file) for file in sys.argv[1:3])
    print(arc(package, before, after, "arc_v3", 1).bytes)


if __name__ == "__main__":
    main()
