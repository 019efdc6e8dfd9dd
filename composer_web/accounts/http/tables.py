"""Table of the audit log."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tables2 as tables
from django.template.loader import render_to_string
from django.utils.html import format_html

from composer_web.accounts.models import AuditEntry
from composer_web.ui.tables import STRONG, AgoColumn, Table

PLACES = {
    "run": "/runs/{}/",
    "rollout": "/rollouts/{}/",
    "eval": "/evaluations/{}/",
    "finding": "/findings/{}/",
    "environment": "/environments/{}/",
    "draft": "/drafts/{}/",
}
"""Kind of target → its page."""


class AuditTable(Table):
    help: ClassVar = {
        "action": "What was done: the kind of thing, and the verb.",
        "via": "Page, or API token, with the address that the request came from.",
        "changes": "Columns of the database that it changed.",
    }
    at = AgoColumn(verbose_name="When", orderable=False)
    actor_name = tables.Column(verbose_name="Who", attrs=STRONG, orderable=False)
    action = tables.Column(orderable=False)
    target = tables.Column(verbose_name="What", orderable=False)
    via = tables.Column(verbose_name="Source", orderable=False)
    changes = tables.Column(verbose_name="Before and after", empty_values=(), orderable=False)

    empty_template = "accounts/audit_empty.html"

    class Meta:
        model = AuditEntry
        fields = ("at", "actor_name", "action", "target", "via", "changes")

    def render_target(self, value: str) -> str:
        kind, _, key = value.partition(":")
        if kind in PLACES and key.isdigit():
            return format_html('<a href="{}">{}</a>', PLACES[kind].format(key), value)
        return value

    def render_via(self, record: AuditEntry) -> str:
        return format_html(
            '{}<div class="small muted">{}</div>',
            record.credential or {"page": "page", "api": "API"}.get(record.via, "the product"),
            record.address or "",
        )

    def render_changes(self, record: AuditEntry) -> str:
        return render_to_string("accounts/_changes.html", {"entry": record, "changes": told(record)})


def told(entry: AuditEntry) -> list[dict[str, Any]]:
    """Changes of an entry, one row per column: name, before, after. `more` is set where rows were omitted."""
    found = []
    for change in entry.changes:
        if "more" in change:
            found.append({"more": change["more"]})
            continue
        made = not change["before"]
        found += [
            {"row": change["row"], "name": name, "before": change["before"].get(name), "after": value, "made": made}
            for name, value in (change["after"] or change["before"]).items()
            if not made or value not in (None, "", [], {})  # a new row has its empty columns too
        ]
    return found
