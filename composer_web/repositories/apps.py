from django.apps import AppConfig


class RepositoriesConfig(AppConfig):
    name = "composer_web.repositories"
    label = "repositories"
    verbose_name = "Repositories"
    default_auto_field = "django.db.models.BigAutoField"
