"""Datasets for SFT: uploaded conversations, or rollouts that filters and checks select."""
