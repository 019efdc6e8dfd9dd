"""CISPO (arXiv 2506.13585): every token keeps its gradient, with its ratio bounded above; mean over a group's tokens."""

from trainer.algorithms.base import Algorithm, by_group, standardised

CISPO = Algorithm("cispo", advantages=standardised, correction="truncated", factors=by_group)
