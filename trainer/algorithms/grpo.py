"""GRPO (arXiv 2402.03300): A = (R - mean) / std, the mean over each rollout's tokens, PPO's clip of token ratios."""

from trainer.algorithms.base import Algorithm, by_rollout, standardised

GRPO = Algorithm("grpo", advantages=standardised, correction="clipped", factors=by_rollout)
