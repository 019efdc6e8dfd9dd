from django.apps import AppConfig


class RolloutsConfig(AppConfig):
    name = "composer_web.rollouts"
    label = "rollouts"
    verbose_name = "Rollouts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from composer_web.rollouts import batches  # noqa: F401 (receives `group_ended`)
