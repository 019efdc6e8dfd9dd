from django.apps import AppConfig


class TasksConfig(AppConfig):
    name = "composer_web.tasks"
    label = "tasks"
    verbose_name = "Tasks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from composer_web.tasks import detectors

        detectors.install()
