from django.apps import AppConfig


class UiConfig(AppConfig):
    name = "composer_web.ui"
    verbose_name = "User interface"
    default_auto_field = "django.db.models.BigAutoField"
