"""Mid-training studies and the place of each of their runs."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts.audit_triggers import Audited
from composer_web.accounts.scoping import KeepsProject, Owned
from composer_web.core.triggers import AppendOnly
from composer_web.runs.models import Run


class Level(models.TextChoices):
    """Length of the mid-training. The factors of the steps are in `levels.LEVELS`."""

    S = "S", "Small"
    M = "M", "Medium"
    L = "L", "Large"


class Study(Owned):
    """Chains of runs (mid-training, SFT, RL) that differ only in the length of mid-training and in the seed."""

    name = models.CharField(max_length=40)
    wanted = models.JSONField(help_text="studies.schemas.StudyIn")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "studies"
        triggers = [KeepsProject(), Audited("name")]

    def __str__(self) -> str:
        return self.name


class StudyRun(models.Model):
    """A run of a study. Its kind is the stage, and its seed is the chain's."""

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="members")
    run = models.OneToOneField(Run, on_delete=models.PROTECT, related_name="place_in_study")
    level = models.CharField(max_length=1, choices=Level)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=models.Q(level__in=["S", "M", "L"]), name="study_run_has_a_level")
        ]
        triggers = [AppendOnly()]

    def __str__(self) -> str:
        return f"{self.level} of study {self.study_id}: run {self.run_id}"
