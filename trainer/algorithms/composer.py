"""The published parts of Composer 2: A = R - mean(R), no std, no length normaliser, constant divisor."""

from trainer.algorithms.advantage import group_advantages
from trainer.algorithms.base import Algorithm

COMPOSER = Algorithm("composer", advantages=group_advantages, correction="truncated")
