"""manage.py endpoint: policies behind OpenAI-compatible endpoints."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.ops.errors import UserError
from composer_web.policies import endpoints
from composer_web.policies.models import Endpoint
from composer_web.policies.schemas import EndpointOut


class Command(ProjectCommand):
    help = "Policies behind OpenAI-compatible endpoints: they are evaluated, and grade side evaluations."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("list", help="all, one JSON object a line; never a key")
        add = actions.add_parser("add", help="a new one; the key is read from standard input with --key-stdin")
        add.add_argument("name")
        add.add_argument("url", help="base of the API, for example https://host/v1")
        add.add_argument("model")
        add.add_argument("--key-stdin", action="store_true")
        add.add_argument("--effort", default="")
        add.add_argument("--limit-field", default="max_tokens", choices=["max_tokens", "max_completion_tokens"])
        add.add_argument("--no-temperature", dest="takes_temperature", action="store_false")
        add.add_argument("--price-input", type=float, default=0.0, help="dollars for a million tokens read")
        add.add_argument("--price-cached", type=float)
        add.add_argument("--price-output", type=float, default=0.0, help="dollars for a million tokens written")

    def handle(self, *args: Any, **o: Any) -> None:
        try:
            if o["action"] == "add":
                names = ("name", "url", "model", "effort", "limit_field", "takes_temperature")
                prices = ("price_input", "price_cached", "price_output")
                key = sys.stdin.readline().strip() if o["key_stdin"] else ""
                policy = endpoints.add(key=key, **{name: o[name] for name in (*names, *prices)})
                self._write(endpoints.get(policy.name))
            else:
                for endpoint in Endpoint.objects.select_related("policy").order_by("policy__name"):
                    self._write(endpoint)
        except UserError as error:
            raise CommandError(error.message) from error

    def _write(self, endpoint: Endpoint) -> None:
        self.stdout.write(json.dumps(EndpointOut.from_orm(endpoint).model_dump()))
