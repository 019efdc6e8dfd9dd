"""Mid-training studies: three lengths of mid-training of one policy, each followed by the same SFT and the same RL.

A study answers one question about a policy and a codebase: does the loss on the codebase after SFT predict the reward that RL
reaches? `services.py` creates its runs, `results.py` reads what they came to, `correlation.py` is the statistics.
"""
