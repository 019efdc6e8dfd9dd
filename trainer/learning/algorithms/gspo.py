"""GSPO (arXiv 2507.18071): GRPO's advantages; ratio and clip are of whole sequences, here of segments."""

from trainer.learning.algorithms.base import Algorithm, by_rollout, standardised

GSPO = Algorithm("gspo", advantages=standardised, correction="sequence", factors=by_rollout)
