"""Filters and full-text search of rollouts and findings."""
