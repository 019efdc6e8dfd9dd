from django.apps import AppConfig


class CoreConfig(AppConfig):
    name = "composer_web.core"
    label = "ops"
    verbose_name = "Core"
    default_auto_field = "django.db.models.BigAutoField"
