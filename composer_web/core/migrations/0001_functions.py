"""The database functions behind histories; every app's triggers depend on this migration."""

from django.db import migrations

from composer_web.core.history import FUNCTIONS


class Migration(migrations.Migration):
    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [FUNCTIONS]
