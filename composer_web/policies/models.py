"""Policies: lineages of weights with their checkpoints on disk, models behind endpoints, and what is promoted."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts.owned import Material, SharedManager


class PolicyKind(models.TextChoices):
    WEIGHTS = "weights"
    ENDPOINT = "endpoint"


class Policy(Material):
    """A lineage of weights, or a model behind an endpoint, which is only ever evaluated.

    The run that makes a lineage is `policy.produced_by` (reverse of Run.policy_out).
    """

    name = models.CharField(max_length=100, unique=True)
    description = models.TextField(blank=True)
    kind = models.CharField(max_length=8, choices=PolicyKind, default=PolicyKind.WEIGHTS)
    base_dir = models.CharField(
        max_length=400, blank=True, help_text="Hugging Face directory with configuration and tokenizer"
    )
    architecture = models.JSONField(default=dict, help_text="Class, sizes, parameters")
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")
    parent_version = models.PositiveIntegerField(null=True, blank=True)
    toy = models.BooleanField(default=False, help_text="Only good for showing that the machinery learns")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]
        verbose_name_plural = "policies"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(kind="weights") & ~models.Q(base_dir="") | models.Q(kind="endpoint", base_dir=""),
                name="policy_has_weights_or_endpoint",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_endpoint(self) -> bool:
        return self.kind == PolicyKind.ENDPOINT

    def at(self, version: int) -> str:
        """`name@version`; an endpoint has no versions."""
        return self.name if self.is_endpoint else f"{self.name}@{version}"


class Endpoint(models.Model):
    """Where a policy without weights is asked: any server of the OpenAI chat-completions shape.

    The model never changes (trigger): its name stands for scores. Prices are dollars for a million tokens.
    """

    policy = models.OneToOneField(Policy, on_delete=models.PROTECT, related_name="endpoint")
    url = models.CharField(max_length=400, help_text="Base of the API, for example https://host/v1")
    model = models.CharField(max_length=200)
    key = models.TextField(blank=True, editable=False, help_text="Encrypted (see keys.py)")
    effort = models.CharField(
        max_length=12, blank=True, help_text="Sent as reasoning_effort unless an evaluation says else"
    )
    limit_field = models.CharField(
        max_length=24,
        choices=[("max_tokens", "max_tokens"), ("max_completion_tokens", "max_completion_tokens")],
        default="max_tokens",
    )
    takes_temperature = models.BooleanField(default=True)
    parameters = models.JSONField(default=dict, blank=True, help_text="More fields of each request")
    price_input = models.FloatField(default=0.0)
    price_cached = models.FloatField(null=True, blank=True, help_text="Of tokens read from its cache; empty: as others")
    price_output = models.FloatField(default=0.0)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(price_input__gte=0, price_output__gte=0)
                & (models.Q(price_cached=None) | models.Q(price_cached__gte=0)),
                name="endpoint_prices_not_negative",
            )
        ]

    def __str__(self) -> str:
        return f"{self.model} at {self.url}"


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


class MeasurementManager(SharedManager["Measurement"]):
    """Those of policies that the project may see."""

    path = "policy__project_id"


class Measurement(models.Model):
    """What a policy version scored on a codebase as a candidate for a base (`manage.py measure`)."""

    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="measurements")
    version = models.PositiveIntegerField()
    codebase = models.CharField(max_length=200)
    text_digest = models.CharField(max_length=64, help_text="Of what was read: measurements of one text compare")
    before = models.CharField(max_length=64, blank=True, help_text="The commit that recent lines came after")
    window = models.PositiveIntegerField(help_text="Tokens seen at a time")
    result = models.JSONField(help_text="trainer.stages.scores.Selection")
    created_at = models.DateTimeField(auto_now=True)

    objects = MeasurementManager()

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["text_digest", "before"], name="measurement_by_text")]
        constraints = [
            models.UniqueConstraint(
                fields=["policy", "version", "text_digest", "before", "window"], name="measurement_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.policy_id}@{self.version} on {self.codebase}"


class Gate(models.Model):
    """What a policy version must have shown before it may be promoted on a channel."""

    channel = models.SlugField(max_length=40, unique=True)
    rules = models.JSONField(default=list, blank=True, help_text="[composer_web.policies.gate.Rule]")
    updated_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"gate of {self.channel}"


class Promotion(models.Model):
    """A change of what a channel serves, and all that it serves from then on. Append-only (trigger); the newest counts."""

    channel = models.SlugField(max_length=40)
    kind = models.CharField(
        max_length=8,
        choices=[("promote", "Promoted"), ("canary", "Canary"), ("end", "Canary ended"), ("rollback", "Rolled back")],
    )
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="promotions")
    version = models.PositiveIntegerField()
    canary_policy = models.ForeignKey(Policy, on_delete=models.PROTECT, null=True, blank=True, related_name="canaries")
    canary_version = models.PositiveIntegerField(null=True, blank=True)
    canary_share = models.FloatField(default=0.0, help_text="Share of new sessions that the canary answers")
    gate = models.JSONField(
        default=list, blank=True, help_text="[composer_web.policies.gate.Outcome]: what the gate saw"
    )
    note = models.TextField(blank=True)
    guard = models.BooleanField(default=False, db_default=False, help_text="A guard made it, not a person")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["channel", "-id"], name="promotion_by_channel")]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(canary_policy=None, canary_version=None, canary_share=0)
                | models.Q(
                    canary_policy__isnull=False, canary_version__isnull=False, canary_share__gt=0, canary_share__lt=1
                ),
                name="promotion_canary_has_share",
            )
        ]

    def __str__(self) -> str:
        return f"{self.channel}: {self.policy_id}@{self.version}"

    @property
    def share_promoted(self) -> float:
        return 1.0 - self.canary_share
