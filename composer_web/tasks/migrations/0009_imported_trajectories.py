"""What is listed of an imported trajectory; its steps stay with the artifacts."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tasks", "0008_newest_version"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]
    operations = [
        migrations.CreateModel(
            name="ImportedTrajectory",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=32, unique=True, help_text="Begin of the SHA-256 of its content")),
                ("title", models.CharField(max_length=200, help_text="Its id in the project that it comes from")),
                ("format", models.CharField(max_length=16)),
                ("task", models.CharField(blank=True, max_length=200)),
                ("agent", models.CharField(blank=True, max_length=200)),
                ("model", models.CharField(blank=True, max_length=200)),
                ("steps", models.PositiveIntegerField()),
                ("policy_tokens", models.PositiveIntegerField(default=0)),
                ("reward", models.FloatField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"ordering": ["-id"]},
        ),
    ]
