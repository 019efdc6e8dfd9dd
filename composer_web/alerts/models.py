"""Alert rules, alerts, recipients, and every external delivery."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts import access
from composer_web.accounts.audit_triggers import Audited
from composer_web.accounts.models import Project, Role
from composer_web.alerts.triggers import ProjectOfSubject


class Kind(models.TextChoices):
    METRIC = "metric", "A metric of a run"
    FINDING = "finding", "A finding of the auditor"
    RUN_FAILED = "run_failed", "A run failed"
    INFRA_SHARE = "infra_share", "Share of infra errors"
    WORKER_GONE = "worker_gone", "A process went offline"
    GUARD = "guard", "A guard ended a canary"
    ENGINE_LAG = "engine_lag", "An engine serves old weights"
    DETECTOR = "detector", "A built-in detector"


class Comparison(models.TextChoices):
    ABOVE = "above", "above"
    BELOW = "below", "below"


class Severity(models.TextChoices):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Event(models.TextChoices):
    """What a webhook can be told of without a rule; the value is the `type` of the message."""

    RUN_FINISHED = "run.finished", "A run finished"
    RUN_FAILED = "run.failed", "A run failed"
    RUN_STOPPED = "run.stopped", "A run was stopped"
    EVALUATION_FINISHED = "evaluation.finished", "An evaluation finished"
    EVALUATION_FAILED = "evaluation.failed", "An evaluation failed"
    POLICY_PROMOTED = "policy.promoted", "A policy was promoted"
    POLICY_ROLLED_BACK = "policy.rolled_back", "A policy was rolled back"
    CANARY_ENDED = "canary.ended", "A canary was ended, by a guard or by hand"
    ALERT_OPENED = "alert.opened", "An alert of any rule began"
    ALERT_RESOLVED = "alert.resolved", "An alert of any rule is over"


class Webhook(models.Model):
    """An address that gets signed messages. The secret is sealed and shown once."""

    name = models.CharField(max_length=80, unique=True)
    url = models.CharField(max_length=400)
    secret = models.TextField()
    events = models.JSONField(default=list, blank=True, help_text="What it is told of without a rule")
    active = models.BooleanField(default=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        triggers = [Audited("name", "url", "active", "events", secret=["secret"], removed=True)]

    def __str__(self) -> str:
        return self.name

    @property
    def told_of(self) -> list[str]:
        """Its events in words."""
        return [str(Event(one).label) for one in self.events]


class Rule(models.Model):
    """When to raise an alert, and whom to tell. Fields that a kind does not read are empty."""

    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField(max_length=12, choices=Kind)
    metric = models.CharField(max_length=100, blank=True, help_text="Of the metric kind, for example reward/mean")
    detector = models.CharField(max_length=40, blank=True, default="", db_default="", help_text="Of the detector kind")
    builtin = models.BooleanField(
        default=False, db_default=False, help_text="Ships with the product: it can be switched off, not deleted"
    )
    comparison = models.CharField(max_length=5, choices=Comparison, default=Comparison.ABOVE)
    threshold = models.FloatField(default=0.0)
    window = models.PositiveIntegerField(default=1, help_text="Points whose mean is compared, or minutes for shares")
    severity = models.CharField(max_length=6, choices=Severity, default=Severity.HIGH, help_text="Least of findings")
    run_name = models.CharField(max_length=80, blank=True, help_text="Only runs whose name holds this")
    quiet_minutes = models.PositiveIntegerField(default=30, help_text="An alert that comes back sooner tells nobody")
    role = models.CharField(max_length=10, choices=Role, default=Role.OPERATOR, help_text="Who sees it in the product")
    emails = models.JSONField(default=list, blank=True)
    webhook = models.ForeignKey(Webhook, on_delete=models.SET_NULL, null=True, blank=True, related_name="rules")
    active = models.BooleanField(default=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=models.Q(window__gte=1), name="alert_rule_has_a_window"),
            models.UniqueConstraint(
                fields=["detector"], condition=models.Q(builtin=True), name="one_builtin_rule_of_a_detector"
            ),
        ]
        triggers = [
            Audited(
                *("name", "kind", "metric", "comparison", "threshold", "window", "severity", "run_name"),
                *("quiet_minutes", "role", "emails", "webhook_id", "active"),
                removed=True,
            )
        ]

    def __str__(self) -> str:
        return self.name


class AlertManager(models.Manager["Alert"]):
    """Those of the request's project, and those of the installation."""

    def get_queryset(self) -> models.QuerySet[Alert]:
        now = access.current()
        rows = super().get_queryset()
        if now is None or now.scope is None:
            return rows
        return rows.filter(models.Q(project_id=now.scope) | models.Q(project=None))


class Alert(models.Model):
    """Something that a rule saw, from when until when. At most one is open for a rule and what it is about."""

    rule = models.ForeignKey(Rule, on_delete=models.CASCADE, related_name="alerts")
    about = models.CharField(max_length=120, help_text="run:12, worker:name or finding:3")
    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
        help_text="Of what it is about, by a trigger; empty for what is the installation's",
    )
    message = models.TextField()
    step = models.PositiveIntegerField(null=True, blank=True, help_text="At which it began, of what is about a run")
    opened_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True, blank=True)
    told_at = models.DateTimeField(null=True, blank=True, help_text="When people were told; empty while debounced")

    objects = AlertManager()

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["about"], name="alert_about")]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "about"], condition=models.Q(resolved_at=None), name="alert_open_once"
            ),
            models.CheckConstraint(
                condition=models.Q(resolved_at=None) | models.Q(resolved_at__gte=models.F("opened_at")),
                name="alert_ends_after_it_began",
            ),
        ]
        triggers = [ProjectOfSubject()]

    def __str__(self) -> str:
        return self.message

    @property
    def state(self) -> str:
        return "resolved" if self.resolved_at else "open"


class Notice(models.Model):
    """What one person is told in the product."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notices")
    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="notices")
    resolved = models.BooleanField(default=False, help_text="Tells of the end, not of the beginning")
    created_at = models.DateTimeField(auto_now_add=True)
    read_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["user"], name="notice_unread", condition=models.Q(read_at=None))]
        constraints = [models.UniqueConstraint(fields=["user", "alert", "resolved"], name="notice_once")]

    def __str__(self) -> str:
        return f"{self.user_id}: {self.alert_id}"


class Delivery(models.Model):
    """One message to an address outside, with every try."""

    class State(models.TextChoices):
        WAITING = "waiting"
        SENT = "sent"
        FAILED = "failed"

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, null=True, blank=True, related_name="deliveries")
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, null=True, blank=True, related_name="deliveries")
    email = models.CharField(max_length=254, blank=True)
    body = models.JSONField()
    state = models.CharField(max_length=8, choices=State, default=State.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="HTTP status of the last answer")
    error = models.TextField(blank=True)
    due_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["due_at"], name="delivery_due", condition=models.Q(state="waiting"))]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(webhook=None) ^ models.Q(email=""), name="delivery_has_one_address"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.email or self.webhook} {self.state}"
