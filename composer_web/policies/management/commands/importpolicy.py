"""manage.py importpolicy: register a Hugging Face folder as a policy."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.core.errors import UserError
from composer_web.policies.importing import import_folder


class Command(ProjectCommand):
    help = "Register a folder with config.json, tokenizer and *.safetensors as a policy."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path)
        parser.add_argument("--name", default="base")
        parser.add_argument("--description", default="")
        parser.add_argument("--toy", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            policy = import_folder(
                path=options["folder"], name=options["name"], description=options["description"], toy=options["toy"]
            )
        except UserError as error:
            raise CommandError(error.message) from error
        self.stdout.write(
            f"{policy.name}: {policy.architecture['class']}, {policy.architecture['parameters']:,} parameters"
        )
        if policy.template_problem:
            self.stderr.write(
                f"warning: {policy.name} can be trained on text and cannot play episodes: {policy.template_problem}"
            )
