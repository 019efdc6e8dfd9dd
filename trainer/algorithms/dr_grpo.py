"""Dr. GRPO (arXiv 2503.20783): GRPO without the std and without the length normaliser; PPO's clip stays."""

from trainer.algorithms.advantage import group_advantages
from trainer.algorithms.base import Algorithm

DR_GRPO = Algorithm("dr_grpo", advantages=group_advantages, correction="clipped")
