"""oc trajectories, and how tasks, suites and rollouts leave in other projects' formats."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from oc import exports
from oc.client import Client
from oc.files import readable
from oc.grammar import Grammar, Handler
from oc.launch import UsageError
from oc.models import RolloutExport
from oc.show import Output

TASK_FORMATS = ("harbor", "swe-bench")
ROLLOUT_FORMATS = ("atif", "messages", "mini-swe-agent")


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("trajectories", "sessions that other projects recorded")
    group.add("import", "keep one: ATIF, OpenAI messages or mini-swe-agent, seen from the file", "file")
    exports.leaves(group.add("export", "a kept one in a format", "name"), ROLLOUT_FORMATS)
    return {"trajectories": _trajectories}


def _trajectories(client: Client, options: argparse.Namespace, output: Output) -> None:
    if options.verb == "import":
        made = client.tasks.import_trajectory(file=readable(options.file))
        output.rows([made], ("name", "not_carried"))
    else:
        document(client.tasks.export_trajectory(options.name, options.format), options, output)


def document(found: RolloutExport, options: argparse.Namespace, output: Output) -> None:
    """The document goes to its file; what the format has no place for is said beside it, where there is room."""
    with exports.target(options.output, output.out) as file:
        file.text(json.dumps(found.document, ensure_ascii=False) + "\n")
    if options.output != "-":
        lost = found.not_carried
        words = f"{options.output}; without {', '.join(lost)}" if lost else options.output
        output.said(words, {"file": options.output, "not_carried": lost})


def bundles(export: Callable[..., None], options: argparse.Namespace, output: Output) -> None:
    """Tasks with hidden tests and oracles, as a file. Raises UsageError."""
    if options.output == "-" and options.format == "harbor":
        raise UsageError("Harbor's form is a zip: name a file with -o")
    with exports.target(options.output, output.out) as file:
        export(options.name, options.format, file)
