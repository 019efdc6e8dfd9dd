"""manage.py seed: the first people."""

from __future__ import annotations

import os
import secrets
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.accounts.models import Role, User
from composer_web.accounts.services import create_user
from composer_web.core.errors import UserError


class Command(BaseCommand):
    help = "Make a user unless there is one of that name; prints name and password. Safe to repeat."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--username", default="admin")
        parser.add_argument("--role", choices=Role.values, default=Role.ADMIN)
        parser.add_argument("--password", help="default: $OPENCOMPOSER_PASSWORD, else a random one that is printed")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["username"]
        if User.objects.filter(username=name).exists():
            self.stdout.write(f"user {name} is there already")
            return
        password = options["password"] or os.environ.get("OPENCOMPOSER_PASSWORD") or secrets.token_urlsafe(12)
        try:
            create_user(username=name, password=password, role=options["role"])
        except UserError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"user {name} with password {password}")
