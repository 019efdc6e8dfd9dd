"""`python -m scripts.study --size smoke|full --seed N`; `make study` is the front door. The last line is one JSON object."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from opencomposer import ApiError, Client
from opencomposer.errors import ClientError
from scripts.stack.errors import StackError
from scripts.study import product, report, seeds
from scripts.study.errors import StudyError
from scripts.study.plan import PLANS, Plan
from scripts.study.progress import Progress
from scripts.study.requests import Requests
from scripts.study.state import StateFile
from scripts.study.steps import steps
from scripts.study.study import Study


class Stopped(Exception):
    """Somebody stopped the study."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.study", description=__doc__)
    parser.add_argument(
        "--size", choices=sorted(PLANS), default="smoke", help="smoke: minutes; full: a night on two cores"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of tasks, training and sampling")
    parser.add_argument(
        "--teacher", default="", help="policy behind an endpoint that demonstrates instead of the script"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    plan = PLANS[arguments.size]
    try:
        folder = product.folder()
        state = StateFile.open(
            folder / f"{arguments.size}-{arguments.seed}.json",
            plan=plan,
            seed=arguments.seed,
            teacher=arguments.teacher,
        )
        with product.connect() as client:
            found = run(client, plan, state, folder)
    except (StudyError, StackError, ClientError) as error:
        field = f"{error.field}: " if isinstance(error, ApiError) and error.field else ""
        print(f"study: {field}{error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, Stopped):
        print("study: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    print(report.line(found), flush=True)
    return 0


def run(client: Client, plan: Plan, state: StateFile, folder: Path) -> report.Report:
    """Do what is left to do, and write the report. Raises StudyError, ClientError."""
    todo = steps(plan)
    progress = Progress({step.name: step.seconds for step in todo})
    made = {name: done.made for name, done in state.state.done.items()}
    requests = Requests(client, wait_seconds=plan.wait_hours * 3600, say=progress.say)
    study = Study(requests, plan, state.state.seed, folder, state.state.teacher, made)
    for step in todo:
        if (done := state.state.done.get(step.name)) is not None:
            progress.end(step.name, done.seconds)
            continue
        progress.begin(step.name)
        began = time.monotonic()
        try:
            made[step.name] = step.act(study)
        except BaseException:
            state.interrupted(step.name, time.monotonic() - began)
            raise
        state.end(step.name, made[step.name], time.monotonic() - began)
        progress.end(step.name, state.state.done[step.name].seconds)
    found = report.build(study, state.state)
    written = report.write(found, folder)
    if (table := seeds.write(folder, plan.size)) is not None:
        written.append(table)
    for path in written:
        print(f"study: wrote {path}", file=sys.stderr)
    return found


def _stop(_: int, __: FrameType | None) -> None:
    raise Stopped


if __name__ == "__main__":
    sys.exit(main())
