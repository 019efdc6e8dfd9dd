"""Run templates of the team. Operators create, change and delete them; every change is audited."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, NotFound, UserError
from composer_web.runs.checks import check_text, check_words
from composer_web.runs.flatten import flat
from composer_web.runs.models import RunTemplate
from trainer.config import RunConfig

MAX_NAME = 80
MAX_DESCRIPTION = 2000


def templates() -> QuerySet[RunTemplate]:
    return RunTemplate.objects.select_related("created_by")


def get_template(pk: int) -> RunTemplate:
    """Raises NotFound."""
    found = templates().filter(pk=pk).first()
    if found is None:
        raise NotFound("template", pk)
    return found


@transaction.atomic
def save_template(*, name: str, config: RunConfig, description: str = "", actor: User | None = None) -> RunTemplate:
    """Save a configuration under a new name. Raises UserError, or Conflict if the name is taken."""
    name, description = _words(name, description)
    check_words(config)
    try:
        with transaction.atomic():
            made = RunTemplate.objects.create(
                name=name, description=description, config=config.model_dump(mode="json"), created_by=actor
            )
    except IntegrityError as error:
        raise Conflict(
            f"there is a template {name!r} already; change that one, or choose another name", "name"
        ) from error
    audit(actor=actor, action="template.create", target=f"template:{made.pk}", name=name, config=made.config)
    return made


@transaction.atomic
def change_template(
    *,
    template: RunTemplate,
    name: str | None = None,
    description: str | None = None,
    config: RunConfig | None = None,
    actor: User | None = None,
) -> RunTemplate:
    """Change the given attributes. Runs started from the template keep their settings. Raises UserError, Conflict."""
    row = RunTemplate.objects.select_for_update().get(pk=template.pk)
    before = {"name": row.name, "description": row.description, "config": row.config}
    row.name, row.description = _words(
        row.name if name is None else name, row.description if description is None else description
    )
    if config is not None:
        check_words(config)
        row.config = config.model_dump(mode="json")
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError as error:
        raise Conflict(f"there is a template {row.name!r} already; choose another name", "name") from error
    changed = _changed(before, {"name": row.name, "description": row.description, "config": row.config})
    if changed:
        audit(actor=actor, action="template.change", target=f"template:{row.pk}", name=row.name, changed=changed)
    return row


@transaction.atomic
def delete_template(*, template: RunTemplate, actor: User | None = None) -> None:
    """Delete a template. Runs started from it do not change; the audit log keeps its settings."""
    audit(
        actor=actor,
        action="template.delete",
        target=f"template:{template.pk}",
        name=template.name,
        config=template.config,
    )
    template.delete()


def _words(name: str, description: str) -> tuple[str, str]:
    name, description = check_text("name", name.strip()), check_text("description", description.strip())
    if not name or len(name) > MAX_NAME:
        raise UserError("name", f"a template's name has 1 to {MAX_NAME} characters; found {len(name)}")
    if len(description) > MAX_DESCRIPTION:
        raise UserError("description", f"at most {MAX_DESCRIPTION} characters; found {len(description)}")
    return name, description


def _changed(before: dict[str, object], after: dict[str, object]) -> dict[str, list[object]]:
    """Dotted path → [before, after] for each difference; None for an absent setting."""
    old, new = flat(before), flat(after)
    return {path: [old.get(path), new.get(path)] for path in {**old, **new} if old.get(path) != new.get(path)}
