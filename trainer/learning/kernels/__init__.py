"""Kernels that compute the same results as plain torch with less memory or time.

prefix_sharing.py        computes the common prefix of a group's rows once
fused_linear_logprob.py  log-probabilities from hidden states without materialising all logits
cpu/                     bf16 kernels for CPUs
"""
