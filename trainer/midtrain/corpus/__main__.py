"""`python -m trainer.midtrain.corpus`: prepare a corpus for mid-training."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sandbox.tasks.spec import TaskSpec
from trainer.midtrain.corpus.readers import SourceUnreadable
from trainer.midtrain.corpus.store import prepare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the corpus")
    parser.add_argument(
        "--source", type=Path, action="append", required=True,
        help="folder, git repository, .jsonl or .parquet file; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--against", type=Path, action="append", default=[], help="task bundles (a JSON object a line) to keep clear of"
    )
    arguments = parser.parse_args()
    tasks = [
        TaskSpec.model_validate_json(line)
        for file in arguments.against
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    try:
        made = prepare(arguments.out, arguments.source, against=tasks)
    except SourceUnreadable as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(made.model_dump_json(indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
