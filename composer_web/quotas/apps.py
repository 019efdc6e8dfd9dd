from django.apps import AppConfig


class QuotasConfig(AppConfig):
    name = "composer_web.quotas"
    verbose_name = "Quotas"
    default_auto_field = "django.db.models.BigAutoField"
