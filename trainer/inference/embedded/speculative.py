"""Speculative decoding: a head drafts tokens, and one forward pass verifies them.

The policy's n-th token is drawn from its own distribution with the request's n-th random number, as without drafts. A
draft
token is accepted when it equals that token, and the first mismatch ends the step. The tokens are therefore the same as
without
drafts (up to the last bits of sums in other batches), distribution and log-probabilities are the policy's, and a bad
head costs
only time. (This is the rejection rule for deterministic drafts. Drafting with the token's own random number raises the
acceptance
rate.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from trainer.inference.embedded.kernels.loops import Loops
from trainer.inference.embedded.model import Decoder
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.embedded.request import Slot
from trainer.inference.embedded.sampling import sample


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

    @torch.inference_mode()
    def draft(self, weights: Vocabulary, slots: Sequence[Slot], hidden_NC: torch.Tensor, room: int) -> None:
        """Draft tokens for `slots`, whose last tokens follow the states `hidden_NC`. `room`: tokens of a slot."""
        open_ = [
            n
            for n, slot in enumerate(slots)
            if slot.job is not None and slot.job.sampling_mask is None and slot.job.left > 1 and len(slot.tokens) < room
        ]
        if not open_:
            return
        kept = [slots[n] for n in open_]
        jobs = [job for slot in kept if (job := slot.job)]
        temperatures = [job.temperature for job in jobs]
        tokens, state = [slot.tokens[-1] for slot in kept], hidden_NC[torch.tensor(open_, device=hidden_NC.device)]
        for step in range(self.ahead):
            state = self.head(state, weights.embedding_VC[torch.tensor(tokens, device=state.device)])
            uniforms = [job.random[len(job.token_ids) + step] for job in jobs]
            tokens, _ = sample(weights.head(state), temperatures, uniforms, self.loops)
            for slot, job, token in zip(kept, jobs, tokens, strict=True):
                # The last token of a step is the policy's own, and must fit, too.
                if step + 1 < job.left and len(slot.tokens) + step < room:
                    slot.draft_tokens.append(token)


def load_drafter(policy_dir: Path, decoder: Decoder, ahead: int) -> Drafter | None:
    """Load the drafter; None when drafting is off or the policy has no draft head. Raises UnsupportedModel."""
    if ahead < 1:
        return None
    head = MultiToken.load(policy_dir, decoder.shape.hidden_size)
    return Drafter(head.to(decoder.device), ahead, decoder.loops) if head is not None else None
