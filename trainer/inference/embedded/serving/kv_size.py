"""Size of a deployment's KV cache: what its specification asks for, if the machine has the memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from trainer.inference.contract import DeploymentSpec
from trainer.inference.embedded.cache import BLOCK, block_bytes
from trainer.inference.embedded.devices import CPU
from trainer.inference.embedded.model import Decoder
from trainer.inference.embedded.runner import Limits
from trainer.inference.errors import NoMemory

MIB = 1 << 20


def sized(limits: Limits, spec: DeploymentSpec, decoder: Decoder) -> Limits:
    """Limits of this deployment, on an engine that was started with `limits`. Raises NoMemory.

    Without a size in the specification, the cache has the engine's. It is raised to hold one sequence of a context that the
    specification asks for; a context that it does not ask for is as long as the cache.
    """
    shape = decoder.shape
    length = min(spec.max_model_len or limits.max_context, shape.max_position_embeddings)
    per_block = block_bytes(shape.num_hidden_layers, shape.num_key_value_heads, shape.head_dim, decoder.routed)
    one = -(-length // BLOCK) * per_block
    asked = spec.kv_cache_mib * MIB if spec.kv_cache_mib is not None else None
    if asked is not None and asked < one:
        raise NoMemory(
            f"deployment {spec.name!r}: one sequence of {length} tokens takes {one / MIB:.0f} MiB of keys and values, and "
            f"kv_cache_mib is {spec.kv_cache_mib}; set it to at least {-(-one // MIB)}, or max_context_tokens to at most "
            f"{asked // per_block * BLOCK}"
        )
    there = available_bytes(decoder.device)
    needed = asked if asked is not None else one if spec.max_model_len is not None else per_block
    if needed > there:
        raise NoMemory(
            f"deployment {spec.name!r} needs {needed / MIB:.0f} MiB of keys and values "
            f"({length} tokens of context), and {there / MIB:.0f} MiB of memory are free; lower max_context_tokens or "
            "kv_cache_mib, end other deployments, or use a machine with more memory"
        )
    kv_bytes = asked if asked is not None else max(needed, min(limits.kv_bytes, there))
    return replace(limits, max_context=length, kv_bytes=kv_bytes)


def available_bytes(device: torch.device) -> int:
    """Memory that a new cache may take: free on the GPU, else of the machine or of this process' control group."""
    if device != CPU and device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [_meminfo()]
    for folder, most, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit, taken = ((Path(folder) / name).read_text().strip() for name in (most, used))
        except OSError:
            continue
        if limit.isdigit():
            found.append(max(0, int(limit) - int(taken)))
    return min(found)


def _meminfo() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/meminfo has MemAvailable since Linux 3.14")
