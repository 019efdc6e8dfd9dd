"""Quotas: limits on what the runs of a user or of a project use at once, their usage, API and page."""
