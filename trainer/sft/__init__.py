"""Supervised fine-tuning on conversations or on recorded expert episodes.

stage.py            the training stage
conversations/      reads, checks and stores conversations of a dataset
expert_episodes.py  episodes of a scripted expert, as a cache file and as token streams
recording.py        runs the expert in sandboxes
templates.py        checks that a chat template is token-exact
"""
