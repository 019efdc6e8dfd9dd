"""Weight deltas between consecutive checkpoints of a model that is really trained, against other codecs.

A byte-level transformer is trained on the standard library's source with AdamW (fp32 master), then stepped at the
learning rates of reinforcement learning; the bf16 casts of two consecutive steps are what is coded. All codecs get the
same tensors in the same run. Speeds are full bf16 bytes per second of process CPU time in one thread (decoding into
memory that is there already), medians over repeats, so that other work on the machine counts as little as it can.

The peer package is the extra `bench` (pip install 'opencomposer[bench]'); without it, its figures are left out.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.bench import report
from tests.bench.model.codec_peers import ARC_FORMS, Coo, State, against, arc, cpu_seconds, measure, xor_zstd
from trainer.weights import Subscriber, WeightStore, codec
from trainer.weights.blocks import gather, layout
from trainer.weights.codec import FORMATS, MODES, Mode
from trainer.weights.patch import between

FORM = FORMATS["bfloat16"]
RATES = {"1e6": 1e-6, "3e6": 3e-6}
WINDOW = 64
GOALS: dict[str, report.Goal] = {
    "ratio_to_arcv3_small": ("<=", 0.70),
    "ratio_to_xor_zstd_small": ("<=", 0.5),
    "encode_mb_s_small": (">=", 150.0),
    "decode_mb_s_small": (">=", 300.0),
    "ratio_to_arcv3_fast": ("<=", 0.8),
    "encode_mb_s_fast": (">=", 1500.0),
    "decode_mb_s_fast": (">=", 4000.0),
    "ratio_to_dense_most_changed": ("<=", 1.0),
    "ratio_to_arcv3_small_large": ("<=", 0.70),
    "ratio_to_arcv3_fast_large": ("<=", 0.8),
    "apply_share": ("<=", 0.10),
}


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 64
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x_btd: torch.Tensor) -> torch.Tensor:
        batch, length, width = x_btd.shape
        fused = self.qkv(functional.rms_norm(x_btd, (width,)))
        q, k, v = fused.view(batch, length, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x_btd = x_btd + self.out(mixed.reshape(x_btd.shape))
        return x_btd + self.down(functional.silu(self.up(functional.rms_norm(x_btd, (width,)))))


class Bytes(nn.Module):
    """Predicts the next byte."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.place = nn.Embedding(WINDOW, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.head = nn.Linear(width, 256, bias=False)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def forward(self, ids_bt: torch.Tensor) -> torch.Tensor:
        x_btd = self.embed(ids_bt) + self.place.weight
        for layer in self.layers:
            x_btd = layer(x_btd)
        return self.head(functional.rms_norm(x_btd, (x_btd.shape[-1],)))


def checkpoints(width: int, depth: int, warm: int) -> tuple[dict[str, tuple[State, State]], float]:
    """Two consecutive bf16 states for each learning rate, and the last loss."""
    torch.manual_seed(0)
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:80]
    text = torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8).long()
    model = Bytes(width, depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)

    def step(rate: float) -> float:
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(0, len(text) - WINDOW - 1, (4,)).tolist()
        rows = torch.stack([text[at : at + WINDOW + 1] for at in starts])
        loss = functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    def snapshot() -> State:
        return {name: tensor.detach().bfloat16() for name, tensor in model.state_dict().items()}

    loss = 0.0
    for index in range(warm):
        loss = step(1e-3 * min(1.0, (index + 1) / 10))
    found = {}
    for name, rate in RATES.items():
        for _ in range(4):
            step(rate)
        before = snapshot()
        loss = step(rate)
        found[name] = (before, snapshot())
    return found, loss


def flat(state: State) -> list[np.ndarray]:
    return [tensor.reshape(-1).view(torch.uint8).numpy() for tensor in state.values()]


