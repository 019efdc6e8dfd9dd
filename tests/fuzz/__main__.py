"""`make fuzz`: every target for some seconds under atheris, coverage-guided. The last line is one JSON object.

An input that broke a parser is kept in tests/fuzz/found/<target>/, from where every `make test` tries it again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOUND = Path(__file__).parent / "found"
ONE_INPUT_SECONDS = 10
MEMORY_MB = 2048
INSTRUMENTED = ["sandbox", "trainer.weights"]


def one(name: str, options: list[str]) -> None:
    """Inside a process of its own: libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *options], TARGETS[name].run)
    atheris.Fuzz()


def run(name: str, seeds: tuple[bytes, ...], seconds: int) -> tuple[int, str]:
    """Executions, and what broke ("" when nothing did)."""
    kept = FOUND / name
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds):
            Path(corpus, f"seed-{number}").write_bytes(seed)
        kept.mkdir(exist_ok=True)
        options = [corpus, f"-max_total_time={seconds}", f"-timeout={ONE_INPUT_SECONDS}", f"-rss_limit_mb={MEMORY_MB}"]
        options += [f"-artifact_prefix={kept}/", "-print_final_stats=1", "-max_len=65536"]
        command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--", *options]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds + 120)
    if not any(kept.iterdir()):
        kept.rmdir()
    count = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    broke = "" if done.returncode == 0 else done.stderr[-3000:]
    return int(count[1]) if count else 0, broke


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--targets", default="", help="names joined by commas (default: all)")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    parser.add_argument("options", nargs="*", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        one(chosen.one, chosen.options)
        return 0
    from tests.fuzz.targets import TARGETS

    names = chosen.targets.split(",") if chosen.targets else list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"no target {unknown[0]}; there are {', '.join(TARGETS)}")
    executions, broken = {}, []
    for name in names:
        executions[name], broke = run(name, TARGETS[name].seeds, chosen.seconds)
        print(f"{name:18} {executions[name]:>9} inputs  {'BROKEN' if broke else 'held'}", flush=True)
        if broke:
            broken.append(name)
            print(broke, file=sys.stderr)
    print(json.dumps({"fuzz": "ok" if not broken else "broken", "inputs": executions, "broken": broken}))
    return bool(broken)


if __name__ == "__main__":
    raise SystemExit(main())
