"""Signals of groups, for modules that are built on dispatch."""

from django.dispatch import Signal

group_ended = Signal()
"""A group of a running run was accepted or dropped. Sent inside that transaction, with `run_id`."""
