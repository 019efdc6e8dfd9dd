"""All that `make lint` checks, each with its time; every check runs even when one before it failed."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import lock, words
from .docs import sources

BIN = Path(sys.executable).parent
MAX_TEMPLATE = 160
"""Characters of a line of a template."""
CHECKS: dict[str, list[str]] = {  # the longest first: the others run beside it
    "mypy": [str(BIN / "mypy"), "--no-error-summary"],
    "ruff check": [str(BIN / "ruff"), "check", "--quiet", "."],
    "ruff format": [str(BIN / "ruff"), "format", "--check", "--quiet", "."],
    "system checks": [sys.executable, "manage.py", "check", "--fail-level", "WARNING"],
    "layers": [str(BIN / "lint-imports"), "--no-logo"],
    "help pages": [sys.executable, "-m", "scripts.docs", "--check"],
}


def run(command: list[str]) -> tuple[int, str, float]:
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=lock.REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.strip(), time.monotonic() - began


def long_lines() -> list[str]:
    """Lines of templates that nobody can read in a diff."""
    found = []
    for path in sorted((lock.REPOSITORY / "templates").rglob("*.html")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > MAX_TEMPLATE:
                place = path.relative_to(lock.REPOSITORY)
                found.append(
                    f"{place}:{number}: {len(line)} characters, at most {MAX_TEMPLATE}; break it where HTML ignores it"
                )
    return found


def main() -> int:
    failed = []
    with ThreadPoolExecutor(max_workers=2) as pool:
        ended = pool.map(run, CHECKS.values())
        found = {
            "lock": lock.problems(lock.LOCK.read_text()),
            "templates": long_lines(),
            "words": words.problems(),
            "docs": sources.problems(),
        }
        for name, problems in found.items():
            print("\n".join(problems or [f"lint: {name} ok"]))
            failed += [name] if problems else []
        for name, (code, output, seconds) in zip(CHECKS, ended, strict=True):
            if code:
                failed.append(name)
                print(output)
            print(f"lint: {name} {'FAILED' if code else 'ok'} ({seconds:.1f} s)", flush=True)
    if failed:
        print(f"lint: failed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
