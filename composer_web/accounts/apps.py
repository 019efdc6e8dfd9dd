from typing import Any

from django.apps import AppConfig
from django.core.management.color import no_style
from django.db import connection
from django.db.models.signals import post_migrate


class AccountsConfig(AppConfig):
    name = "composer_web.accounts"
    label = "accounts"
    verbose_name = "Accounts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from composer_web.accounts import mfa_middleware  # noqa: F401 (listens to log-ins)

        post_migrate.connect(_default_project, sender=self)


def _default_project(**_: Any) -> None:
    """Recreate the default project in a flushed database. Nothing can be created without it."""
    from composer_web.accounts.models import DEFAULT_PROJECT, Project

    known = {"slug": "default", "name": "Default", "open": True, "library": True}
    created = Project.objects.get_or_create(pk=DEFAULT_PROJECT, defaults=known)[1]
    if created:  # by its number, which the sequence does not know: the next project would be given the same
        with connection.cursor() as cursor:
            for statement in connection.ops.sequence_reset_sql(no_style(), [Project]):
                cursor.execute(statement)
