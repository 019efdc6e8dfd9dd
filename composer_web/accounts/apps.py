from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "composer_web.accounts"
    label = "accounts"
    verbose_name = "Accounts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from composer_web.accounts import signing_in  # noqa: F401 (listens to log-ins)
