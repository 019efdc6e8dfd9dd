"""The tensors of safetensors files, from their headers alone: names, formats and shapes, without reading weights."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from trainer.policy.errors import PolicyUnreadable

MAX_HEADER = 100 << 20
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Tensor:
    file: str
    dtype: str
    """As safetensors writes it: BF16, F8_E4M3, I32 …"""
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


def read_header(path: Path) -> dict[str, Tensor]:
    """Raises ValueError: no safetensors file, or one that is cut off."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 0 < size < MAX_HEADER:
            raise ValueError(f"{path.name} is not a safetensors file")
        header = json.loads(file.read(size))
    found, end = {}, 0
    for name, entry in header.items():
        if name != "__metadata__":
            found[name] = Tensor(path.name, str(entry["dtype"]), tuple(entry["shape"]))
            end = max(end, entry["data_offsets"][1])
    missing = 8 + size + end - path.stat().st_size
    if missing > 0:
        raise ValueError(f"{path.name} is cut off: {missing} bytes are missing")
    return found


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder. Raises PolicyUnreadable: no weights, a missing or damaged shard, or one that lacks tensors."""
    files = sorted(folder.glob("*.safetensors"))
    index = _index(folder)
    if not files and not index:
        raise PolicyUnreadable(
            folder, "weights", "there are no *.safetensors files", "Export the model with save_pretrained."
        )
    names = sorted(set(index.values())) or [path.name for path in files]
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise PolicyUnreadable(
            folder, "weights", f"{len(missing)} of {len(names)} shards are missing, {missing[0]} first",
            "Download them again; the index names all of them.",
        )  # fmt: skip
    found: dict[str, Tensor] = {}
    try:
        for name in names:
            found |= read_header(folder / name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PolicyUnreadable(folder, "weights", str(error), "Copy or download that file again.") from error
    if lost := sorted(index.keys() - found.keys()):
        raise PolicyUnreadable(
            folder, "weights", f"{lost[0]} is in the index and in no shard (and {len(lost) - 1} more)",
            "The index belongs to other files: download the model again.",
        )  # fmt: skip
    return found


def _index(folder: Path) -> dict[str, str]:
    if not (folder / INDEX).is_file():
        return {}
    try:
        return {str(k): str(v) for k, v in json.loads((folder / INDEX).read_text())["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PolicyUnreadable(
            folder, INDEX, f"{type(error).__name__}: {error}", "Restore the weight index."
        ) from error
