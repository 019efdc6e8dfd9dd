"""Supervised fine-tuning on conversations or on recorded expert episodes.

stage.py         the training stage
conversations/   reads, checks and stores conversations of a dataset
templates.py     checks that a chat template is token-exact
"""
