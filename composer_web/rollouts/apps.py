from importlib import import_module

from django.apps import AppConfig


class RolloutsConfig(AppConfig):
    name = "composer_web.rollouts"
    label = "rollouts"
    verbose_name = "Rollouts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from composer_web.rollouts import detectors

        detectors.install()
        import_module("composer_web.rollouts.dispatch.batches")  # receives `group_ended`
