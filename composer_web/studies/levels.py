"""What the product's studies and `make bench NAME=midtrain-study` have in common."""

LEVELS = {"S": 1, "M": 3, "L": 9}
"""Steps of mid-training, as a multiple of those of level S."""
LAST = 4
"""Steps of RL whose mean reward is the outcome."""
