"""Move inline scripts of rendered pages into files, so that the product's Content-Security-Policy needs no exception."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)
"""Scripts without attributes run where they stand. Those with a `src` are files; `type="application/json"` is data."""
FOLDER = "assets/inline"


def externalize(site: Path) -> None:
    """Rewrite every page of `site`. Equal scripts share one file, named after its content."""
    (site / FOLDER).mkdir(parents=True, exist_ok=True)
    for page in sorted(site.rglob("*.html")):
        up = "../" * (len(page.relative_to(site).parts) - 1)

        def outside(match: re.Match[str], up: str = up) -> str:
            name = f"{FOLDER}/{hashlib.sha256(match[1].encode()).hexdigest()[:12]}.js"
            (site / name).write_text(match[1], encoding="utf-8")
            return f'<script src="{up}{name}"></script>'

        page.write_text(INLINE.sub(outside, page.read_text(encoding="utf-8")), encoding="utf-8")
