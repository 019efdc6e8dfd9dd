"""On a CUDA GPU: whole trainer steps beside TRL's GRPOTrainer, what share of the GPU's peak they use, and the delta codec.

`make bench NAME=gpu`. Without a GPU it says so and fails; `make bench NAME=gpu DEVICE=cpu PEAK_TFLOPS=0.1` runs all of it on
a CPU with tiny sizes, which shows that it works and nothing about speed. A GPU that `PEAKS` does not know needs `PEAK_TFLOPS`:
its dense products in bf16, without sparsity, by its data sheet.

Both sides are those of `make bench NAME=trainer`, on a dense Qwen3 of 0.6 B weights and a Qwen3-MoE of 1.1 B with 4 of 32
experts a token, made from a configuration with random weights: same weights, prompts and samples, fp32 weights with bf16
autocast, micro-batches of as many rows. Ours generates with the embedded engine (fp32; products run vLLM beside the trainer), so
`train` is what to compare without an engine, and `step` all of it: generate, reward, learn, exchange the engine's weights.

    MFU = FLOPs that the step needs / (seconds × peak)

FLOPs are counted as in PaLM (Chowdhery et al. 2022, appendix B): 2 a weight and token forward and 4 backward, of experts
those that a token is sent to, and the two products of attention; but attention is counted causally, the vocabulary only where
it is predicted, and tokens that rows have in common once where they are computed once (`trainer/learning/flops.py`, held
against torch's own count in `tests/trainer/learning/test_flops.py`). `mfu_step` adds generation's forward pass of the same
tokens. Tokens a second are those of all rows, prompts included, on both sides alike.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, Qwen3Config, Qwen3MoeConfig

from tests.bench import report
from tests.bench.model import gpu_codec
from tests.bench.model.trainer import child, make_policy, peer_python, sides_of
from tests.bench.model.trainer_step import Sizes
from trainer.learning.flops import Shape, Tokens, shape_of

PEAKS = {
    r"\bB200\b": 2250.0,
    r"\bH200 NVL\b": 835.5,
    r"\b(H200|GH200)\b": 989.4,
    r"\bH100 NVL\b": 835.5,
    r"\bH100 PCIe\b": 756.0,
    r"\bH100\b": 989.4,
    r"\bA100\b": 312.0,
    r"\bL40S\b": 362.0,
    r"\bL4\b": 121.0,
    r"\bA40\b": 149.7,
    r"\bA10\b": 125.0,
}
"""Dense bf16 TFLOP/s without sparsity by the data sheets, by what the driver calls the GPU; the first that fits."""

SEED = 0
QWEN: dict[str, Any] = {"tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None}
FULL: dict[str, PretrainedConfig] = {
    "dense": Qwen3Config(
        **QWEN,
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=4096,
    ),
    "moe": Qwen3MoeConfig(
        **QWEN,
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        moe_intermediate_size=512,
        num_experts=32,
        num_experts_per_tok=4,
        norm_topk_prob=True,
        num_hidden_layers=16,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=4096,
    ),
}
SMALL: dict[str, Any] = {
    **QWEN,
    "vocab_size": 4608,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
}
TINY: dict[str, PretrainedConfig] = {
    "dense": Qwen3Config(**SMALL),
    "moe": Qwen3MoeConfig(**SMALL, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True),
}
GOALS: dict[str, report.Goal] = {
    f"{model}_{name}": goal
    for model in FULL
    for name, goal in (("ratio_to_trl", (">=", 1.0)), ("memory_ratio_to_trl", ("<=", 1.0)))
}


def peak_of(name: str, given: str | None) -> float:
    """FLOPs a second of the GPU of that name, or what was given in TFLOP/s. Raises ValueError."""
    if given:
        try:
            found = float(given)
        except ValueError:
            found = 0.0
        if not 0 < found < float("inf"):
            raise ValueError(f"PEAK_TFLOPS={given} is no number above 0; give the data sheet's dense bf16 TFLOP/s")
        return found * 1e12
    for pattern, peak in PEAKS.items():
        if re.search(pattern, name):
            return peak * 1e12
    raise ValueError(f"the peak of {name!r} is not known here; give its dense bf16 TFLOP/s as PEAK_TFLOPS=…")


def work_of(step: Mapping[str, float]) -> Tokens:
    return Tokens(int(step["computed"]), int(step["predicted"]), int(step["pairs"]))


def figures(steps: Sequence[Mapping[str, float]], shape: Shape, peak: float) -> dict[str, float]:
    """Figures of one side: medians over its steps, and its peak memory."""

    def middle(of: Sequence[float]) -> float:
        return float(f"{statistics.median(of):.4g}")

    train = [step["step"] - step["generate"] - step.get("weights", 0.0) for step in steps]
    # Generation is one more forward pass of the same tokens, which is what a reference costs.
    whole = [shape.flops(work_of(step), reference=True) for step in steps]
    learned = [shape.flops(work_of(step)) for step in steps]
    out = {
        "step_s": middle([step["step"] for step in steps]),
        "generate_s": middle([step["generate"] for step in steps]),
        "train_s": middle(train),
        "tokens_per_s": middle([step["tokens"] / step["step"] for step in steps]),
        "train_tokens_per_s": middle([step["tokens"] / seconds for step, seconds in zip(steps, train, strict=True)]),
        "mfu_step": middle([flops / step["step"] / peak for flops, step in zip(whole, steps, strict=True)]),
        "mfu_train": middle([flops / seconds / peak for flops, seconds in zip(learned, train, strict=True)]),
        "mib": max(step["mib"] for step in steps),
    }
    if all("weights" in step for step in steps):
        out["weights_s"] = middle([step["weights"] for step in steps])
    return out


def model_of(config: PretrainedConfig) -> PreTrainedModel:
    torch.manual_seed(SEED)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model.eval()


def beside_trl(
    config: PretrainedConfig, sizes: Sizes, peer: str, peak: float, *, rounds: int, steps: int, seconds: float
) -> dict[str, dict[str, float]]:
    """Figures of each side; their turns alternate. Raises CalledProcessError, ValueError."""
    sides = sides_of(peer)
    said: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        model = model_of(config)
        shape = shape_of(model)
        make_policy(Path(folder), model)
        del model
        for _ in range(rounds):
            for name, command in sides.items():
                said[name] += child(command, Path(folder), steps, seconds, sizes)[1:]
    return {name: figures(found, shape, peak) for name, found in said.items()}


def machine_of(device: torch.device) -> dict[str, object]:
    """What the JSON line says of the GPU."""
    if device.type == "cpu":
        return {"gpu": None}
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[0]
    return {"gpu": torch.cuda.get_device_name(device), "driver": driver, "cuda": torch.version.cuda}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each side")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn; the first is not counted")
    parser.add_argument("--seconds", type=float, default=1800.0, help="wall time of a turn")
    parser.add_argument("--repeats", type=int, default=5, help="of each measurement of the codec")
    parser.add_argument("--alone", action="store_true", help="without TRL")
    arguments = parser.parse_args()
    wanted = os.environ.get("DEVICE") or "cuda"
    if wanted not in ("cuda", "cpu"):
        sys.exit(f"DEVICE={wanted} is neither cuda nor cpu.")
    if wanted == "cuda" and not torch.cuda.is_available():
        sys.exit("This machine has no CUDA GPU that torch can use; DEVICE=cpu PEAK_TFLOPS=… runs it with tiny sizes.")
    device = torch.device(wanted)
    machine = machine_of(device)
    try:
        peak = peak_of(str(machine["gpu"] or "this CPU"), os.environ.get("PEAK_TFLOPS"))
    except ValueError as error:
        sys.exit(str(error))
    configs, words, sizes = FULL, 1 << 28, Sizes(8, 8, 512, 512, rows=8, trl_rows=8, device="cuda", threads=0)
    if wanted == "cpu":
        configs, words, sizes = TINY, 1 << 16, Sizes(2, 4, 12, 8, rows=4, trl_rows=4)
    peer, why = ("", "--alone") if arguments.alone else peer_python()
    metrics: dict[str, float] = {"peak_tflops": peak / 1e12}
    peers: dict[str, float] = {}
    for model, config in configs.items():
        found = beside_trl(
            config,
            sizes,
            peer,
            peak,
            rounds=arguments.rounds,
            steps=arguments.steps,
            seconds=arguments.seconds,
        )
        metrics |= {f"{model}_{name}": value for name, value in found["ours"].items()}
        if "trl" in found:
            peers |= {f"trl_{model}_{name}": value for name, value in found["trl"].items()}
            metrics |= {f"{model}_{name}": value for name, value in ratios(**found).items()}
    metrics |= gpu_codec.measure(words, device, arguments.repeats)
    report.emit(
        "gpu",
        metrics,
        goals={name: goal for name, goal in GOALS.items() if name in metrics},
        peers=peers,
        conditions={
            **machine,
            "torch": torch.__version__,
            "clock": "CPU seconds" if wanted == "cpu" else "wall time, GPU synchronised",
            "sizes": sizes.text(),
            "steps": arguments.rounds * (arguments.steps - 1),
            "codec_words": words,
            "trl_skipped": why,
        },
    )


def ratios(ours: Mapping[str, float], trl: Mapping[str, float]) -> dict[str, float]:
    """Above 1: ours is faster; for memory: ours needs more."""
    return {
        "ratio_to_trl": round(ours["tokens_per_s"] / trl["tokens_per_s"], 3),
        "train_ratio_to_trl": round(ours["train_tokens_per_s"] / trl["train_tokens_per_s"], 3),
        "memory_ratio_to_trl": round(ours["mib"] / trl["mib"], 3),
    }


if __name__ == "__main__":
    main()
