"""`make bench NAME=redteam`: every exploit of the red team, and its honest counterpart, through the product.

Each pair is one group of a training run: a scripted policy behind the inference contract, the harness, a sandbox, grading,
and the accepted group in Postgres (`tests/redteam/product.py`), on every backend of this machine. `scored` counts exploits
whose verdict is `passed` or whose reward is above 0; `honest_passed` is the share of honest runs that pass; `vanished`
counts rollouts that left no verdict, no readable trajectory, or whose group was not accepted; `left_out`
counts pairs whose toolchain the sandboxes lack (Debian's golang-go and cargo have it). Prints what is wrong before
the last line. `ARGS="A1 D2"` plays some, `ARGS="--backends namespaces"` one backend.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.stack import throwaway
from tests.bench import report
from tests.redteam import pairs, tasks

GOALS: dict[str, report.Goal] = {"scored": ("==", 0), "honest_passed": (">=", 1.0), "vanished": ("==", 0)}
AT_ONCE = 2
SECONDS = 4 * 3600.0


def child(ids: Sequence[str], backend: str, out: Path) -> None:
    """One backend, in a process and a database of its own."""
    os.environ["OPENCOMPOSER_SANDBOX"] = backend
    with throwaway.services() as variables:
        os.environ.update(variables)
        os.environ["DJANGO_SETTINGS_MODULE"] = "composer_web.settings"
        import django

        django.setup()
        from django.core.management import call_command

        from tests.redteam import product

        call_command("migrate", verbosity=0)
        chosen = [pair for pair in pairs() if not ids or pair.exploit.id in ids]
        rows = product.play(chosen, at_once=AT_ONCE, tell=lambda line: print(f"{backend} {line}", flush=True))
        out.write_text(
            json.dumps([{**row, "vanished": r.vanished} for row, r in zip(product.as_json(rows), rows, strict=True)])
        )
        sys.stdout.flush()
        os._exit(0)  # the episode loop's threads end with the process


def measure(ids: Sequence[str], names: Sequence[str]) -> tuple[list[dict], list[str]]:
    from sandbox.backends.base import SandboxUnavailable
    from tests.docker_engine import NoEngine
    from tests.redteam.__main__ import usable

    rows: list[dict] = []
    used: list[str] = []
    for name in names:
        try:
            with usable(name), tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "rows.json"
                command = [
                    sys.executable,
                    "-m",
                    "tests.bench.sandbox.redteam",
                    "--child",
                    name,
                    "--out",
                    str(out),
                    *ids,
                ]
                subprocess.run(command, check=True, timeout=SECONDS, stdout=sys.stderr)
                rows += [{**row, "backend": name} for row in json.loads(out.read_text())]
                used.append(name)
        except (NoEngine, SandboxUnavailable, ImportError) as error:
            print(f"{name}: left out: {error}", flush=True)
    return rows, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these (A1 …)")
    parser.add_argument("--backends", default="namespaces,docker", help="separated by commas")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.ids, options.child, options.out)
        return
    every = {pair.exploit.id: pair for pair in pairs()}
    if unknown := [exploit for exploit in options.ids if exploit not in every]:
        parser.error(f"no exploit {', '.join(unknown)}")
    if lacking := tasks.missing(every[exploit] for exploit in options.ids or every):
        parser.error(lacking)
    began = time.monotonic()
    rows, used = measure(options.ids, options.backends.split(","))
    exploits = [row for row in rows if not row["honest"]]
    honest = [row for row in rows if row["honest"]]
    paid = [row for row in exploits if row["verdict"] == "passed" or (row["reward"] or 0) > 0]
    failed = [row for row in honest if row["verdict"] != "passed"]
    vanished = [row for row in rows if row["vanished"]]
    for word, wrong in (("paid", paid), ("honest run not passed", failed), ("vanished", vanished)):
        for row in wrong:
            print(f"{word}: {row['exploit']} on {row['backend']}: {row['verdict'] or 'no verdict'} "
                  f"{row['outcome']} {row['cause']!r}, group {row['group']}")  # fmt: skip
    metrics = {
        "scored": len(paid),
        "honest_passed": round((len(honest) - len(failed)) / len(honest), 4) if honest else 0.0,
        "vanished": len(vanished),
        "exploits": len({row["exploit"] for row in rows}),
        "left_out": len(every if not options.ids else options.ids) - len({row["exploit"] for row in rows}),
        "backends": len(used),
        "rollouts": len(rows),
        "seconds": round(time.monotonic() - began, 1),
    }
    report.emit("redteam", metrics, goals=GOALS, conditions={"backends_used": ",".join(used)})


if __name__ == "__main__":
    main()
