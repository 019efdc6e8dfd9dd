"""The build: stage hand-written and generated pages in one folder, render them strictly, make the result fit a strict CSP."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.docs import api, cli, configuration, metrics
from scripts.docs.scripts import externalize

REPOSITORY = Path(__file__).resolve().parents[2]
SITE = REPOSITORY / "build" / "help"
REFERENCE = {
    "reference/configuration.md": configuration.page,
    "reference/settings.md": configuration.settings_page,
    "reference/metrics.md": metrics.page,
    "reference/cli.md": cli.page,
    "reference/api.md": api.page,
    "reference/schemas.md": api.schemas_page,
}
"""Generated page → the function that writes it."""

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class BuildError(Exception):
    """The site cannot be built. The message is the renderer's list of problems."""


def build(site: Path = SITE) -> None:
    """Build the site at `site`, replacing what was there. Raises BuildError, and then leaves the old site in place."""
    site.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=site.parent, prefix="docs-") as folder:
        stage(Path(folder))
        made = render(Path(folder))
        for name in ("404.html", "sitemap.xml"):  # the product answers for missing pages, at an address unknown here
            (made / name).unlink(missing_ok=True)
        externalize(made)
        shutil.rmtree(site, ignore_errors=True)
        os.replace(made, site)


def stage(folder: Path) -> None:
    """Copy docs/ and mkdocs.yml to `folder`, and add the generated pages."""
    shutil.copytree(REPOSITORY / "docs", folder / "docs")
    shutil.copy(REPOSITORY / "static/img/mark.svg", folder / "docs/img")
    shutil.copy(REPOSITORY / "mkdocs.yml", folder)
    for name, page in REFERENCE.items():
        path = folder / "docs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(), encoding="utf-8")
    if left_out := unlisted(folder):
        raise BuildError(f"mkdocs.yml does not list {', '.join(left_out)} under nav")


def unlisted(folder: Path) -> list[str]:
    """Pages of `folder` that no line of its mkdocs.yml names."""
    named = set(re.findall(r"[\w/.-]+\.md", (folder / "mkdocs.yml").read_text(encoding="utf-8")))
    pages = [str(path.relative_to(folder / "docs")) for path in sorted((folder / "docs").rglob("*.md"))]
    return [page for page in pages if page not in named]


def render(folder: Path) -> Path:
    """Render the staged pages and return the folder of the site."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "mkdocs.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = COLOURS.sub("", done.stdout + done.stderr.partition("Traceback")[0]).strip()
        raise BuildError(said or f"zensical ended with status {done.returncode}: {done.stderr.strip()}")
    return folder / "site"
