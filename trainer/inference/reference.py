"""What weights say of the probe's text, for engines that compute them: by their publisher, else by the library here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import safetensors.torch

from trainer.inference.errors import SyncFailed
from trainer.weights import Mirror, Versions
from trainer.weights.probe import Probe, measure_model, published_probe

LARGEST_REFERENCE = 2_000_000_000
"""Words that this process computes with itself, in 4 bytes each, where a publisher left no probe."""


def reference(store: Versions | None, version: int, folder: Path, mirror: Mirror | None) -> Probe | None:
    """Of a version of a store, which `mirror` holds, or of the weights of a policy's folder. Blocks. Raises SyncFailed.

    None where nobody can tell: the publisher did not, and the weights are too large for this process."""
    found = published_probe(store, version) if store is not None else None
    return found or _own(folder, mirror)


def _own(folder: Path, mirror: Mirror | None) -> Probe | None:
    files = sorted(folder.glob("*.safetensors"))
    sizes = [raw.words for raw in mirror.raw.values()] if mirror else [file.stat().st_size // 2 for file in files]
    if sum(sizes) > LARGEST_REFERENCE:
        return None
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig  # seconds, and a hundred megabytes

    from trainer.policy.names import build_from_state

    if mirror is not None:
        state = mirror.state()
    else:
        state = {n: t for file in files for n, t in safetensors.torch.load_file(file).items()}
    try:
        config = AutoConfig.from_pretrained(folder)
        model = build_from_state(cast(Any, MODEL_FOR_CAUSAL_LM_MAPPING)[type(config)], config, state)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise SyncFailed(f"the weights are not those of {folder}/config.json: {error}") from error
    return measure_model(model)
