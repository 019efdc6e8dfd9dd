"""Kernels that compute the same results as plain torch with less memory or time.

registry.py              which kernels replace a model's layers, by compute format
prefix_sharing.py        computes the common prefix of a group's rows once
fused_linear_logprob.py  log-probabilities from hidden states without materialising all logits
cpu/                     bf16 kernels for CPUs
"""

from trainer.learning.kernels.prefix_sharing import prefix_attention, supports_prefix_sharing
from trainer.learning.kernels.registry import KERNELS, Kernel, install_kernels

__all__ = ["KERNELS", "Kernel", "install_kernels", "prefix_attention", "supports_prefix_sharing"]