def ours(before: State, after: State, mode: Mode, repeats: int) -> dict[str, float]:
    """Bytes and speeds over the blocks that a publisher would make."""
    old, new = flat(before), flat(after)
    blocks = layout([("bfloat16", data.size // 2) for data in new])
    pairs = [(gather(block, old, 2), gather(block, new, 2)) for block in blocks]
    coded = [codec.encode(a, b, FORM, mode) for a, b in pairs]
    outs = [np.zeros_like(b) for _, b in pairs]

    def decode() -> None:
        for (a, _), payload, out in zip(pairs, coded, outs, strict=True):
            codec.decode(a, payload, FORM, out)

    decode()
    assert all(np.array_equal(out, b) for (_, b), out in zip(pairs, outs, strict=True))
    total = sum(data.size for data in new)
    return {
        "bytes": float(sum(map(len, coded))),
        "encode_mb_s": total / 1e6 / cpu_seconds(lambda: [codec.encode(a, b, FORM, mode) for a, b in pairs], repeats),
        "decode_mb_s": total / 1e6 / cpu_seconds(decode, repeats),
    }


def sync(before: State, after: State, repeats: int) -> dict[str, float]:
    """CPU seconds of one whole sync through a folder, and the share of what happens under the pause."""
    phases: dict[str, list[float]] = {"fetch_decode_proof": [], "stage": [], "apply": []}
    with tempfile.TemporaryDirectory() as folder:
        store = WeightStore(folder)
        store.publish(0, before)
        store.publish(1, after)
        for _ in range(repeats):
            follower = Subscriber(store.versions)
            first = follower.fetch(0)
            assert first is not None
            follower.commit(first)
            live = first.mirror.state()
            marks = [time.process_time()]
            second = follower.fetch(1)
            assert second is not None and second.kind == "delta"
            marks.append(time.process_time())
            patch = between(first.mirror, second.mirror)
            marks.append(time.process_time())
            patch.apply(live)
            marks.append(time.process_time())
            assert all(torch.equal(live[name].view(torch.int16), after[name].view(torch.int16)) for name in after)
            for phase, (begin, end) in zip(phases.values(), itertools.pairwise(marks), strict=True):
                phase.append(end - begin)
    medians = {name: statistics.median(seconds) for name, seconds in phases.items()}
    return medians | {"apply_share": medians["apply"] / sum(medians.values())}


def most_changed(before: State) -> float:
    """Ours to dense XOR + zstd, where nearly every word changes: the larger of both modes."""
    generator = torch.Generator().manual_seed(5)
    after = {
        n: (t.float() * (1 + 0.02 * torch.randn(t.shape, generator=generator))).bfloat16() for n, t in before.items()
    }
    dense = xor_zstd(before, after, 1).bytes
    return max(ours(before, after, mode, 1)["bytes"] / dense for mode in MODES)


def one_large_tensor(package: Any, words: int, repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    """Ours beside ARC v3 on a single synthetic tensor of normal weights after a step of Adam's size; the worse rate."""
    generator = torch.Generator().manual_seed(2)
    weights = 0.02 * torch.randn(words // 2048, 2048, generator=generator)
    metrics: dict[str, float] = {}
    peers: dict[str, float] = {}
    for name, rate in RATES.items():
        moved = weights - rate * 0.23 * torch.randn(weights.shape, generator=generator)
        before, after = {"w": weights.bfloat16()}, {"w": moved.bfloat16()}
        theirs = arc(package, before, after, "arc_v3", 1).bytes if package is not None else 0.0
        peers[f"arc_v3_bytes_large_{name}"] = theirs
        for mode in MODES:
            mine = ours(before, after, mode, repeats)
            for speed in ("encode_mb_s", "decode_mb_s"):
                metrics[f"{speed}_{mode}_large_{name}"] = mine[speed]
            if package is not None:
                worst = max(metrics.get(f"ratio_to_arcv3_{mode}_large", 0.0), mine["bytes"] / theirs)
                metrics[f"ratio_to_arcv3_{mode}_large"] = worst
    return metrics, peers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--warm", type=int, default=40, help="steps at training rates before the measured ones")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--large", type=int, default=1 << 22, help="words of the synthetic tensor")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found, loss = checkpoints(arguments.width, arguments.depth, arguments.warm)
    try:
        import fireworks_delta_compression as package
    except ImportError as error:
        package = None
        print(f"ARC is left out: {error}; pip install 'opencomposer[bench]'", flush=True)
    metrics: dict[str, float] = {}
    peers: dict[str, float] = {}
    for name, (before, after) in found.items():
        words = sum(tensor.numel() for tensor in after.values())
        changed = sum(int((before[n].view(torch.int16) != after[n].view(torch.int16)).sum()) for n in after)
        others = {
            "coo": measure(Coo(), before, after, arguments.repeats),
            "xor_zstd": xor_zstd(before, after, arguments.repeats),
        }
        if package is not None:
            others |= {form: arc(package, before, after, form, arguments.repeats) for form in ARC_FORMS}
        peers |= against(others, name, changed)
        metrics |= {f"changed_{name}": changed / words, "words": words, "loss": loss}
        for mode in MODES:
            mine = ours(before, after, mode, arguments.repeats)
            metrics[f"bytes_per_change_{mode}_{name}"] = mine["bytes"] / changed
            metrics[f"ratio_to_xor_zstd_{mode}_{name}"] = mine["bytes"] / others["xor_zstd"].bytes
            if package is not None:
                metrics[f"ratio_to_arcv3_{mode}_{name}"] = mine["bytes"] / others["arc_v3"].bytes
            for speed in ("encode_mb_s", "decode_mb_s"):
                metrics[f"{speed}_{mode}_{name}"] = mine[speed]
        print(f"{name}: {100 * changed / words:.2f} % of {words / 1e6:.1f} M words changed", flush=True)
    for goal in [goal for goal in GOALS if goal.rpartition("_")[2] in MODES]:  # the worse of both rates counts
        values = [metrics[f"{goal}_{name}"] for name in RATES if f"{goal}_{name}" in metrics]
        if values:
            metrics[goal] = max(values) if GOALS[goal][0] == "<=" else min(values)
    large, large_peers = one_large_tensor(package, arguments.large, arguments.repeats)
    metrics |= large
    peers |= large_peers
    metrics["ratio_to_dense_most_changed"] = most_changed(found["1e6"][0])
    whole = sync(*found["3e6"], repeats=3)
    metrics |= {f"sync_{name}_s": seconds for name, seconds in whole.items() if name != "apply_share"}
    metrics["apply_share"] = whole["apply_share"]
    rounded = {name: float(f"{value:.4g}") for name, value in metrics.items()}
    loops = codec.loops().__name__.rpartition(".")[2]
    report.emit(
        "codec",
        rounded,
        goals={goal: value for goal, value in GOALS.items() if goal in metrics},
        peers={name: float(f"{value:.4g}") for name, value in peers.items()},
        conditions={"loops": loops, "clock": "process CPU time, one thread, medians"},
    )


if __name__ == "__main__":
    main()
