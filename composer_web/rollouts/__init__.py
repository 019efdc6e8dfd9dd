"""Rollouts: dispatch, execution by Celery workers, verdicts, trajectories, findings, quarantine, forks and exports."""
