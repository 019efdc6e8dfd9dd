"""oc review: queues of rollouts that people answer questions about, and what their labels do."""

from __future__ import annotations

import argparse

from oc.client import Client
from oc.everything import read
from oc.grammar import Grammar, Handler, given, optional
from oc.launch import UsageError
from oc.show import Output

QUEUE_COLUMNS = ("name", "reviewers", "rollouts", "finished", "labels", "closed_at", "title")


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("review", "queues of rollouts with questions for people")
    group.listing("queues")
    group.add("show", "one queue with its questions", "name")
    made = group.add("make", "a queue of the questions of a JSON file", "name")
    made.add_argument("questions", help="JSON list, as `oc review show` has them; - reads standard input")
    optional(made, "title")
    optional(made, "reviewers", kind=int)
    _filling(made)
    _filling(group.add("fill", "add rollouts", "name"))
    group.add("close", "take no more labels", "name")
    group.add("open", "take labels again", "name")
    group.add("labels", "what was answered about a rollout, once you have", "name", "rollout")
    group.add("next", "the next rollout that waits for you", "name")
    made = group.add("label", "answer about a rollout", "name", "rollout")
    made.add_argument("answers", nargs="+", metavar="question=answer", help="several flags by commas")
    group.add("agreement", "agreement beyond chance, by question", "name")
    group.add("disagreements", "rollouts that reviewers answer differently about", "name")
    group.add("rewards", "labels as rewards from 0 to 1", "name", "question")
    made = group.add("exclude", "keep out of training what most labelled so", "name", "question", "value")
    made.add_argument("--tasks", action="store_true", help="set the tasks aside instead of the rollouts")
    return {"review": _review}


def _filling(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--filters", help="as the address of the rollouts table has them: run=3&verdict=failed")
    parser.add_argument("--limit", type=int, help="the most rollouts to add")


def _review(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.review.list_queues(limit=options.limit), QUEUE_COLUMNS)
        case "show":
            output.one(client.review.get_queue(options.name))
        case "make":
            named = given(options, ("name", "title", "reviewers", "filters", "limit"))
            output.rows([client.review.create_queue(questions=read(options.questions), **named)], QUEUE_COLUMNS)
        case "fill":
            named = given(options, ("filters", "limit"))
            output.rows([client.review.fill_queue(options.name, **named)], ("count",))
        case "close" | "open" as action:
            output.rows([client.review.set_closed(options.name, action)], QUEUE_COLUMNS)
        case "labels":
            _labels(client, options, output)
        case "next":
            output.rows([client.review.get_next(options.name)], ("rollout", "waiting"))
        case "label":
            answers = _answers(client, options)
            output.one(client.review.label(options.name, rollout=options.rollout, answers=answers))
        case "agreement":
            output.rows(client.review.get_agreement(options.name), ("question", "items", "share", "alpha", "kappa"))
        case "disagreements":
            output.rows(client.review.get_disagreements(options.name), ("rollout", "questions", "hidden"))
        case "rewards":
            output.rows(client.review.get_rewards(options.name, question=options.question), ("rollout", "value"))
        case _:
            named = given(options, ("question", "value", "tasks"))
            output.rows([client.review.exclude(options.name, **named)], ("count",))


def _labels(client: Client, options: argparse.Namespace, output: Output) -> None:
    found = client.review.get_labels(options.name, options.rollout)
    if found is None:
        raise UsageError(
            f"others' labels are shown when you have answered: oc review label {options.name} {options.rollout}"
        )
    output.rows(found, ("rollout", "reviewer", "answers", "created_at"))


def _answers(client: Client, options: argparse.Namespace) -> dict[str, str | list[str]]:
    """`flags=a,b` is a list where the question has flags. Raises UsageError."""
    flags = {one["id"] for one in client.review.get_queue(options.name).questions if one["kind"] == "flags"}
    found: dict[str, str | list[str]] = {}
    for word in options.answers:
        question, separator, answer = word.partition("=")
        if not separator:
            raise UsageError(f"{word!r}: write question=answer")
        found[question] = [one for one in answer.split(",") if one] if question in flags else answer
    return found
