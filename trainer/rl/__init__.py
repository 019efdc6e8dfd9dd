"""Reinforcement learning.

rl_sync.py    the whole algorithm in one loop, without a database or a queue
stage.py      the trainer's side of asynchronous RL: batch, step, publish, checkpoint
reference.py  the reference policy of the KL term
evaluate.py   evaluation on held-out tasks
"""
