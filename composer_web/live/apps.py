from django.apps import AppConfig


class LiveConfig(AppConfig):
    name = "composer_web.live"
    label = "live"
    verbose_name = "Live"
    default_auto_field = "django.db.models.BigAutoField"
