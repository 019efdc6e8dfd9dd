"""Training: rollouts, algorithms, learning, weights, inference and the stages. Needs no Django.

Data flows one way: task → rollout → verdict → group → step → weights → engine. `types.py` holds the types that all
packages exchange; `rl/rl_sync.py` shows the whole algorithm in one loop.
"""
