"""What the sampler chose and the trainer repeats: experts of mixture-of-experts layers, tokens open to sampling.

`wire` imports neither torch nor the library: rollouts and the inference contract carry its types.
"""
