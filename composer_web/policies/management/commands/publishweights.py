"""manage.py publishweights: a policy that no run publishes, for engines that follow a weight store."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.core.errors import UserError
from composer_web.policies.selectors import resolve


class Command(ProjectCommand):
    help = "Publish a policy's weights to a weight store (a folder or s3://bucket/prefix), for engines that follow it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("reference", help="name or name@version of a policy")
        parser.add_argument("store", help="folder, or s3://bucket/prefix")
        parser.add_argument("--version-number", type=int, help="as what (default: one more than the newest there)")
        parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])

    def handle(self, *args: Any, **options: Any) -> None:
        from trainer.policy import PolicyUnreadable
        from trainer.weights import WeightError
        from trainer.weights.publish_checkpoint import publish_checkpoint

        try:
            weights = resolve(options["reference"])
            made = publish_checkpoint(weights.whole(), options["store"], version=options["version_number"], dtype=options["dtype"])
        except UserError as error:
            raise CommandError(error.message) from error
        except (PolicyUnreadable, WeightError) as error:
            raise CommandError(str(error)) from error
        name = f"{weights.policy.name}@{weights.version}"
        self.stdout.write(f"{name} is version {made.version} of {options['store']}, {made.payload_bytes:,} bytes")
