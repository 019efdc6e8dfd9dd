"""The quota of a user or of a project."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts.audit_triggers import Audited


class Quota(models.Model):
    """Limits on what the runs of a user or of a project may use at once. A row with neither applies to every user
    without a quota of their own. Null means no limit."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, blank=True, related_name="quota"
    )
    project = models.OneToOneField(
        "accounts.Project", on_delete=models.PROTECT, null=True, blank=True, related_name="quota"
    )
    concurrent_rollouts = models.PositiveIntegerField(null=True, blank=True)
    storage_gib = models.FloatField(null=True, blank=True, help_text="Kept checkpoints, in GiB")
    gpu_share = models.FloatField(null=True, blank=True, help_text="Of all rollouts in flight, while others run")
    gpus = models.PositiveIntegerField(null=True, blank=True, help_text="That its runs train on at once")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        app_label = "ops"  # the table and its migrations
        constraints = [
            models.UniqueConstraint(fields=["user", "project"], name="quota_one_for_everybody", nulls_distinct=False),
            models.CheckConstraint(
                condition=models.Q(user=None) | models.Q(project=None), name="quota_of_a_person_or_a_project"
            ),
            models.CheckConstraint(
                condition=models.Q(gpu_share=None) | models.Q(gpu_share__gt=0, gpu_share__lt=1), name="quota_share"
            ),
        ]
        triggers = [
            Audited("project_id", "user_id", "concurrent_rollouts", "storage_gib", "gpu_share", "gpus", removed=True)
        ]

    def __str__(self) -> str:
        return f"quota of {self.user or self.project or 'everybody'}"
