"""Policies and their checkpoints: import, model endpoints, promotion with gate and canary, measurements of base models."""
