"""The gateway: channel settings, recorded sessions with their turns, and user signals.

A session is one user's data: deleting it deletes its turns, its signals and its blobs. Until then, signals are
append-only.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts.audit_triggers import Audited
from composer_web.accounts.scoping import KeepsProject, Owned
from composer_web.gateway.triggers import KeptUntilErased
from composer_web.policies.models import Policy
from composer_web.review.models import Draft


class Channel(models.Model):
    """Settings of one channel (composer_web.gateway.configuration.Settings)."""

    name = models.SlugField(max_length=40, unique=True)
    configured = models.JSONField(default=dict)
    erasures = models.PositiveBigIntegerField(
        default=0, help_text="Deletions of sessions so far; what a process remembers from before the newest is void"
    )
    updated_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        triggers = [Audited("name", "configured", removed=True)]

    def __str__(self) -> str:
        return self.name


class Session(Owned):
    """A recorded session of a user who opted in. The user is stored only as a keyed digest."""

    channel = models.SlugField(max_length=40)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    client_id = models.CharField(max_length=120, help_text="The client's own name of the session")
    subject = models.CharField(max_length=64, blank=True, help_text="Keyed digest of the end user")
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="sessions")
    version = models.PositiveIntegerField(help_text="That answered the newest turn")
    oldest_version = models.PositiveIntegerField(help_text="That answered any turn")
    canary = models.BooleanField(default=False)
    turns = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    edits = models.PositiveIntegerField(default=0, help_text="Turns that edit")
    questions = models.PositiveIntegerField(default=0, help_text="Turns that only ask")
    malformed = models.PositiveIntegerField(default=0, help_text="Turns with a malformed tool call")
    redactions = models.PositiveIntegerField(default=0)
    opening = models.CharField(max_length=300, blank=True, help_text="What the user asked for first, redacted")
    seen = models.PositiveIntegerField(default=0, help_text="Messages of the transcript after the newest turn")
    seen_digest = models.CharField(max_length=64, blank=True)
    opened_at = models.DateTimeField(auto_now_add=True)
    last_at = models.DateTimeField(auto_now=True)
    expires_at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["subject"], name="sessions_of_subject"),
            models.Index(fields=["expires_at"], name="sessions_by_expiry"),
            models.Index(fields=["policy", "version", "id"], name="sessions_of_version"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["owner", "client_id", "project"], name="session_once"),
            models.CheckConstraint(
                condition=models.Q(oldest_version__lte=models.F("version")), name="session_versions_in_order"
            ),
        ]
        triggers = [KeepsProject()]

    def __str__(self) -> str:
        return f"session {self.pk}"

    @property
    def policy_name(self) -> str:
        return self.policy.name


class SessionTurn(models.Model):
    """One request and its answer; texts and tokens are a blob (trainer.realtime.sessions.RecordedTurn)."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="recorded")
    index = models.PositiveIntegerField()
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="+")
    version = models.PositiveIntegerField()
    facts = models.JSONField(help_text="trainer.realtime.reading.TurnFacts")
    finish = models.CharField(max_length=12)
    input_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    first_token_ms = models.FloatField(default=0)
    total_ms = models.FloatField(default=0)
    artifact_key = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["session_id", "index"]
        indexes = [models.Index(fields=["policy", "version", "-id"], name="turns_of_version")]
        constraints = [models.UniqueConstraint(fields=["session", "index"], name="session_turn_once")]
        triggers = [KeptUntilErased()]

    def __str__(self) -> str:
        return f"{self.session_id}[{self.index}]"


class SignalRow(models.Model):
    """What a user did. Never changed; deleted only with its session (trigger)."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="signals")
    client_id = models.CharField(max_length=120, help_text="The client's own name of the signal: sent twice, kept once")
    kind = models.CharField(
        max_length=12,
        choices=[
            ("accept", "Accepted"),
            ("reject", "Rejected"),
            ("edit_kept", "Edit kept"),
            ("dissatisfied", "Dissatisfied follow-up"),
            ("latency", "Latency"),
        ],
    )
    turn = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: about the whole session")
    value = models.FloatField(default=1.0)
    after = models.CharField(max_length=40, blank=True, help_text="When an edit was looked at: 30 minutes, 2 commits")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["session", "client_id"], name="signal_once"),
            models.CheckConstraint(
                condition=models.Q(value__gte=0) & (models.Q(kind="latency") | models.Q(value__lte=1)),
                name="signal_value_in_range",
            ),
        ]
        triggers = [KeptUntilErased()]

    def __str__(self) -> str:
        return f"{self.kind} of {self.session_id}"


class SessionExport(models.Model):
    """An export whose file holds a session, or is about to. A session is deleted after these are void
    (gateway/export_links.py)."""

    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="exports")
    export = models.ForeignKey("rollouts.Export", on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "export"], name="session_held_once")]

    def __str__(self) -> str:
        return f"session {self.session_id} in export {self.export_id}"


class SessionDraft(models.Model):
    """A draft of a task created from a session."""

    session = models.ForeignKey(Session, on_delete=models.SET_NULL, null=True, related_name="drafts")
    draft = models.OneToOneField(Draft, on_delete=models.CASCADE, related_name="from_session")

    def __str__(self) -> str:
        return f"draft {self.draft_id} of {self.session_id}"


class SessionUse(models.Model):
    """A training step of a run that uses a session. Recorded before the step is trained; each run trains on a
    session once."""

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="sessions_used")
    step = models.PositiveIntegerField()
    place = models.PositiveIntegerField(help_text="In the order of the step")
    session = models.ForeignKey(Session, on_delete=models.SET_NULL, null=True, related_name="uses")
    turns = models.PositiveIntegerField(help_text="That it had then")
    signals = models.PositiveBigIntegerField(help_text="Newest signal that counted")

    class Meta:
        ordering = ["run_id", "step", "place"]
        constraints = [
            models.UniqueConstraint(fields=["run", "session"], name="session_trains_once_a_run"),
            models.UniqueConstraint(fields=["run", "step", "place"], name="session_place_once"),
        ]

    def __str__(self) -> str:
        return f"session {self.session_id} in step {self.step} of run {self.run_id}"
