"""Writes of projects and their members. Installation admins create projects; project admins manage them."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import DEFAULT_PROJECT, Membership, Project, Role, User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, NotFound, UserError

MAX = 200
LONGEST_NAME = 80


def get_project(slug: str) -> Project:
    """Raises NotFound."""
    found = Project.objects.filter(slug=slug).first()
    if found is None:
        raise NotFound("project", repr(slug[:40]))
    return found


@transaction.atomic
def create_project(*, slug: str, name: str, actor: User | None) -> Project:
    """Create a closed project whose creator is its first admin. Raises UserError."""
    _check(slug=slug, name=name)
    if Project.objects.filter(slug=slug).exists():
        raise UserError("slug", f"{slug!r} is taken; choose another")
    if Project.objects.count() >= MAX:
        raise UserError("slug", f"there are {MAX} projects, which is the most")
    project = Project.objects.create(slug=slug, name=name.strip(), created_by=actor)
    if actor is not None:
        Membership.objects.create(project=project, user=actor, role=Role.ADMIN)
    audit(actor=actor, action="project.create", target=f"project:{project.pk}", slug=slug)
    return project


@transaction.atomic
def change_project(
    *, project: Project, name: str, open: bool, library: bool, archived: bool, actor: User | None
) -> Project:
    """Raises UserError, and Conflict for the default project, which is never archived."""
    _check(slug=project.slug, name=name)
    if archived and project.pk == DEFAULT_PROJECT:
        raise Conflict("the default project cannot be archived; close it instead, then only its members reach it")
    row = Project.objects.select_for_update().get(pk=project.pk)
    row.name, row.open, row.library = name.strip(), open, library
    row.archived_at = (row.archived_at or timezone.now()) if archived else None
    row.save()
    audit(actor=actor, action="project.change", target=f"project:{row.pk}", slug=row.slug)
    return row


@transaction.atomic
def set_member(*, project: Project, username: str, role: str, actor: User | None) -> Membership:
    """Set a user's role in the project. Raises UserError for an unknown user or role."""
    if role not in Role.values:
        raise UserError("role", f"role {role!r} is unknown; use one of {', '.join(Role.values)}")
    user = User.objects.filter(username=username.strip(), is_active=True).first()
    if user is None:
        raise UserError("username", f"there is nobody of the name {username[:80]!r}; an admin makes accounts")
    member, _ = Membership.objects.update_or_create(project=project, user=user, defaults={"role": role})
    audit(actor=actor, action="project.member", target=f"project:{project.pk}", username=user.username, role=role)
    return member


@transaction.atomic
def remove_member(*, project: Project, username: str, actor: User | None) -> None:
    """Raises NotFound for a user who is not a member."""
    member = Membership.objects.filter(project=project, user__username=username).first()
    if member is None:
        raise NotFound("member", repr(username[:80]))
    member.delete()
    audit(actor=actor, action="project.member-gone", target=f"project:{project.pk}", username=username)


def _check(*, slug: str, name: str) -> None:
    try:
        validate_slug(slug)
    except ValidationError as error:
        raise UserError("slug", "use letters, digits, - and _ only") from error
    if len(slug) > 40:
        raise UserError("slug", f"at most 40 characters; found {len(slug)}")
    if not 1 <= len(name.strip()) <= LONGEST_NAME:
        raise UserError("name", f"a name has 1 to {LONGEST_NAME} characters; found {len(name.strip())}")
    if "\x00" in name:
        raise UserError("name", "no zero bytes")
