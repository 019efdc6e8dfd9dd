"""Speculative decoding: a head drafts tokens, and one forward pass verifies them.

The policy's n-th token is drawn from its own distribution with the request's n-th random number, as without drafts. A
draft token is accepted when it equals that token, and the first mismatch ends the step. The tokens are therefore the
same as without drafts (up to the last bits of sums in other batches), distribution and log-probabilities are the
policy's, and a bad head costs only time. (This is the rejection rule for deterministic drafts. Drafting with the
token's own random number raises the acceptance rate.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from trainer.inference.embedded.kernels.loops import Loops
from trainer.inference.embedded.model import Decoder
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.embedded.request import Sequence as Running
from trainer.inference.embedded.sampling import sample
from trainer.weights import Mirror


class Vocabulary(Protocol):
    """Policy weights that drafting uses, dense or mixture-of-experts."""

    @property
    def embedding_VC(self) -> torch.Tensor: ...

    @property
    def head(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Map states after the last norm to logits."""
        ...


class Drafter:
    def __init__(self, head: MultiToken, ahead: int, loops: Loops | None) -> None:
        """`ahead`: draft tokens per step."""
        self.head, self.ahead, self.loops = head, ahead, loops
        self.drafted = self.accepted = 0

    def after(self, other: Drafter | None) -> Drafter:
        """This drafter, which goes on counting where `other` stops."""
        if other is not None:
            self.drafted, self.accepted = other.drafted, other.accepted
        return self

    @torch.inference_mode()
    def draft(self, weights: Vocabulary, sequences: Sequence[Running], hidden_NC: torch.Tensor, room: int) -> None:
        """Draft tokens for `sequences`, whose last tokens follow the states `hidden_NC`. `room`: maximum tokens of one."""
        open_ = [
            n
            for n, sequence in enumerate(sequences)
            if not sequence.finished and sequence.job.sampling_mask is None
            if sequence.job.left > 1 and len(sequence.tokens) < room
        ]
        if not open_:
            return
        kept = [sequences[n] for n in open_]
        jobs = [sequence.job for sequence in kept]
        temperatures = [job.temperature for job in jobs]
        tokens, state = (
            [sequence.tokens[-1] for sequence in kept],
            hidden_NC[torch.tensor(open_, device=hidden_NC.device)],
        )
        for step in range(self.ahead):
            state = self.head(state, weights.embedding_VC[torch.tensor(tokens, device=state.device)])
            uniforms = [job.random[len(job.token_ids) + step] for job in jobs]
            tokens, _ = sample(weights.head(state), temperatures, uniforms, self.loops)
            for sequence, job, token in zip(kept, jobs, tokens, strict=True):
                # The last token of a step is the policy's own, and must fit, too.
                if step + 1 < job.left and len(sequence.tokens) + step < room:
                    sequence.draft_tokens.append(token)


def load_drafter(policy_dir: Path, decoder: Decoder, ahead: int) -> Drafter | None:
    """Load the drafter; None when drafting is off or the policy has no draft head. Raises UnsupportedModel."""
    return _drafter(MultiToken.load(policy_dir, decoder.shape.hidden_size), decoder, ahead) if ahead > 0 else None


def published_drafter(mirror: Mirror, decoder: Decoder, ahead: int) -> Drafter | None:
    """The same of a published version, for a decoder of its shape."""
    state = mirror.draft_head() if ahead > 0 else {}
    if not state:
        return None
    where = f"the draft head of version {mirror.version}"
    return _drafter(MultiToken.of(state, decoder.shape.hidden_size, where=where), decoder, ahead)


def _drafter(head: MultiToken | None, decoder: Decoder, ahead: int) -> Drafter | None:
    return Drafter(head.to(decoder.device), ahead, decoder.loops) if head is not None else None
