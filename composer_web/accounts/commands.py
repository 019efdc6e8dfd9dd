"""Base of commands that create objects in a project."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import Project, Role


class ProjectCommand(BaseCommand):
    """`--project SLUG` runs the command in that project, where it sees the project's objects and those of libraries.
    Without it, the command sees everything and creates objects in the default project."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.add_argument("--project", default="", metavar="SLUG", help="act in this one (default: the default one)")
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for below in set(action.choices.values()):  # also behind the word that says what to do
                    below.add_argument("--project", default=argparse.SUPPRESS, metavar="SLUG")
        return parser

    def execute(self, *args: Any, **options: Any) -> str | None:
        with acting(_access(options.get("project", ""))):
            return super().execute(*args, **options)


def _access(slug: str) -> Access | None:
    """Raises CommandError for an unknown project."""
    if not slug:
        return None
    project = Project.objects.filter(slug=slug, archived_at=None).first()
    if project is None:
        there = ", ".join(Project.objects.filter(archived_at=None).values_list("slug", flat=True))
        raise CommandError(f"there is no project {slug[:40]!r}; there are {there}")
    libraries = Project.objects.filter(library=True, archived_at=None).values_list("pk", flat=True)
    return Access(0, Role.ADMIN, project.pk, project.pk, tuple(libraries))
