"""manage.py drafts: from a moment of a rollout to a draft, and from a draft to a task."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.ops.artifacts import ArtifactError
from composer_web.ops.errors import UserError
from composer_web.review import promoting, selectors
from composer_web.review.management.commands.review import person
from composer_web.rollouts.selectors import get_rollout


class Command(BaseCommand):
    help = "Drafts of tasks from recorded rollouts. Prints JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="do", required=True)
        rollout = actions.add_parser("rollout", help="a draft from the moment after a turn of a rollout")
        rollout.add_argument("rollout", type=int)
        rollout.add_argument("turn", type=int, help="0: before its first turn")
        rollout.add_argument("slug")
        rollout.add_argument("instruction")
        rollout.add_argument("--category", default="debug")
        rollout.add_argument("--collect", action="store_true", help="collect the files here, not on a build worker")
        for name in ("publish", "discard", "collect"):
            actions.add_parser(name, help=f"{name} a draft").add_argument("draft", type=int)
        for one in actions.choices.values():
            one.add_argument("--user", required=True, help="who does it")
        actions.add_parser("list", help="all drafts")

    def handle(self, *args: Any, **o: Any) -> None:
        try:
            self.stdout.write(json.dumps(self._do(o), default=str))
        except (UserError, ArtifactError, promoting.CollectFailed) as error:
            raise CommandError(str(error)) from error

    def _do(self, o: dict[str, Any]) -> Any:
        if o["do"] == "list":
            return list(selectors.drafts().values("id", "slug", "state", "rollout_id", "turn", "created_at"))
        user = person(o["user"], "reviewer")
        if o["do"] == "rollout":
            draft = promoting.promote(
                rollout=get_rollout(o["rollout"]),
                turn=o["turn"],
                slug=o["slug"],
                instruction=o["instruction"],
                category=o["category"],
                actor=user,
            )
            if o["collect"]:
                draft = promoting.collect(draft.pk)
        else:
            draft = selectors.get_draft(o["draft"])
            if o["do"] == "publish":
                promoting.publish(draft=draft, actor=user)
            elif o["do"] == "discard":
                promoting.discard(draft=draft, actor=user)
            else:
                promoting.collect(draft.pk)
        draft = selectors.get_draft(draft.pk)
        task = draft.version.task.slug if draft.version else None
        return {
            "draft": draft.pk,
            "state": draft.state,
            "files": sorted(draft.files),
            "task": task,
            "cause": draft.cause,
        }
