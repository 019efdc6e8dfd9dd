"""manage.py review: queues of trajectories, labels, agreement, and what labels do."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.accounts.models import User
from composer_web.ops.errors import UserError
from composer_web.review import excluding, selectors, services
from composer_web.review.api import item_of
from composer_web.review.filling import found_by
from composer_web.review.questions import EXAMPLE, parse


class Command(ProjectCommand):
    help = "Review queues of trajectories. Prints JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="do", required=True)
        actions.add_parser("list", help="all queues")
        actions.add_parser("questions", help="questions to begin from")
        create = actions.add_parser("create", help="a queue with the rollouts of some filters")
        create.add_argument("name")
        create.add_argument("questions", type=Path, help="JSON file (`review questions` prints one)")
        create.add_argument("--title", default="")
        create.add_argument("--reviewers", type=int, default=1)
        for name, text in (
            ("fill", "add rollouts"),
            ("close", "take no more labels"),
            ("open", "take labels again"),
            ("next", "what waits for --user"),
            ("label", "answer about a rollout"),
            ("agreement", "agreement beyond chance, by question"),
            ("disagreements", "as --user sees them"),
            ("rewards", "labels as rewards"),
            ("exclude", "keep out of training what most reviewers labelled so"),
        ):
            actions.add_parser(name, help=text).add_argument("name")
        for name in ("create", "fill"):
            actions.choices[name].add_argument("--filters", default="", help="query string of the rollouts page")
            actions.choices[name].add_argument("--limit", type=int, default=200)
        actions.choices["label"].add_argument("rollout", type=int)
        actions.choices["label"].add_argument("answers", nargs="+", help="question=answer; flags by commas")
        actions.choices["rewards"].add_argument("question")
        actions.choices["exclude"].add_argument("label", help="question=value")
        actions.choices["exclude"].add_argument("--tasks", action="store_true", help="set their tasks aside instead")
        for name in ("create", "fill", "close", "open", "next", "label", "disagreements", "exclude"):
            actions.choices[name].add_argument("--user", required=True, help="who does it")

    def handle(self, *args: Any, **o: Any) -> None:
        try:
            self.stdout.write(json.dumps(self._do(o), default=str))
        except (UserError, OSError) as error:
            raise CommandError(str(error)) from error
        except json.JSONDecodeError as error:
            raise CommandError(f"questions: no JSON: {error}") from error

    def _do(self, o: dict[str, Any]) -> Any:
        do = o["do"]
        if do == "questions":
            return EXAMPLE.model_dump(mode="json")
        if do == "list":
            names = ("name", "title", "reviewers", "rollouts", "finished", "labels")
            return [{name: getattr(queue, name) for name in names} for queue in selectors.queues()]
        user = None
        if "user" in o:
            user = person(o["user"], "reviewer" if do in ("next", "label", "disagreements") else "operator")
        if do == "create":
            assert user is not None
            questionnaire, found = parse(json.loads(o["questions"].read_text())), found_by(o["filters"])
            made = services.create_queue(
                name=o["name"], title=o["title"], questionnaire=questionnaire, reviewers=o["reviewers"], actor=user
            )
            return {
                "queue": made.name,
                "added": services.fill(queue=made, rollouts=found, limit=o["limit"], actor=user),
            }
        queue = selectors.get_queue(o["name"])
        if do == "agreement":
            return [asdict(one) for one in selectors.agreements(queue)]
        if do == "rewards":
            return selectors.rewards(queue, o["question"])
        assert user is not None
        if do == "fill":
            return {"added": services.fill(queue=queue, rollouts=found_by(o["filters"]), limit=o["limit"], actor=user)}
        if do in ("close", "open"):
            return {"closed_at": services.set_closed(queue=queue, closed=do == "close", actor=user).closed_at}
        if do == "next":
            item = selectors.following(queue, user, None)
            return {"rollout": item.rollout_id if item else None}
        if do == "disagreements":
            return [
                {
                    "rollout": row.item.rollout_id,
                    "questions": row.questions,
                    "labels": {one.reviewer.username: one.answers for one in row.labels},
                }
                for row in selectors.disagreements(queue, user)
            ]
        if do == "exclude":
            question, _, value = o["label"].partition("=")
            count = excluding.exclude(queue=queue, question=question, value=value, tasks=o["tasks"], actor=user)
            return {"excluded": count}
        pairs = dict(one.split("=", 1) if "=" in one else (one, "") for one in o["answers"])
        flags = {question.id for question in queue.questionnaire.questions if question.kind == "flags"}
        answers = {name: text.split(",") if name in flags else text for name, text in pairs.items()}
        made_label = services.label(item=item_of(queue, o["rollout"]), answers=answers, actor=user)
        return {"rollout": o["rollout"], "answers": made_label.answers}


def person(name: str, role: str) -> User:
    """Who is named, if the role allows it. Raises UserError."""
    user = User.objects.filter(username=name).first()
    if user is None:
        raise UserError("user", f"there is no user {name!r}")
    if not user.may(role):
        raise UserError("user", f"this needs the role {role}; {name} is {user.role}")
    return user
