"""Export of the task table. It never contains bundles, which hold hidden tests."""

from __future__ import annotations

from composer_web.rollouts.exported import Table
from composer_web.tasks import selectors
from composer_web.tasks.filters import TaskFilter
from composer_web.ui.table_writers import Column

TASKS = Table(
    noun="Tasks",
    filter=TaskFilter,
    rows=selectors.tasks,
    page="tasks:list",
    kept=("sort",),
    columns={
        "task": Column("slug"),
        "source": Column("source"),
        "category": Column("category"),
        "family": Column("family"),
        "tags": Column("tags", "data"),
        "side": Column("split"),
        "review": Column("review"),
        "version": Column("newest_number", "integer"),
        "bundle": Column("newest_version__bundle_hash"),
        "controls_ok": Column("controls_ok", "truth"),
        "test_strength": Column("test_strength", "number"),
        "pass_rate": Column("pass_rate", "number"),
        "created_at": Column("created_at", "time"),
    },
)
