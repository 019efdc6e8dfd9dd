from django.apps import AppConfig


class DatasetsConfig(AppConfig):
    name = "composer_web.datasets"
    label = "datasets"
    verbose_name = "Datasets"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from composer_web.datasets import checks
        from composer_web.runs import config_checks

        config_checks.register(checks.check)
