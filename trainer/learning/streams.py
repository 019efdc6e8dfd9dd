"""What a step knew of each token, kept for people: advantage, the trainer's log-probability, entropy, weight.

Nothing is learned from it. The token lens of a trajectory finds a segment's streams by the digest of its tokens and
the sampler's log-probabilities: the order of samples in a group says nothing once some were left out.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pydantic import Field

from trainer.rollouts.types import Frozen

Floats = npt.NDArray[np.float32]


class TokenStreams(Frozen):
    """Of one sample, at its N policy tokens in order. Arrays are base64 of little-endian float32."""

    digest: str
    """See `digest_of`."""
    tokens: int = Field(ge=0, description="N")
    advantages: str
    """As they entered the loss: final, a penalty for leaving the reference included."""
    trainer_logprobs: str = ""
    """At the sampling temperature, before the step; these three are empty when the sample was not scored."""
    entropy: str = ""
    """Of the tempered distribution, nat."""
    weights: str = ""
    """Importance weight in the loss; 0: the correction masked the token."""

    def array(self, name: str) -> Floats | None:
        """One of the four arrays, [N]; None when the sample was not scored. Raises ValueError for a damaged one."""
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
        """The streams of one segment; None when it was left out of training."""
        return next((sample for sample in self.samples if sample.digest == digest), None)


def packed(array: Sequence[float] | Floats) -> str:
    """Numbers as they stand in `TokenStreams`."""
    return base64.b64encode(np.asarray(array, "<f4").tobytes()).decode()


def digest_of(tokens: Sequence[int], sampler_logprobs: Sequence[float]) -> str:
    """Names a segment by what was sampled and how probable it was."""
    digest = hashlib.blake2b(np.asarray(tokens, "<u4").tobytes(), digest_size=16)
    digest.update(np.asarray(sampler_logprobs, "<f8").tobytes())
    return digest.hexdigest()
