"""manage.py importpolicy: make a policy of a Hugging Face folder, safetensors or a GGUF file, in this process."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.core.errors import UserError
from composer_web.policies.importing import import_folder
from trainer.model_import import RENDERERS, shipped_templates


class Command(ProjectCommand):
    help = "Make a policy of a folder with config.json, tokenizer and *.safetensors, or of a GGUF file."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, help="folder, .safetensors or .gguf file")
        parser.add_argument("--name", default="base")
        parser.add_argument("--description", default="")
        parser.add_argument("--toy", action="store_true")
        parser.add_argument(
            "--template", default="", help=f"chat template: a file, or one of {', '.join(shipped_templates())}"
        )
        parser.add_argument("--renderer", default="auto", choices=RENDERERS)

    def handle(self, *args: Any, **options: Any) -> None:
        template = Path(options["template"])
        try:
            policy = import_folder(
                path=options["folder"],
                name=options["name"],
                description=options["description"],
                toy=options["toy"],
                template=template.read_text() if options["template"] and template.is_file() else options["template"],
                renderer=options["renderer"],
            )
        except UserError as error:
            raise CommandError(error.message) from error
        self.stdout.write(
            f"{policy.name}: {policy.architecture['class']}, {policy.architecture['parameters']:,} parameters, "
            f"renderer {policy.facts['renderer']}"
        )
        if policy.template_problem:
            self.stderr.write(
                f"warning: {policy.name} can be trained on text and cannot play episodes: {policy.template_problem}"
            )
