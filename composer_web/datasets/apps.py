from django.apps import AppConfig


class DatasetsConfig(AppConfig):
    name = "composer_web.datasets"
    label = "datasets"
    verbose_name = "Datasets"
    default_auto_field = "django.db.models.BigAutoField"
