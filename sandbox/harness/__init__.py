"""The product harness: the tools that a policy works with, the same in training and in use."""
