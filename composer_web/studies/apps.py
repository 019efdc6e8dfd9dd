from django.apps import AppConfig


class StudiesConfig(AppConfig):
    name = "composer_web.studies"
    label = "studies"
    verbose_name = "Mid-training studies"
    default_auto_field = "django.db.models.BigAutoField"
