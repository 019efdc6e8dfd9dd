from django.apps import AppConfig


class EvaluationsConfig(AppConfig):
    name = "composer_web.evals"
    label = "evals"
    verbose_name = "Evaluations"
    default_auto_field = "django.db.models.BigAutoField"
