"""Device placement of an engine. On the CPU its inner loops are compiled; on other devices torch's operators do the
same.

Engines spread over the GPUs of a machine: each claims one by a lock that the kernel releases when the process ends, for
any reason. Containers of one machine see each other's locks in a shared folder.
"""

from __future__ import annotations

import fcntl
import os
from itertools import count
from pathlib import Path

import torch

CPU = torch.device("cpu")
DEVICE = "OPENCOMPOSER_ENGINE_DEVICE"
_claims: list[int] = []
"""Open files of this process' claims."""


def place(name: str, claims: Path | None = None) -> torch.device:
    """Resolve `cpu`, `cuda`, `cuda:N` or `cuda:N,N` to a device; of several GPUs, the one with the fewest engines, by
    their claims in a folder. Raises ValueError naming the setting.
    """
    found = places(name)
    if claims is None or found == [CPU]:
        return found[0]
    # The last GPU first: a trainer begins with the first one.
    return claimed(found[::-1], claims)


def places(name: str) -> list[torch.device]:
    """All devices that a setting allows. Raises ValueError."""
    kind, _, numbers = name.partition(":")
    named = numbers.split(",") if numbers else []
    if kind not in {"cpu", "cuda"} or (":" in name and not named) or (kind == "cpu" and named):
        named = ["?"]
    if not all(number.isdecimal() for number in named):
        raise ValueError(f"the engine's device is {name!r}; it is cpu, cuda, cuda:N or cuda:N,N ({DEVICE})")
    if kind == "cpu":
        return [CPU]
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    wanted = sorted({int(number) for number in named}) or list(range(max(there, 1)))
    if wanted[-1] >= there:
        raise ValueError(
            f"the engine's device is {name!r}, and torch can use {there} GPUs of this machine; set "
            f"{DEVICE}=cpu, name another one, or install a CUDA build of torch"
        )
    return [torch.device("cuda", number) for number in wanted]


def claimed(devices: list[torch.device], folder: Path) -> torch.device:
    """Claim the first of the devices with the fewest claims, until this process ends. Raises ValueError."""
    names = {device: str(torch.cuda.get_device_properties(device).uuid) for device in devices}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for share in count():
            for device in devices:
                if _lock(folder / f"{names[device]}.{share}"):
                    return device
    except OSError as error:
        raise ValueError(
            f"{folder} cannot hold the claims of engines on GPUs ({error.strerror or error}): let this account write there"
        ) from error
    raise AssertionError("there is always another share")


def _lock(path: Path) -> bool:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    except OSError:
        os.close(file)
        raise
    _claims.append(file)
    return True
