"""Primitives that every app builds on, and that import none: outbox, leases, tasks, artifacts, heartbeats, errors.

Its Django app keeps the label `ops`, which the tables and migrations have.
"""
