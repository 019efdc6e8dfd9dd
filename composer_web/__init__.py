"""Control plane: Django project, web, API, live, and the Celery application."""

from composer_web.celery import app as celery_app

__all__ = ["celery_app"]
