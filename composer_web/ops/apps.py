from django.apps import AppConfig


class OperationsConfig(AppConfig):
    name = "composer_web.ops"
    label = "ops"
    verbose_name = "Operations"
    default_auto_field = "django.db.models.BigAutoField"
