"""Per-token records of a step for display: advantage, the trainer's log-probability, entropy, weight.

Training does not read them. The token view of a trajectory finds a segment's streams by the digest of its tokens and
the sampler's log-probabilities, because sample order in a group is lost once samples are left out.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pydantic import Field

from trainer.types import Frozen

Floats = npt.NDArray[np.float32]


class TokenStreams(Frozen):
    """Streams of one sample, at its N policy tokens in order. Arrays are base64 of little-endian float32."""

    digest: str
    """See `digest_of`."""
    tokens: int = Field(ge=0, description="N")
    advantages: str
    """Final advantages as used in the loss, including a penalty for leaving the reference."""
    trainer_logprobs: str = ""
    """At the sampling temperature, before the step. This and the next two are empty when the sample was not scored."""
    entropy: str = ""
    """Entropy of the tempered distribution, in nats."""
    weights: str = ""
    """Importance weight in the loss; 0: masked by the correction."""

    def array(self, name: str) -> Floats | None:
        """Decode one of the four arrays, [N]; None when the sample was not scored. Raises ValueError for a damaged
        array."""
        data = base64.b64decode(getattr(self, name), validate=True)
        if not data:
            return None
        array: Floats = np.frombuffer(data, "<f4")
        if len(array) != self.tokens:
            raise ValueError(f"{name} has {len(array)} numbers for {self.tokens} tokens")
        return array


class TrainedGroup(Frozen):
    """One group as a step trained on it."""

    prompt_index: int
    step: int
    samples: list[TokenStreams]

    def of(self, digest: str) -> TokenStreams | None:
        """Streams of one segment; None when it was left out of training."""
        return next((sample for sample in self.samples if sample.digest == digest), None)


def packed(array: Sequence[float] | Floats) -> str:
    """Encode numbers as in `TokenStreams`."""
    return base64.b64encode(np.asarray(array, "<f4").tobytes()).decode()


def digest_of(tokens: Sequence[int], sampler_logprobs: Sequence[float]) -> str:
    """Digest of a segment from its sampled tokens and their log-probabilities."""
    digest = hashlib.blake2b(np.asarray(tokens, "<u4").tobytes(), digest_size=16)
    digest.update(np.asarray(sampler_logprobs, "<f8").tobytes())
    return digest.hexdigest()
