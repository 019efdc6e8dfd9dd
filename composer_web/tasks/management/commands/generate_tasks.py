"""manage.py generate_tasks: a suite made by the generators, and what each of them tried, kept and spent."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any, get_args

from django.core.management.base import CommandError
from pydantic import ValidationError

from composer_web.accounts.commands import ProjectCommand
from composer_web.ops.errors import UserError
from composer_web.tasks.generating import Wanted, generate_suite
from composer_web.tasks.models import GeneratorRun
from sandbox.backends.base import SandboxError
from sandbox.tasks.errors import TaskError
from sandbox.tasks.generators.instructions import STYLES
from sandbox.tasks.generators.producing import GENERATORS


class Command(ProjectCommand):
    help = (
        "Make tasks from locked packages or installed repositories: bugs, features, refactorings, tests, from history."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="of the suite")
        parser.add_argument("packages", nargs="+")
        parser.add_argument("--purpose", choices=get_args(Wanted.model_fields["purpose"].annotation), default="train")
        parser.add_argument("--generators", nargs="+", choices=GENERATORS, default=["mutation"])
        parser.add_argument("--styles", nargs="+", choices=STYLES, default=["precise"])
        parser.add_argument("--count", type=int, default=4, help="tasks of each generator and package")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument(
            "--rewriter", default="", help="policy behind an endpoint that says instructions in other words"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        last = GeneratorRun.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
        try:
            suite = generate_suite(Wanted(**{name: options[name] for name in Wanted.model_fields}))
        except ValidationError as error:
            raise CommandError(str(error.errors(include_url=False)[0]["msg"])) from error
        except (UserError, TaskError, SandboxError) as error:
            raise CommandError(str(error)) from error
        for run in GeneratorRun.objects.filter(pk__gt=last).order_by("pk"):
            self.stdout.write(
                f"{run}: {run.kept} kept of {run.tried} ({run.share:.0%}), {run.seconds:.1f} s, {run.per_minute:.1f} a minute"
            )
            for reason, count in sorted(run.rejected.items(), key=lambda item: -item[1]):
                self.stdout.write(f"    {count:4d}  {reason}")
        if suite is None:
            raise CommandError("no generator gave a task; the reasons are above")
        self.stdout.write(f"{suite.name}: {suite.memberships.count()} tasks ({suite.purpose})")
