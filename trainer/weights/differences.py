"""A file of weights as its difference from another file, and back: how older checkpoints are kept.

    policy/model.safetensors             the weights, until two newer checkpoints are complete
    policy/model.safetensors.difference  afterwards: what changed, and the digests of the file and of what it differs from

Consecutive checkpoints of a bfloat16 policy share most of their bits, so a difference takes a small part of a file. The newest
checkpoints stay whole: nothing that a run resumes from depends on another file. `restore` writes the ordinary file again, bit
for bit, before somebody starts from an older version.

A difference is a safetensors file of coded blocks (`trainer.weights.codec`). Their layout follows from the header, which both
files share.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from trainer.errors import CorruptPayload, WeightError
from trainer.weights import codec
from trainer.weights.blocks import BLOCK_WORDS, in_threads
from trainer.weights.codec import FORMATS, Bytes

SUFFIX = ".difference"
WORTH = 0.75
"""Largest share of a file that its difference may take. Above it the file stays: float32 weights change nearly everywhere."""
MAX_HEADER = 100 << 20
PATIENCE = 3600.0
"""Seconds to wait for another process that restores the same weights."""
_METADATA, _SCRATCH = "difference", ".weights-"
_FORMAT_OF = {
    "BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
}  # fmt: skip
_OTHER = "uint8"


class DifferenceError(WeightError):
    """Weights of an older checkpoint cannot be restored. The message names the file and the remedy."""


class Described(BaseModel):
    """The metadata of a difference."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str
    """The file that it was coded against, relative to its own folder."""
    base_digest: str
    digest: str
    """SHA-256 of the restored file."""
    parameters: int
    """Numbers in its tensors."""


def code(file: Path, base: Path) -> Path | None:
    """Write `file` as its difference against `base` and return that, durable, beside the file; None where it is not worth it
    or the two hold other tensors. Raises OSError."""
    header = _header(file)
    if header is None or header != _header(base) or file.stat().st_size != base.stat().st_size:
        return None
    old, new = _body(base, len(header)), _body(file, len(header))
    spans = list(_spans(header))

    def block(span: tuple[str, int, int]) -> bytes:
        form, start, stop = span
        return codec.encode(np.array(old[start:stop]), np.array(new[start:stop]), FORMATS[form])

    coded = in_threads(block, spans)
    if sum(map(len, coded)) > WORTH * new.size:
        return None
    described = Described(
        base=os.path.relpath(base, file.parent), base_digest=digest_of(base), digest=digest_of(file),
        parameters=sum(math.prod(entry["shape"]) for entry in _entries(header)),
    )  # fmt: skip
    target = file.with_name(file.name + SUFFIX)
    blocks = {
        f"block/{number}": torch.frombuffer(bytearray(data), dtype=torch.uint8) for number, data in enumerate(coded)
    }
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=file.parent) as scratch:
        made = Path(scratch) / target.name
        save_file(blocks, made, {_METADATA: described.model_dump_json()})
        _into_place(made, target)
    return target


def restore(folder: Path) -> list[Path]:
    """Write every file of `folder` again of which there is only a difference. Returns these files. Idempotent; where several
    processes ask at once, one works and the others wait.

    Raises DifferenceError."""
    missing = [path for path in sorted(folder.glob(f"*{SUFFIX}")) if not _whole(path).is_file()]
    if not missing:
        return []
    with _alone(folder):
        return [_restored(path) for path in missing if not _whole(path).is_file()]


