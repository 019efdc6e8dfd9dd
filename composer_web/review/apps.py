from django.apps import AppConfig


class ReviewConfig(AppConfig):
    name = "composer_web.review"
    label = "review"
    verbose_name = "Review"
    default_auto_field = "django.db.models.BigAutoField"
