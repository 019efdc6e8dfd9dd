"""One import as a process of its own: its memory ends with it. Reads an `Asked` from standard input, writes an `Answer`."""

from __future__ import annotations

import sys
from pathlib import Path

from trainer.model_import import Answer, Asked
from trainer.policy.errors import PolicyUnreadable
from trainer.policy.importing.facts import facts_of
from trainer.policy.importing.prepare import Wanted, prepare
from trainer.policy.importing.source import find_source


def carry_out(asked: Asked) -> Answer:
    try:
        source = find_source(Path(asked.path))
        folder, stored = prepare(source, Path(asked.target), Wanted(template=asked.template, renderer=asked.renderer))
        return Answer(folder=str(folder), facts=facts_of(folder, stored=stored))
    except PolicyUnreadable as error:
        field = error.field if error.field in ("template", "renderer") else "path"
        return Answer(refused=str(error), field=field)


if __name__ == "__main__":
    print(carry_out(Asked.model_validate_json(sys.stdin.read())).model_dump_json())  # noqa: T201 # its answer
