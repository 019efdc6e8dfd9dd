"""Checks of text that need no build: the length of lines, links of pages outside of the site, and paths that code names."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MAX_LINE = 200
"""Characters of a line of Markdown: more cannot be read in a diff."""
OUTSIDE = ("README.md", "AGENTS.md")
"""Pages that link into docs/ and are no part of the site."""

LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(?:#([^)\s]*))?\)")
CODE = (
    "composer_web",
    "opencomposer",
    "sandbox",
    "scripts",
    "tests/bench/*.py",
    "trainer",
    "Makefile",
    "docker-compose.yml",
)
"""Where a path below docs/ is one of ours. Tests of tasks and patches make up such paths."""


def problems() -> list[str]:
    return [*long_lines(), *broken_links(), *wrong_names()]


def long_lines() -> Iterator[str]:
    for path in [*(REPOSITORY / name for name in OUTSIDE), *sorted((REPOSITORY / "docs").rglob("*.md"))]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > MAX_LINE:
                place = path.relative_to(REPOSITORY)
                yield f"{place}:{number}: {len(line)} characters, at most {MAX_LINE}; break the line, or make a list of the table"


def broken_links() -> Iterator[str]:
    """Links of README and AGENTS. A strict build checks those of the pages."""
    for name in OUTSIDE:
        for target, anchor in LINK.findall((REPOSITORY / name).read_text(encoding="utf-8")):
            path = REPOSITORY / target
            if not path.exists():
                yield f"{name}: {target} does not exist"
            elif anchor and anchor not in anchors(path):
                yield f"{name}: {target} has no heading #{anchor}"


def anchors(page: Path) -> set[str]:
    """What headings of a page are called in links, on GitHub and on the site."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def wrong_names() -> Iterator[str]:
    """Paths below docs/ in code and comments that do not exist."""
    listed = subprocess.run(
        ["git", "grep", "-nIo", "-E", r"\bdocs/[A-Za-z0-9_/-]+\.(md|jsonl)\b", "--", *CODE],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    for line in listed:
        place, _, name = line.rpartition(":")
        if not (REPOSITORY / name).exists():
            yield f"{place}: {name} does not exist"
