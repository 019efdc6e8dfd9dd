"""manage.py curate: review, edit, tag and sort tasks, undo, and see what was changed."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.accounts.models import User
from composer_web.ops.errors import UserError
from composer_web.tasks import comparing, curation, reviewing, selectors


class Command(ProjectCommand):
    help = "Curate tasks by hand; every change is written down under --user. Prints JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="do", required=True)
        for name in ("accept", "reject", "withdraw"):
            one = actions.add_parser(name, help=f"{name} the newest version of a task")
            one.add_argument("task")
            one.add_argument("--note", default="")
            one.add_argument("--into", default="", help="suite that an accepted task joins")
        edit = actions.add_parser("edit", help="the next version, with other words")
        edit.add_argument("task")
        edit.add_argument("instruction")
        for name in curation.ACTIONS:
            one = actions.add_parser(name, help=f"{name} tasks, all or none")
            one.add_argument("value")
            one.add_argument("task", nargs="+")
        suite = actions.add_parser("open", help="an empty suite to curate into")
        suite.add_argument("name")
        suite.add_argument("purpose", choices=["train", "held-out", "benchmark"])
        suite.add_argument("--reviewed", action="store_true", help="two reviewers admit each task; for good")
        actions.add_parser("undo", help="undo a batch of changes").add_argument("batch")
        for one in actions.choices.values():
            one.add_argument("--user", required=True, help="who does it")
        actions.add_parser("changes", help="history, newest first").add_argument("--task", default="")
        compare = actions.add_parser("compare", help="what differs between two versions")
        compare.add_argument("task")
        compare.add_argument("before", type=int)
        compare.add_argument("after", type=int)
        actions.add_parser("disagreements", help="as --user sees them").add_argument("--user", required=True)

    def handle(self, *args: Any, **o: Any) -> None:
        try:
            self.stdout.write(json.dumps(self._do(o), default=str))
        except UserError as error:
            raise CommandError(str(error)) from error

    def _do(self, o: dict[str, Any]) -> Any:
        do = o["do"]
        if do == "changes":
            names = ("id", "batch", "task__slug", "field", "before", "after", "actor_name", "undoes_id", "at")
            return list(selectors.changes(selectors.get_task(o["task"]) if o["task"] else None).values(*names)[:200])
        if do == "compare":
            versions = {v.number: v for v in selectors.get_task(o["task"]).versions.all()}
            if not {o["before"], o["after"]} <= versions.keys():
                raise UserError("version", f"{o['task']} has versions {', '.join(map(str, sorted(versions)))}")
            return {p.name: p.diff for p in comparing.compare(versions[o["before"]], versions[o["after"]])}
        user = self._user(o["user"], "operator" if do in curation.ACTIONS else "reviewer")
        if do == "disagreements":
            return [
                {
                    "task": row.task.slug,
                    "hidden": row.hidden,
                    "opinions": {p.reviewer.username: p.decision for p in row.opinions},
                }
                for row in reviewing.disagreements(user)
            ]
        if do in ("accept", "reject", "withdraw"):
            task = selectors.get_task(o["task"])
            decision = reviewing.as_decision("withdrawn" if do == "withdraw" else do)
            version = selectors.newest_version(task)
            joined = curation.decide(
                task=task, version=version, decision=decision, actor=user, note=o["note"], into=o["into"]
            )
            return {"task": task.slug, "state": selectors.get_task(task.slug).review, "joined": joined}
        if do == "edit":
            made = curation.edit_instruction(task=selectors.get_task(o["task"]), text=o["instruction"], actor=user)
            return {"task": o["task"], "version": made.number}
        if do == "open":
            made_suite = curation.open_suite(name=o["name"], purpose=o["purpose"], reviewed=o["reviewed"], actor=user)
            return {"suite": made_suite.name, "reviewed": made_suite.reviewed}
        if do == "undo":
            batch = curation.batch_of(o["batch"])
            curation.require_may_undo(batch=batch, actor=user)
            done = curation.undo(batch=batch, actor=user)
        else:
            done = curation.apply(tasks=curation.named(o["task"]), action=do, value=o["value"], actor=user)
        return {"batch": done.id, "changed": done.changed, "unchanged": done.unchanged}

    def _user(self, name: str, role: str) -> User:
        """Who is named, if the role allows it. Raises UserError."""
        user = User.objects.filter(username=name).first()
        if user is None:
            raise UserError("user", f"there is no user {name!r}")
        if not user.may(role):
            raise UserError("user", f"this needs the role {role}; {name} is {user.role}")
        return user
