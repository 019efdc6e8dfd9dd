"""manage.py measure: candidates for a base model on a codebase of one's own."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.core.errors import UserError
from composer_web.policies.measurement import codebases
from composer_web.policies.measurement.measuring import measure
from trainer.model_selection.scores import Interval, Selection


class Command(ProjectCommand):
    help = "Measure policies on a codebase (likelihood of all and of recent lines, state tracking) and keep the result."

    def add_arguments(self, parser: ArgumentParser) -> None:
        from trainer.model_selection.selection import settings

        parser.add_argument("policy", nargs="+", help="name, or name@version; an endpoint has no likelihoods")
        parser.add_argument(
            "--codebase",
            required=True,
            help="git repository, folder, .jsonl or .parquet file; or environment:NAME, repository:NAME, corpus:NAME",
        )
        settings(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        asked = ("commits", "since", "window", "items", "changes", "device")
        how = {name: options[name] for name in asked} | {"most_bytes": options["max_bytes"]}
        path, name = Path(options["codebase"]), ""
        try:
            if codebases.PATTERN.fullmatch(options["codebase"]):
                place = codebases.find(options["codebase"])
                path, name = place.path, place.name
                how["commits"] = how["commits"] if place.history else how["commits"] or 0
            measure(references=options["policy"], path=path, name=name, said=self._say, **how)
        except UserError as error:
            raise CommandError(error.message) from error

    def _say(self, found: Selection) -> None:
        recent = found.recent_bits_per_byte
        self.stdout.write(
            f"{found.policy} on {found.codebase}: {_said(found.bits_per_byte)} bits a byte"
            + (f", recent lines {_said(recent)}" if recent else "")
            + f", state distance {_said(found.state_distance)}, {found.tokens_per_byte:.3f} tokens a byte, "
            f"{found.bytes_per_second / 1024:.1f} KiB/s"
        )


def _said(interval: Interval) -> str:
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"
