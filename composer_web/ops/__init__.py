"""Operations and shared code: outbox, leases, tasks, artifacts, health, reconciler, quotas, tables and form helpers.

Other apps import this app. Its reports (health, reconcile, prometheus) import the other apps.
"""
