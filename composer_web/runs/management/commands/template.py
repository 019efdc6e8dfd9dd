"""manage.py template: configurations that the team starts runs from."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.ops.errors import UserError
from composer_web.runs import templates, text
from composer_web.runs.management.sources import add_source, configuration


class Command(ProjectCommand):
    help = "List, save, change, show and delete templates of the team."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("list", help="all templates")
        for name, words in (("save", "keep a configuration"), ("change", "give a template other settings")):
            made = actions.add_parser(name, help=words)
            made.add_argument("name")
            add_source(made)
            made.add_argument("--description", default=None)
        shown = actions.add_parser("show", help="its settings as text")
        shown.add_argument("name")
        shown.add_argument("--format", choices=["yaml", "toml"], default="yaml")
        actions.add_parser("delete", help="delete it; its runs stay").add_argument("name")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        try:
            getattr(self, f"do_{action}")(options)
        except UserError as error:
            raise CommandError(error.message) from error

    def do_list(self, options: dict[str, Any]) -> None:
        for template in templates.templates():
            self.stdout.write(f"{template.name}\t{template.config['stage']['kind']}\t{template.description}")

    def do_save(self, options: dict[str, Any]) -> None:
        templates.save_template(
            name=options["name"], config=configuration(options), description=options["description"] or ""
        )

    def do_change(self, options: dict[str, Any]) -> None:
        given = any(options[name] for name in ("file", "preset", "template", "set"))
        templates.change_template(
            template=templates.by_name(options["name"]),
            description=options["description"],
            config=configuration(options) if given else None,
        )

    def do_show(self, options: dict[str, Any]) -> None:
        template = templates.by_name(options["name"])
        self.stdout.write(text.render(template.configuration, options["format"]), ending="")

    def do_delete(self, options: dict[str, Any]) -> None:
        templates.delete_template(template=templates.by_name(options["name"]))
