"""What the delta codec is measured against: positions and values (COO), XOR + zstd, and ARC where its package is there.

Each codes and decodes the same tensors, one by one, into memory that is there already, and must give the same bytes back.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import zstandard

State = dict[str, torch.Tensor]
Words = np.ndarray
"""uint16, flat."""
LEVEL = 1
ARC_FORMS = ("arc_v2", "arc_v3")


class Peer(Protocol):
    """A codec of one tensor."""

    def encode(self, old: Words, new: Words) -> bytes: ...

    def decode(self, old: Words, payload: bytes, out: Words) -> None: ...


class Coo:
    """Where a word changed (four bytes) and what it is now (two)."""

    def encode(self, old: Words, new: Words) -> bytes:
        at = np.flatnonzero(old != new)
        return at.astype(np.uint32).tobytes() + new[at].tobytes()

    def decode(self, old: Words, payload: bytes, out: Words) -> None:
        changed = len(payload) // 6
        np.copyto(out, old)
        out[np.frombuffer(payload, np.uint32, changed)] = np.frombuffer(payload, np.uint16, changed, offset=4 * changed)


class XorZstd:
    """The XOR of all words, as it lies."""

    def encode(self, old: Words, new: Words) -> bytes:
        return zstandard.ZstdCompressor(LEVEL).compress(old ^ new)

    def decode(self, old: Words, payload: bytes, out: Words) -> None:
        np.bitwise_xor(old, np.frombuffer(self._unpacked(payload), np.uint16), out=out)

    @staticmethod
    def _unpacked(payload: bytes) -> bytes:
        return zstandard.ZstdDecompressor().decompress(payload)


class XorPlanes(XorZstd):
    """The XOR with all low bytes before all high ones."""

    def encode(self, old: Words, new: Words) -> bytes:
        planes = np.ascontiguousarray((old ^ new).view(np.uint8).reshape(-1, 2).T)
        return zstandard.ZstdCompressor(LEVEL).compress(planes)

    def decode(self, old: Words, payload: bytes, out: Words) -> None:
        planes = np.frombuffer(self._unpacked(payload), np.uint8).reshape(2, -1)
        np.bitwise_xor(old, np.ascontiguousarray(planes.T).view(np.uint16).reshape(-1), out=out)


@dataclass(frozen=True)
class Coded:
    """Bytes of all tensors; MB of full weights a second of process CPU time."""

    bytes: float
    encode_mb_s: float
    decode_mb_s: float


def words(state: State) -> list[Words]:
    return [tensor.reshape(-1).view(torch.int16).numpy().view(np.uint16) for tensor in state.values()]


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """Median."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def measure(peer: Peer, before: State, after: State, repeats: int) -> Coded:
    pairs = list(zip(words(before), words(after), strict=True))
    payloads = [peer.encode(old, new) for old, new in pairs]
    outs = [np.zeros_like(new) for _, new in pairs]

    def decode() -> None:
        for (old, _), payload, out in zip(pairs, payloads, outs, strict=True):
            peer.decode(old, payload, out)

    decode()
    assert all(np.array_equal(out, new) for (_, new), out in zip(pairs, outs, strict=True))
    return _coded(
        after,
        sum(map(len, payloads)),
        cpu_seconds(lambda: [peer.encode(old, new) for old, new in pairs], repeats),
        cpu_seconds(decode, repeats),
    )


def xor_zstd(before: State, after: State, repeats: int) -> Coded:
    """The smaller of both ways."""
    return min((measure(peer, before, after, repeats) for peer in (XorZstd(), XorPlanes())), key=lambda c: c.bytes)


def arc(package: Any, before: State, after: State, form: str, repeats: int) -> Coded:
    """Encoded once: it takes long."""
    began = time.process_time()
    coded = {name: package.delta_compress(src=before[name], dst=after[name], compression_format=form) for name in after}
    encoding = time.process_time() - began

    def decode() -> State:
        return {
            name: package.delta_decompress(
                src=before[name], compressed_diff=diff, checksum=checksum, compression_format=form
            )
            for name, (diff, checksum) in coded.items()
        }

    decoded = decode()
    assert all(torch.equal(decoded[name].view(torch.int16), after[name].view(torch.int16)) for name in after)
    size = sum(diff.numel() * diff.element_size() for diff, _ in coded.values())
    return _coded(after, size, encoding, cpu_seconds(decode, repeats))


def against(peers: Mapping[str, Coded], name: str, changed: int) -> dict[str, float]:
    """The figures of peers under the suffix `name`."""
    found = {}
    for peer, coded in peers.items():
        found |= {
            f"{peer}_bytes_per_change_{name}": coded.bytes / changed,
            f"{peer}_encode_mb_s_{name}": coded.encode_mb_s,
            f"{peer}_decode_mb_s_{name}": coded.decode_mb_s,
        }
    return found


def _coded(after: State, size: int, encoding: float, decoding: float) -> Coded:
    total = sum(tensor.numel() * tensor.element_size() for tensor in after.values()) / 1e6
    tick = time.get_clock_info("process_time").resolution
    return Coded(float(size), total / max(encoding, tick), total / max(decoding, tick))


PLAIN: Sequence[Peer] = (Coo(), XorZstd(), XorPlanes())
"""Those that need no package."""
