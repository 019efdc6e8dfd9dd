"""Policies: lineages of weights, and the checkpoints on disk."""

from __future__ import annotations

from django.db import models


class Policy(models.Model):
    """A lineage of weights. The run that makes it is `policy.produced_by` (reverse of Run.policy_out)."""

    name = models.CharField(max_length=100, unique=True)
    description = models.TextField(blank=True)
    base_dir = models.CharField(max_length=400, help_text="Hugging Face directory with configuration and tokenizer")
    architecture = models.JSONField(default=dict, help_text="Class, sizes, parameters")
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")
    parent_version = models.PositiveIntegerField(null=True, blank=True)
    toy = models.BooleanField(default=False, help_text="Only good for showing that the machinery learns")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]
        verbose_name_plural = "policies"

    def __str__(self) -> str:
        return self.name


class Checkpoint(models.Model):
    """Weights of one policy version as a directory on disk."""

    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="checkpoints")
    version = models.PositiveIntegerField(help_text="Policy version: one per optimiser step")
    kind = models.CharField(
        max_length=8, choices=[("base", "Imported"), ("step", "Resumable"), ("final", "Final weights")], default="step"
    )
    digest = models.CharField(max_length=80, blank=True)
    path = models.CharField(max_length=400)
    bytes = models.PositiveBigIntegerField(default=0)
    removed_at = models.DateTimeField(null=True, blank=True, help_text="When retention deleted the files")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["policy_id", "-version"]
        constraints = [models.UniqueConstraint(fields=["policy", "version", "kind"], name="checkpoint_once")]

    def __str__(self) -> str:
        return f"{self.policy_id}@{self.version}"
