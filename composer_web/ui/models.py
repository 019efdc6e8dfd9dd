"""What people keep of the lists."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts.scoping import KeepsProject, Owned


class ListName(models.TextChoices):
    """Lists whose views can be saved."""

    RUNS = "runs"
    ROLLOUTS = "rollouts"
    TASKS = "tasks"
    EVALUATIONS = "evaluations"
    FINDINGS = "findings"
    ANNOTATIONS = "annotations"


class SavedView(Owned):
    """A named address of a list: filters, columns and order. Everybody in the project can open shared views."""

    table = models.CharField(max_length=20, choices=ListName.choices)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=60)
    query = models.TextField(blank=True, help_text="Query string of the list")
    shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["project", "owner", "table", "name"], name="one_view_of_a_name"),
            models.CheckConstraint(condition=models.Q(table__in=ListName.values), name="view_of_a_known_list"),
        ]
        triggers = [KeepsProject()]

    def __str__(self) -> str:
        return self.name
