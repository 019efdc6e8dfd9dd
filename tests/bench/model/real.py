"""A real pretrained policy (SmolLM2-135M-Instruct) on a CPU: the engine, its prefix cache, training, deltas and swaps.

`make bench NAME=real [ARGS="--skip trl --seconds 60"]`, about 25 minutes on two idle cores. fp32 and one torch thread
throughout, CPU seconds of the process, so that other work on the machine counts as little as it can.

`ratio_<prompt>x<rows>`: generated tokens per CPU second, prompts included, the engine's to the library's `generate` on the same
prompt, one after the other in each cell. Rows are samples of one prompt, as in a group of GRPO: the engine computes the
prompt once. `generate` takes as many rows a call as 12,288 prompt tokens allow, and begins no further call of a cell after
--seconds; `generate_rows_…` says how many rows it made. `prefill_ratio_<prompt>`: prompt tokens per CPU second of one prompt,
without generation, to those of the library's forward pass (`generate_prefill_…`). `prefix_hit`: share of prompt tokens that
were cached, over four turns of 64 sessions with a system prompt. `k3_bf16`: the trainer's own mismatch at staleness 0, against
samples of the weights that it publishes in bf16. `train_ratio_to_trl`, `train_memory_ratio_to_trl`: a whole GRPO step
(`trainer.py`). `delta_ratio_to_arcv3`: bytes of a published delta after real steps of AdamW at 1e-6 and 3e-5, the worse of both.
`swap_pause_ms`: how long generation stands still. `older_checkpoint_ratio_…`: what the weights of a checkpoint take as a
difference against the next one, ten such steps later, by their size.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch

from tests.bench import report
from tests.bench.model.real_policy import smollm2
from tests.bench.model.real_speed import PROMPTS, ROWS, Cell, Engine, against_generate, prefill, sessions
from tests.bench.model.real_weights import after_steps, deltas, swap
from tests.bench.model.trainer import child, peer_python, sides_of
from tests.bench.model.trainer_step import Sizes

PARTS = ("generate", "prefill", "sessions", "trl", "weights")
STEP = Sizes(prompts=2, group=8, prompt_tokens=256, new=64, rows=4, trl_rows=4, precision="float32")
GOALS: dict[str, report.Goal] = {
    "engine_ratio_to_generate_min": (">=", 2.0),
    "prefix_hit": (">=", 0.9),
    "k3_bf16": ("<=", 1e-4),
    "train_ratio_to_trl": (">=", 1.5),
    "train_memory_ratio_to_trl": ("<=", 0.8),
    "delta_ratio_to_arcv3": ("<=", 0.45),
    "swap_pause_ms": ("<=", 50.0),
}


def whole_steps(folder: Path, seconds: float) -> tuple[dict[str, float], str]:
    """A GRPO step of both sides, and why TRL's is missing where it is."""
    peer, why = peer_python()
    steps = {name: child(command, folder, 3, seconds, STEP)[1:] for name, command in sides_of(peer).items()}
    middle = {name: statistics.median(step["step"] for step in found) for name, found in steps.items()}
    memory = {name: max(step["mib"] for step in found) for name, found in steps.items()}
    metrics = {f"step_cpu_s_{name}": value for name, value in middle.items()}
    metrics |= {f"step_mib_{name}": value for name, value in memory.items()}
    if "trl" in middle:
        metrics["train_ratio_to_trl"] = middle["trl"] / middle["ours"]
        metrics["train_memory_ratio_to_trl"] = memory["ours"] / memory["trl"]
    return metrics, why


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--prompts", default=",".join(map(str, PROMPTS)), help="tokens of the prompts")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)), help="rows at a time")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="CPU seconds after which a cell's peer begins no call"
    )
    parser.add_argument("--kv-mib", type=int, default=2048, help="the engine's KV cache")
    parser.add_argument("--skip", default="", help=f"parts to leave out: {','.join(PARTS)}")
    arguments = parser.parse_args()
    skipped = set(filter(None, arguments.skip.split(",")))
    if unknown := skipped - set(PARTS):
        parser.error(f"--skip knows {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    folder = smollm2()
    metrics: dict[str, float] = {}
    missing: dict[str, str] = {}
    if "generate" not in skipped:
        cells = [
            Cell(p, r) for p in map(int, arguments.prompts.split(",")) for r in map(int, arguments.rows.split(","))
        ]
        metrics |= against_generate(folder, Engine(folder, arguments.kv_mib << 20), cells, arguments.seconds)
        metrics["engine_ratio_to_generate_min"] = min(metrics[f"ratio_{cell.name}"] for cell in cells)
    if "prefill" not in skipped:
        lengths = [int(length) for length in arguments.prompts.split(",")]
        metrics |= prefill(folder, Engine(folder, arguments.kv_mib << 20), lengths)
    if "sessions" not in skipped:
        metrics |= sessions(Engine(folder, arguments.kv_mib << 20))
    if "weights" not in skipped:
        found, pairs = after_steps(folder)
        sizes, missing["arc_v3"] = deltas(pairs)
        metrics |= found | sizes | swap(folder, pairs["1e6"])
    if "trl" not in skipped:
        steps, missing["trl"] = whole_steps(folder, 900.0)
        metrics |= steps
    peers = {
        name: value for name, value in metrics.items() if name.startswith(("generate_", "arc_v3_")) or "_trl" in name
    }
    peers = {name: value for name, value in peers.items() if name not in GOALS}
    own = {name: float(f"{value:.4g}") for name, value in metrics.items() if name not in peers}
    goals = {name: goal for name, goal in GOALS.items() if name in metrics}
    conditions = {"dtype": "float32", "threads": 1, "skipped": sorted(skipped), "missing": missing}
    report.emit("real", own, goals=goals, peers={n: float(f"{v:.4g}") for n, v in peers.items()}, conditions=conditions)


if __name__ == "__main__":
    main()
