"""manage.py gateway: settings, export and deletion of recorded sessions."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.gateway import configuration, exporting, recording, selectors
from composer_web.ops.artifacts import ArtifactError
from composer_web.ops.errors import UserError


class Command(BaseCommand):
    help = "Settings of the gateway, and the sessions that it recorded."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("show", help="settings as JSON")
        change = actions.add_parser("set", help="change settings: a JSON object of those that change")
        change.add_argument("values", help='for example {"recording": true, "retention_days": 14}')
        export = actions.add_parser("export", help="recorded sessions, one JSON line each")
        export.add_argument("--session", type=int, help="only this one")
        export.add_argument("--atif", action="store_true", help="as an ATIF document (with --session)")
        erase = actions.add_parser("erase", help="delete all sessions of an end user")
        erase.add_argument("user", help="as the client names them")
        actions.add_parser("expire", help="delete the sessions whose days are over")

    def handle(self, *args: Any, **o: Any) -> None:
        try:
            getattr(self, f"_{o['action']}")(o)
        except (UserError, ArtifactError) as error:
            raise CommandError(str(error)) from error

    def _show(self, o: dict[str, Any]) -> None:
        self.stdout.write(configuration.settings_of().model_dump_json())

    def _set(self, o: dict[str, Any]) -> None:
        try:
            values = json.loads(o["values"])
        except ValueError as error:
            raise CommandError(f"the settings are not JSON: {error}") from error
        if not isinstance(values, dict):
            raise CommandError("the settings are a JSON object")
        self.stdout.write(configuration.change(values=values).model_dump_json())

    def _export(self, o: dict[str, Any]) -> None:
        if o["atif"]:
            if o["session"] is None:
                raise CommandError("--atif is the form of one session: name it with --session")
            self.stdout.write(json.dumps(exporting.as_atif(selectors.get(o["session"]))))
            return
        found = [selectors.get(o["session"])] if o["session"] else selectors.whole()
        for line in exporting.jsonl(found):
            self.stdout.write(line.rstrip("\n"))

    def _erase(self, o: dict[str, Any]) -> None:
        self.stdout.write(json.dumps({"sessions": recording.erase(user=o["user"])}))

    def _expire(self, o: dict[str, Any]) -> None:
        self.stdout.write(json.dumps({"sessions": recording.expire()}))
