"""Reference log-probabilities of the probe text: the publisher's, else computed here by the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import safetensors.torch

from trainer.inference.errors import SyncFailed
from trainer.weights import Mirror, Versions
from trainer.weights.probe import Probe, format_of, measure_model, published_probe

LARGEST_REFERENCE = 2_000_000_000
"""Maximum number of parameters, in 4 bytes each, for which this process computes the probe when the publisher left
none."""


def reference(store: Versions | None, version: int, folder: Path, mirror: Mirror | None) -> Probe | None:
    """Probe of a store's version, which `mirror` holds, or of a policy folder. Blocks. Raises SyncFailed.

    None when the publisher left no probe and the weights are too large for this process.
    """
    found = published_probe(store, version) if store is not None else None
    return found or _own(folder, mirror)


def _own(folder: Path, mirror: Mirror | None) -> Probe | None:
    files = sorted(folder.glob("*.safetensors"))
    sizes = [raw.words for raw in mirror.policy.values()] if mirror else [file.stat().st_size // 2 for file in files]
    if sum(sizes) > LARGEST_REFERENCE:
        return None
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig  # seconds, and a hundred megabytes

    from trainer.policy import tokenizer_of
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
    return measure_model(model, tokenizer=tokenizer_of(folder), dtype=format_of(state))
