"""The delta codec's part of `gpu.py`: GB of weights a second, between tensors in host memory and on the GPU.

The codec computes on the processor's cores, all of them. `host`: from and into host memory. `device`: an encoder's time has
the copy of the new weights from the GPU in it; a decoder's has all that leads to live weights there: decoding, finding what
changed, sending it and writing it. Reading, writing and proving payloads are not in any of them.

Weights are normal, with a step of Adam's size at a learning rate of 3e-6. Times are wall time, medians.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from trainer.weights import Subscriber, WeightStore, codec
from trainer.weights.blocks import gather, in_threads, layout, scatter
from trainer.weights.codec import FORMATS, MODES, Mode
from trainer.weights.patch import between
from trainer.weights.subscriber import Mirror
from trainer.weights.tensors import RawState, RawTensor, freeze

DTYPE = "bfloat16"
FORM = FORMATS[DTYPE]
SEED = 2
TENSORS, WIDTH = 32, 1024
RATE, SPREAD = 3e-6, 0.23
"""Learning rate, and the spread of a step of Adam by it."""

State = dict[str, torch.Tensor]


def measure(words: int, device: torch.device, repeats: int) -> dict[str, float]:
    """GB/s, the share of words that changed, and of the bytes that are sent, by mode."""
    before, after = consecutive(words)
    first, second = published(before, after)
    there = {name: tensor.to(device) for name, tensor in after.items()}
    live = {name: tensor.to(device) for name, tensor in before.items()}
    size = sum(tensor.nbytes for tensor in after.values())
    changed = sum(int((before[name] != after[name]).sum()) for name in after)
    out = {"codec_changed": changed / words}
    speed = partial(seconds, repeats=repeats, device=device)
    for mode in MODES:
        payloads = encoded(first.raw, second.raw, mode)

        def arrive(payloads: list[bytes] = payloads) -> None:
            found = Mirror(second.manifest, decoded(first.raw, payloads))
            between(first, found).to(device).apply(live)

        def restore() -> None:
            for name, tensor in live.items():
                tensor.copy_(before[name])

        took = {
            "encode_host": speed(partial(encoded, first.raw, second.raw, mode)),
            "encode_device": speed(lambda m=mode: encoded(first.raw, freeze(there, DTYPE)[0], m)),
            "decode_host": speed(partial(decoded, first.raw, payloads)),
            "decode_device": speed(arrive, before=restore),
        }
        if any(not torch.equal(live[name], there[name]) for name in there):
            raise RuntimeError(f"mode {mode}: what was decoded is not what was encoded")
        out |= {f"codec_{name}_gb_s_{mode}": size / 1e9 / taken for name, taken in took.items()}
        out[f"codec_payload_share_{mode}"] = sum(map(len, payloads)) / size
    return {name: float(f"{value:.4g}") for name, value in out.items()}


def consecutive(words: int) -> tuple[State, State]:
    generator = torch.Generator().manual_seed(SEED)
    before, after = {}, {}
    for number in range(TENSORS):
        weights = 0.02 * torch.randn(words // TENSORS // WIDTH, WIDTH, generator=generator)
        moved = weights - RATE * SPREAD * torch.randn(weights.shape, generator=generator)
        before[f"w{number:02}"], after[f"w{number:02}"] = weights.bfloat16(), moved.bfloat16()
    return before, after


def published(before: State, after: State) -> tuple[Mirror, Mirror]:
    """Both as a receiver has them."""
    with tempfile.TemporaryDirectory() as folder:
        store = WeightStore(folder)
        store.publish(0, before)
        store.publish(1, after)
        follower = Subscriber(store.versions)
        mirrors = []
        for version in (0, 1):
            fetched = follower.fetch(version)
            assert fetched is not None
            follower.commit(fetched)
            mirrors.append(fetched.mirror)
    return mirrors[0], mirrors[1]


def encoded(old: RawState, new: RawState, mode: Mode) -> list[bytes]:
    names = sorted(new)
    blocks = layout([(new[name].dtype, new[name].words) for name in names])
    before, after = ([state[name].data for name in names] for state in (old, new))

    def one(index: int) -> bytes:
        block = blocks[index]
        return codec.encode(gather(block, before, FORM.size), gather(block, after, FORM.size), FORM, mode)

    return in_threads(one, range(len(blocks)))


def decoded(old: RawState, payloads: list[bytes]) -> RawState:
    names = sorted(old)
    blocks = layout([(old[name].dtype, old[name].words) for name in names])
    before = [old[name].data for name in names]
    after = [np.empty_like(data) for data in before]

    def one(index: int) -> None:
        block = blocks[index]
        out = gather(block, after, FORM.size)
        codec.decode(gather(block, before, FORM.size), payloads[index], FORM, out)
        scatter(block, out, after, FORM.size)

    in_threads(one, range(len(blocks)))
    return {name: RawTensor(DTYPE, old[name].shape, data) for name, data in zip(names, after, strict=True)}


def seconds(
    work: Callable[[], object], *, repeats: int, device: torch.device, before: Callable[[], None] | None = None
) -> float:
    """Median; once more at first, which does not count."""
    taken = []
    for _ in range(1 + repeats):
        if before is not None:
            before()
        _wait(device)
        began = time.perf_counter()
        work()
        _wait(device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
