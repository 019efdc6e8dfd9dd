"""manage.py repository: add a repository, follow or stop its build, list them."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.ops.artifacts import ArtifactError
from composer_web.ops.errors import UserError
from composer_web.repositories import selectors, services
from composer_web.repositories.building import build_environment
from composer_web.repositories.requests import request_archive, request_repository


class Command(ProjectCommand):
    help = "Repositories: add one from git, a path, an archive or the package index, and build its environment."

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True)
        add = commands.add_parser("add", help="add one; its environment is built by the build workers")
        add.add_argument("kind", choices=["git", "path", "sdist", "archive"])
        add.add_argument("location", help="address, folder, package name, or archive file")
        add.add_argument("--name", default="", help="of the environment")
        add.add_argument("--revision", default="", help="branch, tag, commit or version; the newest if left out")
        add.add_argument(
            "--private", action="store_true", help="ask for an access token (or read it from standard input)"
        )
        add.add_argument("--build", action="store_true", help="build here and now instead of on the workers")
        for name, text in (
            ("log", "print the build's log"),
            ("cancel", "stop the build"),
            ("again", "build a failed one again"),
        ):
            commands.add_parser(name, help=text).add_argument("name")
        commands.add_parser("list", help="all of them")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['command']}")(options)
        except (UserError, ArtifactError, OSError) as error:
            raise CommandError(str(error)) from error

    def _add(self, options: dict[str, Any]) -> None:
        if options["kind"] == "archive":
            path = Path(options["location"])
            repository = request_archive(name=options["name"], filename=path.name, content=path.read_bytes())
        else:
            token = ""
            if options["private"]:
                token = getpass.getpass("Access token: ") if sys.stdin.isatty() else sys.stdin.readline().strip()
            repository = request_repository(
                kind=options["kind"],
                location=options["location"],
                name=options["name"],
                revision=options["revision"],
                token=token,
            )
        if options["build"]:
            self.stdout.write(f"{repository.name}: {build_environment(repository.environment.pk)}")
        else:
            self.stdout.write(f"{repository.name}: requested; see `manage.py repository log {repository.name}`")

    def _log(self, options: dict[str, Any]) -> None:
        self.stdout.write(selectors.build_log(selectors.get_environment(options["name"])))

    def _cancel(self, options: dict[str, Any]) -> None:
        services.cancel_build(environment=selectors.get_environment(options["name"]))

    def _again(self, options: dict[str, Any]) -> None:
        services.build_again(environment=selectors.get_environment(options["name"]))

    def _list(self, options: dict[str, Any]) -> None:
        for found in selectors.repositories():
            self.stdout.write(
                f"{found.name:30} {found.environment.state:10} {found.kind} {found.location} {found.pin}".rstrip()
            )
