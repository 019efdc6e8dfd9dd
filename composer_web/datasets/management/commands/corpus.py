"""manage.py corpus: text for mid-training, decontaminated against the suites of this installation."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.core.errors import UserError
from composer_web.datasets import corpora, guards
from composer_web.datasets.models import Corpus
from composer_web.datasets.schemas import NAME
from trainer.midtrain.corpus.readers import SourceUnreadable
from trainer.midtrain.corpus.store import prepare


class Command(ProjectCommand):
    help = (
        "Prepare the corpus NAME for every project, which mid-training runs name in stage.corpus, and print what it is made of. "
        "Projects prepare their own with `opencomposer corpora create`."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument(
            "--source", type=Path, action="append", required=True,
            help="folder, git repository, .jsonl or .parquet file; may be given again",
        )  # fmt: skip
        parser.add_argument(
            "--against", action="append", metavar="SUITE",
            help="decontaminate against this suite; may be given again; default: all that are held out or benchmarks",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        if not re.fullmatch(NAME, options["name"]):
            raise CommandError(f"name is {options['name']!r}: letters, digits, . _ and -, beginning with no sign")
        if Corpus._base_manager.filter(name=options["name"]).exists():
            raise CommandError(f"a project has a corpus {options['name']!r}; choose another name, or remove that one")
        try:
            names = guards.chosen(options["against"], "against")
            made = prepare(
                corpora.folder_of(options["name"]),
                options["source"],
                against=guards.tasks_of(names),
                guards=guards.guards_of(names),
            )
        except (UserError, SourceUnreadable, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(made.model_dump_json(indent=1))
