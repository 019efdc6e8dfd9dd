"""The table of recorded sessions."""

from __future__ import annotations

from typing import ClassVar

import django_tables2 as tables
from django.utils.html import format_html

from composer_web.gateway.models import Session
from composer_web.ui.tables import STRONG, AgoColumn, NumberColumn, Table
from composer_web.ui.templatetags import ui


class SessionTable(Table):
    help: ClassVar = {
        "opening": "Beginning of the user's first message.",
        "policy": "Policy and version that answered. canary: the version under trial.",
        "turns": "Answers of the policy.",
        "edits": "Turns that changed files.",
        "questions": "Turns that asked the user something instead of acting.",
        "malformed": "Turns with a tool call that could not be read.",
        "good": "Turns that the user rated up.",
        "bad": "Turns that the user rated down.",
        "expires_at": "Day on which retention deletes the session.",
    }
    id = tables.Column(verbose_name="Session", linkify=("gateway:session", {"pk": tables.A("pk")}), attrs=STRONG)
    opening = tables.Column(verbose_name="Prompt", orderable=False)
    policy = tables.Column(verbose_name="Answered by", orderable=False)
    turns = NumberColumn()
    edits = NumberColumn(verbose_name="Edits")
    questions = NumberColumn(verbose_name="Asks")
    malformed = NumberColumn(verbose_name="Malformed tool calls")
    good = NumberColumn(verbose_name="Liked")
    bad = NumberColumn(verbose_name="Disliked")
    last_at = AgoColumn(verbose_name="Last turn")
    expires_at = tables.DateColumn(format="Y-m-d", verbose_name="Deleted on")

    empty_template = "gateway/empty.html"

    class Meta:
        model = Session
        fields = (
            "id", "opening", "policy", "turns", "edits", "questions", "malformed", "good", "bad", "last_at", "expires_at",
        )  # fmt: skip

    def render_opening(self, value: str) -> str:
        return format_html('<span class="clip" title="{}">{}</span>', value, value)

    def render_policy(self, record: Session) -> str:
        shown = record.policy.at(record.version)
        return format_html("{} {}", shown, ui.badge("canary")) if record.canary else shown
