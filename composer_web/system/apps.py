from django.apps import AppConfig


class SystemConfig(AppConfig):
    name = "composer_web.system"
    verbose_name = "System"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from composer_web.system import detectors

        detectors.install()
