"""Multi-token prediction: from the policy's last hidden state and the tokens since, the states that would follow.

One small network, applied once for each token ahead; embedding and output weights are the policy's own. It sees no keys
or values, so it costs a policy of any context length the same.
"""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import nn

from trainer.inference.errors import UnsupportedModel
from trainer.policy.store import HEADS

FILE = "mtp.safetensors"
"""In a folder of its own, not beside the policy's weights: whoever loads those takes every tensor there."""


class MultiToken(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * hidden, width, bias=False)
        self.back = nn.Linear(width, hidden, bias=False)
        nn.init.zeros_(self.back.weight)  # it begins with the guess that nothing changes

    def forward(self, state_NC: torch.Tensor, embedded_NC: torch.Tensor) -> torch.Tensor:
        """The state after one more token, [..., C]: what the output weights turn into the next token's logits."""
        hidden = state_NC.shape[-1:]
        both = torch.cat((F.rms_norm(state_NC, hidden), F.rms_norm(embedded_NC, hidden)), -1)
        after: torch.Tensor = state_NC + self.back(F.silu(self.mix(both)))
        return after

    def files(self) -> dict[str, bytes]:
        """What `Policy.heads` holds, by name."""
        state = {name: tensor.cpu().contiguous() for name, tensor in self.state_dict().items()}
        return {FILE: safetensors.torch.save(state)}

    def save(self, policy_dir: Path) -> Path:
        """Beside the policy that it was trained for."""
        path = policy_dir / HEADS / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.files()[FILE])
        return path

    @classmethod
    def load(cls, policy_dir: Path, hidden: int) -> MultiToken | None:
        """None where the policy has none. Raises UnsupportedModel when it is of another policy."""
        path = policy_dir / HEADS / FILE
        if not path.exists():
            return None
        try:
            state = safetensors.torch.load_file(path)
            width, inputs = state["mix.weight"].shape
        except (SafetensorError, KeyError, ValueError) as error:
            raise UnsupportedModel(f"{path} is not a head for several tokens: {error}; train it again") from error
        if inputs != 2 * hidden:
            raise UnsupportedModel(f"{path} is for a policy of width {inputs // 2}, not {hidden}; train it again")
        head = cls(hidden, width)
        head.load_state_dict(state)
        return head.float().eval()
