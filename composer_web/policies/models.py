"""Policies: lineages of weights with checkpoints on disk, models behind endpoints, and promotions."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts.audit_triggers import Audited
from composer_web.accounts.scoping import KeepsProject, Material, Owned
from composer_web.core.triggers import AppendOnly, Immutable


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
    template_problem = models.TextField(
        blank=True, default="", help_text="Why its chat template cannot drive episodes, as found at the import; empty: it can"
    )
    facts = models.JSONField(
        default=dict, blank=True, help_text="trainer.model_import.ModelFacts, as found at the import; empty: an older one"
    )
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
        triggers = [KeepsProject(), Audited("name", "description", "kind")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_endpoint(self) -> bool:
        return self.kind == PolicyKind.ENDPOINT

    def at(self, version: int) -> str:
        """`name@version`. Endpoints have no versions."""
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
        triggers = [
            Immutable("policy_id", "model"),
            Audited("url", "model", "effort", "parameters", "price_input", "price_output", secret=["key"]),
        ]

    def __str__(self) -> str:
        return f"{self.model} at {self.url}"


class Checkpoint(models.Model):
    """Weights of one policy version in a directory on disk."""

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


class Measurement(Material):
    """Score of a policy version on a codebase, as a base model candidate. It belongs to the requesting project,
    which owns the codebase, and not to the policy's project, which may be a library."""

    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="measurements")
    version = models.PositiveIntegerField()
    codebase = models.CharField(max_length=200)
    text_digest = models.CharField(max_length=64, help_text="Of what was read: measurements of one text compare")
    before = models.CharField(max_length=64, blank=True, help_text="The commit that recent lines came after")
    window = models.PositiveIntegerField(help_text="Tokens seen at a time")
    result = models.JSONField(help_text="trainer.model_selection.scores.Selection")
    created_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["text_digest", "before"], name="measurement_by_text")]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "policy", "version", "text_digest", "before", "window"], name="measurement_once"
            )
        ]
        triggers = [KeepsProject()]

    def __str__(self) -> str:
        return f"{self.policy_id}@{self.version} on {self.codebase}"


class OrderState(models.TextChoices):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


ORDER_OPEN = (OrderState.WAITING, OrderState.RUNNING)


class MeasurementOrder(Owned):
    """A requested measurement and its outcome. A worker executes it."""

    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="measurement_orders")
    version = models.PositiveIntegerField()
    wanted = models.JSONField(help_text="policies.schemas.Wanted")
    key = models.CharField(max_length=64, help_text="Digest of what is wanted: asked twice, measured once")
    state = models.CharField(max_length=8, choices=OrderState, default=OrderState.WAITING)
    doing = models.CharField(max_length=80, blank=True, help_text="What the worker does now")
    share = models.FloatField(default=0.0, help_text="Of that, what is done")
    attempts = models.PositiveSmallIntegerField(default=0)
    cause = models.TextField(blank=True, help_text="Why there is no measurement")
    measurement = models.ForeignKey(Measurement, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["policy", "-id"], name="measurement_order_by_policy")]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "policy", "version", "key"],
                condition=models.Q(state__in=["waiting", "running"]),
                name="measurement_order_open_once",
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=["waiting", "running"], finished_at=None)
                | models.Q(state__in=["done", "failed", "stopped"], finished_at__isnull=False),
                name="measurement_order_ends_once",
            ),
            models.CheckConstraint(
                condition=~models.Q(state__in=["failed", "stopped"]) | ~models.Q(cause=""),
                name="measurement_order_says_why",
            ),
        ]
        triggers = [KeepsProject()]

    def __str__(self) -> str:
        return f"{self.policy_id}@{self.version} on {self.codebase}"

    @property
    def codebase(self) -> str:
        return str(self.wanted.get("codebase", ""))

    @property
    def open(self) -> bool:
        return self.state in ORDER_OPEN


class PolicyImport(Owned):
    """A requested import of a model and its outcome. A worker executes it."""

    name = models.CharField(max_length=100)
    path = models.CharField(max_length=400, help_text="Folder, safetensors or GGUF file on the workers' machine")
    template = models.TextField(blank=True, help_text="Chat template: a shipped one's name, or its text; empty: its own")
    renderer = models.CharField(max_length=40, default="auto")
    description = models.TextField(blank=True)
    state = models.CharField(max_length=8, choices=OrderState, default=OrderState.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    cause = models.TextField(blank=True, help_text="Why there is no policy")
    policy = models.ForeignKey(Policy, on_delete=models.SET_NULL, null=True, blank=True, related_name="imports")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["name"],
                condition=models.Q(state__in=["waiting", "running"]),
                name="policy_import_open_once",
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=["waiting", "running"], finished_at=None)
                | models.Q(state__in=["done", "failed", "stopped"], finished_at__isnull=False),
                name="policy_import_ends_once",
            ),
            models.CheckConstraint(
                condition=~models.Q(state__in=["failed", "stopped"]) | ~models.Q(cause=""),
                name="policy_import_says_why",
            ),
        ]
        triggers = [KeepsProject()]

    def __str__(self) -> str:
        return f"{self.name} from {self.path}"

    @property
    def open(self) -> bool:
        return self.state in ORDER_OPEN


class Gate(models.Model):
    """Requirements for promoting a policy version on a channel."""

    channel = models.SlugField(max_length=40, unique=True)
    rules = models.JSONField(default=list, blank=True, help_text="[composer_web.policies.promotion.gate.GateRule]")
    updated_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        triggers = [Audited("channel", "rules")]

    def __str__(self) -> str:
        return f"gate of {self.channel}"


class Promotion(models.Model):
    """A change of what a channel serves, with the full state after it. Append-only (trigger); the newest row
    applies."""

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
        default=list, blank=True, help_text="[composer_web.policies.promotion.gate.Outcome]: what the gate saw"
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
        triggers = [AppendOnly(), Audited("channel", "kind", "policy_id", "version", "canary_share")]

    def __str__(self) -> str:
        return f"{self.channel}: {self.policy_id}@{self.version}"

    @property
    def share_promoted(self) -> float:
        return 1.0 - self.canary_share
