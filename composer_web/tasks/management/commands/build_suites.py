"""manage.py build_suites: procedural and package suites."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.core.errors import UserError
from composer_web.repositories.building import locked_packages, mutation_specs
from composer_web.tasks.models import Suite
from composer_web.tasks.services import PACKAGE_SUITES, build_packages_suite, build_procedural
from sandbox.backends.base import SandboxError
from sandbox.tasks.errors import TaskError


class Command(ProjectCommand):
    help = "Build the suites `train` and `held-out` from the procedural family, and `packages` from real packages."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--train", type=int, default=640, help="procedural training tasks (0: none)")
        parser.add_argument("--held-out", type=int, default=64, help="procedural held-out tasks (0: none)")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument(
            "--packages", nargs="*", default=None, metavar="NAME", help="locked packages; without names all"
        )
        parser.add_argument("--package-tasks", type=int, default=8, help="mutation tasks of each package")
        parser.add_argument(
            "--validate", action="store_true", help="run the controls of every new task on the build workers"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["train"] and options["held_out"]:
                for suite in build_procedural(
                    n_train=options["train"], n_held_out=options["held_out"], seed=options["seed"]
                ):
                    self._say(suite)
            if options["packages"] is not None:
                self._packages(options)
        except (UserError, TaskError, SandboxError) as error:
            raise CommandError(str(error)) from error

    def _packages(self, options: dict[str, Any]) -> None:
        names = options["packages"] or sorted(locked_packages())
        if unknown := set(names) - locked_packages().keys():
            raise UserError("packages", f"not pinned in packages.lock: {', '.join(sorted(unknown))}")
        for name, purpose in PACKAGE_SUITES.items():
            specs = mutation_specs(packages=names, count=options["package_tasks"], seed=options["seed"], split=purpose)
            if specs:
                self._say(
                    build_packages_suite(
                        name=name, purpose=purpose, specs=specs, seed=options["seed"], validate=options["validate"]
                    )
                )

    def _say(self, suite: Suite) -> None:
        self.stdout.write(f"{suite.name}: {suite.memberships.count()} tasks ({suite.purpose})")
