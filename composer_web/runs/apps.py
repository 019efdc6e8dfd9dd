from importlib import import_module

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "composer_web.runs"
    label = "runs"
    verbose_name = "Runs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import_module("composer_web.runs.detectors.registry").install()
