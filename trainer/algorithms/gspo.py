"""GSPO (arXiv 2507.18071): GRPO's advantages, with ratio and clip per sequence; a sequence is a segment here."""

from trainer.algorithms.base import Algorithm, by_rollout, standardised

GSPO = Algorithm("gspo", advantages=standardised, correction="sequence", factors=by_rollout)
