"""Imports of models: `orders` keeps what was asked for, `worker` carries it out, `tasks` is what Celery calls."""
