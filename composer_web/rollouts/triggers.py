"""Triggers of findings."""

from __future__ import annotations

import pgtrigger

from composer_web.core.triggers import Immutable, Trigger

DECIDED = Immutable(
    *("rule_version", "severity", "summary", "evidence", "hits", "fingerprint"),
    only="OLD.state = 'confirmed' OR (OLD.state = 'dismissed' AND NEW.state <> 'open')",
    name="decided",
)
"""A dismissed finding may come back with other evidence; a confirmed one keeps what was confirmed."""
TASK_OF_FINDING = Trigger(
    name="task",
    when=pgtrigger.Before,
    operation=pgtrigger.Insert,
    func="""
        NEW.slug := coalesce((SELECT t.slug FROM tasks_taskversion v JOIN tasks_task t ON t.id = v.task_id
                              WHERE v.id = NEW.task_version_id), '');
        RETURN NEW;
    """,
)
