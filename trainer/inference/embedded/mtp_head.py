"""Multi-token prediction head: predicts further hidden states from the policy's last one and the tokens since.

One small network, applied once per draft token, with the policy's own embedding and output weights. It uses no keys or
values, so its cost does not depend on the context length.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import nn

from trainer.inference.errors import UnsupportedModel
from trainer.policy.store import HEADS

FILE = "mtp.safetensors"
"""The file lies in a folder of its own, because loaders of the policy read every tensor in the policy's folder."""


class MultiToken(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * hidden, width, bias=False)
        self.back = nn.Linear(width, hidden, bias=False)
        nn.init.zeros_(self.back.weight)  # it begins by predicting no change

    def forward(self, state_NC: torch.Tensor, embedded_NC: torch.Tensor) -> torch.Tensor:
        """The state after one more token, [..., C]; the output weights map it to the next token's logits."""
        hidden = state_NC.shape[-1:]
        both = torch.cat((F.rms_norm(state_NC, hidden), F.rms_norm(embedded_NC, hidden)), -1)
        after: torch.Tensor = state_NC + self.back(F.silu(self.mix(both)))
        return after

    def files(self) -> dict[str, bytes]:
        """Files for `Policy.heads`, by name."""
        state = {name: tensor.cpu().contiguous() for name, tensor in self.state_dict().items()}
        return {FILE: safetensors.torch.save(state)}

    def save(self, policy_dir: Path) -> Path:
        """Save the head beside the policy that it was trained for."""
        path = policy_dir / HEADS / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.files()[FILE])
        return path

    @classmethod
    def load(cls, policy_dir: Path, hidden: int) -> MultiToken | None:
        """Load the policy's head; None where there is none. Raises UnsupportedModel when it belongs to another policy."""
        path = policy_dir / HEADS / FILE
        return cls.read(path.read_bytes(), hidden, where=str(path)) if path.exists() else None

    @classmethod
    def read(cls, file: bytes, hidden: int, *, where: str) -> MultiToken:
        """The head in one of `files`. Raises UnsupportedModel naming `where`."""
        try:
            state = safetensors.torch.load(file)
        except SafetensorError as error:
            raise UnsupportedModel(f"{where} is not a head for several tokens: {error}; train it again") from error
        return cls.of(state, hidden, where=where)

    @classmethod
    def of(cls, state: Mapping[str, torch.Tensor], hidden: int, *, where: str) -> MultiToken:
        """A float32 head of these tensors, for a policy of width `hidden`. Raises UnsupportedModel naming `where`."""
        try:
            width, inputs = state["mix.weight"].shape
        except (KeyError, ValueError) as error:
            raise UnsupportedModel(f"{where} is not a head for several tokens: {error}; train it again") from error
        if inputs != 2 * hidden:
            raise UnsupportedModel(f"{where} is for a policy of width {inputs // 2}, not {hidden}; train it again")
        head = cls(hidden, width)
        head.load_state_dict(state)
        return head.float().eval()
