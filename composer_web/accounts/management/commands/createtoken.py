"""manage.py createtoken: an API token for a script."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.accounts.models import User
from composer_web.accounts.services import SCOPES, create_token
from composer_web.core.errors import UserError


class Command(BaseCommand):
    help = "Make an API token and print its secret, once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--name", default="command line")
        parser.add_argument("--scope", action="append", choices=list(SCOPES), help="may be repeated (default: read)")
        parser.add_argument("--project", default="", help="valid in this one only (default: all of the user's)")
        parser.add_argument("--days", type=int, default=90)

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"there is no user {options['username']!r}; make one with manage.py seed")
        try:
            _, secret = create_token(
                user=user,
                name=options["name"],
                scopes=options["scope"] or ["read"],
                days=options["days"],
                project=options["project"],
            )
        except UserError as error:
            raise CommandError(error.message) from error
        self.stdout.write(secret)
