"""Export of annotations."""

from __future__ import annotations

from composer_web.review import annotated as selectors
from composer_web.review.http.filters import AnnotationFilter
from composer_web.rollouts.exports.exported import Table
from composer_web.ui.table_writers import Column

ANNOTATIONS = Table(
    noun="Annotations",
    filter=AnnotationFilter,
    rows=selectors.present,
    page="review:annotations",
    columns={
        "annotation": Column("id", "integer"),
        "rollout": Column("rollout_id", "integer"),
        "run": Column("rollout__group__run_id", "integer"),
        "evaluation": Column("rollout__group__evaluation_id", "integer"),
        "task": Column("rollout__group__task_version__task__slug"),
        "kind": Column("kind"),
        "value": Column("value"),
        "text": Column("text"),
        "turn": Column("turn", "integer"),
        "token_start": Column("token_start", "integer"),
        "token_end": Column("token_end", "integer"),
        "assignee": Column("assignee__username"),
        "author": Column("author__username"),
        "created_at": Column("created_at", "time"),
    },
)
