"""manage.py promote: what the gateway serves, with gate, canary and the way back."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.ops.errors import UserError
from composer_web.policies import gate, promotion
from composer_web.policies.schemas import PromotionOut


class Command(BaseCommand):
    help = "Promote a policy version, give one a share of new sessions, or go back."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("show", help="what is served now, and the gate")
        policy = actions.add_parser("policy", help="promote name or name@version, if the gate is open")
        policy.add_argument("reference")
        canary = actions.add_parser("canary", help="give a version a share of new sessions")
        canary.add_argument("reference")
        canary.add_argument("share", type=float, help="between 0 and 1")
        actions.add_parser("end-canary", help="serve only what is promoted")
        actions.add_parser("rollback", help="go back to what was promoted before")
        for name in ("policy", "canary", "end-canary", "rollback"):
            actions.choices[name].add_argument("--note", default="")
        actions.add_parser("gate", help="replace the rules").add_argument("file", type=Path, help="JSON list of rules")

    def handle(self, *args: Any, **o: Any) -> None:
        try:
            getattr(self, f"_{o['action'].replace('-', '_')}")(o)
        except UserError as error:
            raise CommandError(error.message) from error

    def _show(self, o: dict[str, Any]) -> None:
        current = promotion.current()
        rules = [rule.model_dump() for rule in gate.rules(promotion.CHANNEL)]
        served = PromotionOut.from_orm(current).model_dump(mode="json") if current else None
        self.stdout.write(json.dumps({"current": served, "gate": rules}))

    def _policy(self, o: dict[str, Any]) -> None:
        self._write(promotion.promote(reference=o["reference"], note=o["note"]))

    def _canary(self, o: dict[str, Any]) -> None:
        self._write(promotion.canary(reference=o["reference"], share=o["share"], note=o["note"]))

    def _end_canary(self, o: dict[str, Any]) -> None:
        self._write(promotion.end_canary(note=o["note"]))

    def _rollback(self, o: dict[str, Any]) -> None:
        self._write(promotion.rollback(note=o["note"]))

    def _gate(self, o: dict[str, Any]) -> None:
        try:
            wanted = json.loads(o["file"].read_text())
        except (OSError, ValueError) as error:
            raise CommandError(f"{o['file']} cannot be read: {error}") from error
        if not isinstance(wanted, list):
            raise CommandError(f"{o['file']} must hold a JSON list of rules")
        gate.set_rules(channel=promotion.CHANNEL, wanted=wanted)
        self._show(o)

    def _write(self, made: Any) -> None:
        self.stdout.write(json.dumps(PromotionOut.from_orm(made).model_dump(mode="json")))
