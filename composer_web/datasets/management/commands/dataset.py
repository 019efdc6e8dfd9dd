"""manage.py dataset: conversations and good rollouts as data for SFT."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.datasets import selectors, services
from composer_web.datasets.models import Dataset
from composer_web.datasets.schemas import MOST_ROLLOUTS, Wanted
from composer_web.ops.errors import UserError
from trainer.stages.conversations.readers import files_of
from trainer.stages.corpus.readers import SourceUnreadable


class Command(ProjectCommand):
    help = "Prepare, list, show and remove datasets that SFT runs name in stage.dataset."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="prepare one here and now, and print what it is made of")
        create.add_argument("name")
        create.add_argument(
            "--source", type=Path, action="append", default=[],
            help="JSONL, JSON or Parquet file of messages or ATIF, or a folder of these; may be given again",
        )  # fmt: skip
        create.add_argument("--rollouts", default="", metavar="run=12&reward_min=1", help="rollouts by their filters")
        create.add_argument("--most", type=int, default=MOST_ROLLOUTS, help="most rollouts, the newest first")
        create.add_argument(
            "--against", action="append", metavar="SUITE",
            help="keep clear of this suite; may be given again; default: all that are held out or benchmarks",
        )  # fmt: skip
        actions.add_parser("list", help="datasets, newest first")
        for action, help in (("show", "one as JSON"), ("remove", "one that no run names")):
            actions.add_parser(action, help=help).add_argument("name")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        try:
            getattr(self, f"do_{action}")(options)
        except (UserError, SourceUnreadable, OSError) as error:
            raise CommandError(str(error)) from error

    def do_create(self, options: dict[str, Any]) -> None:
        wanted = Wanted(rollouts=options["rollouts"], most=options["most"], suites=options["against"])
        with ExitStack() as stack:
            files = {
                f"{number}-{file.name}": stack.enter_context(file.open("rb"))
                for number, file in enumerate(file for path in options["source"] for file in files_of(path))
            }
            made = services.ask(name=options["name"], wanted=wanted, files=files)
        services.write(made.pk)
        self._show(selectors.get_dataset(made.pk))

    def do_list(self, options: dict[str, Any]) -> None:
        for one in selectors.datasets():
            self.stdout.write(f"{one.pk}\t{one.state}\t{one.conversations}\t{one.name}")

    def do_show(self, options: dict[str, Any]) -> None:
        self._show(_named(options["name"]))

    def do_remove(self, options: dict[str, Any]) -> None:
        services.remove(dataset=_named(options["name"]))

    def _show(self, found: Dataset) -> None:
        facts = {"id": found.pk, "name": found.name, "state": found.state, "provenance": found.provenance}
        self.stdout.write(json.dumps(facts | ({"cause": found.cause} if found.cause else {}), indent=1))
        if found.state == "failed":
            raise CommandError(found.cause)


def _named(name: str) -> Dataset:
    """Raises UserError."""
    found = Dataset.objects.filter(name=name).first()
    if found is None:
        raise UserError("name", f"there is no dataset {name!r}; there are: {', '.join(selectors.names()) or 'none'}")
    return found