def described(difference: Path) -> Described:
    """Raises DifferenceError."""
    try:
        with safe_open(difference, framework="pt") as opened:
            return Described.model_validate_json((opened.metadata() or {})[_METADATA])
    except (OSError, SafetensorError, ValidationError, KeyError) as error:
        raise _unusable(difference, str(error)) from error


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _restored(difference: Path) -> Path:
    """Decode the chain of differences that ends at `difference`, from the file that is whole. The files between are dropped."""
    chain, base = [(difference, described(difference))], Path()
    while True:
        path, found = chain[-1]
        base = Path(os.path.normpath(path.parent / found.base))
        if base.is_file():
            break
        further = base.with_name(base.name + SUFFIX)
        if not further.is_file() or any(further == path for path, _ in chain):
            raise _unusable(difference, f"{base}, from which it differs, was removed")
        chain.append((further, described(further)))
    whole = _whole(difference)
    try:
        if digest_of(base) != chain[-1][1].base_digest:
            raise _unusable(difference, f"{base}, from which it differs, has changed")
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=difference.parent) as scratch:
            for number, (path, found) in enumerate(reversed(chain)):
                made = Path(scratch) / str(number)
                _decode(path, base, made, found.digest)
                if number:
                    base.unlink()
                base = made
            _into_place(base, whole)
    except (OSError, ValueError, SafetensorError, CorruptPayload, KeyError) as error:
        raise _unusable(difference, str(error)) from error
    difference.unlink()
    return whole


def _decode(difference: Path, base: Path, target: Path, digest: str) -> None:
    """Write `target`. Raises OSError, SafetensorError, CorruptPayload, KeyError."""
    header = _header(base)
    if header is None:
        raise CorruptPayload(f"{base} is no safetensors file")
    old = _body(base, len(header))
    with target.open("wb") as file:
        file.write(header)
        with safe_open(difference, framework="pt") as opened:
            for number, (form, start, stop) in enumerate(_spans(header)):
                out = np.empty(stop - start, np.uint8)
                payload = memoryview(opened.get_tensor(f"block/{number}").numpy())
                codec.decode(np.array(old[start:stop]), payload, FORMATS[form], out)
                file.write(out.data)
    if digest_of(target) != digest:
        raise CorruptPayload("what it makes has another digest than the file had")


def _whole(difference: Path) -> Path:
    return difference.with_name(difference.name.removesuffix(SUFFIX))


def _header(path: Path) -> bytes | None:
    """The bytes before the tensors; None where the file is no safetensors file. Raises OSError."""
    with path.open("rb") as file:
        size = file.read(8)
        length = int.from_bytes(size, "little")
        if len(size) < 8 or not 0 < length < min(MAX_HEADER, path.stat().st_size):
            return None
        return size + file.read(length)


def _body(path: Path, start: int) -> Bytes:
    """The bytes of the tensors, read as they are needed."""
    if path.stat().st_size == start:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r", offset=start)


def _entries(header: bytes) -> list[dict[str, Any]]:
    return [entry for name, entry in json.loads(header[8:]).items() if name != "__metadata__"]


def _spans(header: bytes) -> Iterator[tuple[str, int, int]]:
    """Blocks of one format each, as (format, first byte, last byte + 1) of the tensors' bytes, in their order."""
    runs: list[tuple[str, int, int]] = []
    for start, stop, kind in sorted((*entry["data_offsets"], entry["dtype"]) for entry in _entries(header)):
        form = _FORMAT_OF.get(kind, _OTHER)
        if runs and runs[-1][0] == form and runs[-1][2] == start:
            runs[-1] = (form, runs[-1][1], stop)
        else:
            runs.append((form, start, stop))
    for form, start, stop in runs:
        length = BLOCK_WORDS * FORMATS[form].size
        for at in range(start, stop, length):
            yield form, at, min(stop, at + length)


def _into_place(made: Path, target: Path) -> None:
    """Rename a complete file so that `target` is there, whole, after a crash too, or not at all. Raises OSError."""
    sync(made)
    made.rename(target)
    sync(target.parent)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with the process. Raises DifferenceError after `PATIENCE`."""
    end = time.monotonic() + PATIENCE
    with (folder / ".restore.lock").open("w") as file:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > end:
                raise DifferenceError(
                    f"another process has been restoring the weights in {folder} for {PATIENCE / 60:.0f} minutes; end it, "
                    "then start again"
                )
            time.sleep(0.1)
        yield


def sync(path: Path) -> None:
    """Have what was written to a file or folder on disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unusable(difference: Path, why: str) -> DifferenceError:
    return DifferenceError(
        f"the weights of the checkpoint in {difference.parent} cannot be restored from {difference.name}: {why}; start from "
        "another version of this policy"
    )
