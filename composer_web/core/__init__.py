"""Primitives that every app builds on, and that import none: tables, histories, artifacts, errors, detectors.

`queue/` holds background work (tasks, outbox, leases, heartbeats), `network/` what HTTP needs on both sides. The Django
app keeps the label `ops`, which the tables and migrations have.
"""
