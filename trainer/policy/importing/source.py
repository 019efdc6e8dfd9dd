"""What lies at a path: a Hugging Face folder, a safetensors file in one, or a GGUF file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainer.policy.errors import PolicyUnreadable

SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


@dataclass(frozen=True, slots=True)
class Source:
    kind: Literal["folder", "gguf"]
    path: Path
    """The folder, or the GGUF file."""


def find_source(path: Path) -> Source:
    """Raises PolicyUnreadable: nothing that can be imported lies there."""
    if path.is_dir():
        return _in_folder(path)
    if not path.is_file():
        raise PolicyUnreadable(
            path, "path", "it does not exist", "Name a folder, a .safetensors or a .gguf file on this machine."
        )
    if path.suffix == ".gguf":
        if SPLIT.search(path.name):
            raise PolicyUnreadable(
                path,
                "path",
                "it is one of several parts",
                "Merge them with llama-gguf-split --merge, and import the result.",
            )
        return Source("gguf", path)
    if path.suffix == ".safetensors":
        return Source("folder", path.parent)
    raise PolicyUnreadable(
        path, "path", f"files of type {path.suffix or '(none)'} are not read",
        "Name a folder with config.json and *.safetensors, or a .gguf file; pickled weights (.bin, .pt) are never loaded.",
    )  # fmt: skip


def _in_folder(folder: Path) -> Source:
    if (folder / "config.json").is_file():
        return Source("folder", folder)
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return find_source(files[0])
    if files:
        raise PolicyUnreadable(folder, "path", f"it holds {len(files)} GGUF files", "Name one of them.")
    raise PolicyUnreadable(
        folder,
        "config.json",
        "the file is missing",
        "Name a Hugging Face model folder, or export with save_pretrained.",
    )
