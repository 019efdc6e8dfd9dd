"""Build `static/img/icons.svg`, the sprite of the icons that pages use, from the Lucide set that the docs theme ships.

    python -m scripts.icons

Run it after adding a name to `ICONS`; the sprite is committed, so the product needs no build step. Pages name an icon by
`{% icon "play" %}` (`composer_web/ui/templatetags/icons.py`); a test compares the sprite with what templates and modules ask for.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "static" / "img" / "icons.svg"
ICONS = (
    "activity", "archive", "arrow-right", "arrow-up-right", "badge-check", "bell", "book-open", "bookmark", "box",
    "boxes", "brain-circuit", "check", "chart-line", "chevron-down", "chevron-left", "chevron-right",
    "circle-alert", "circle-check", "circle-dot", "circle-help", "circle-play", "circle-x", "clipboard-check",
    "clock", "columns-3", "copy", "cpu", "database", "download", "ellipsis", "external-link", "eye", "file-text",
    "filter", "flag", "flask-conical", "folder", "folder-git-2", "gauge", "git-compare", "git-fork", "globe",
    "grip-vertical", "hard-drive", "history", "hourglass", "house", "inbox", "info", "key-round", "keyboard",
    "layers", "list-checks", "list-tree", "loader", "log-out", "maximize-2", "menu", "message-square-text",
    "moon", "network", "package", "panel-left", "pause", "pencil", "pin", "play", "plus", "radio", "refresh-cw",
    "rocket", "rows-3", "save", "scale", "scroll-text", "search", "server", "settings", "shield-alert",
    "sliders-horizontal", "sparkles", "square", "square-check-big", "star", "sun", "tag", "target", "terminal",
    "timer", "trash-2", "triangle-alert", "trophy", "upload", "user", "user-plus", "users", "x", "zap",
)  # fmt: skip
LICENCE = "Lucide, https://lucide.dev, ISC licence, (c) Lucide Contributors; parts of Feather, MIT licence, Cole Bemis"
SVG = re.compile(r"<svg[^>]*>(.*)</svg>", re.DOTALL)


def source() -> Path:
    """Folder of the icons. Exits with the remedy where the docs theme is not installed."""
    spec = find_spec("zensical")
    if spec is None or spec.origin is None:
        sys.exit("the docs theme (zensical) is not installed: make install")
    return Path(spec.origin).parent / "templates" / ".icons" / "lucide"


def sprite(folder: Path) -> str:
    """One symbol an icon, named after its file."""
    symbols = []
    for name in sorted(set(ICONS)):
        found = SVG.search((folder / f"{name}.svg").read_text())
        assert found is not None, f"{name}.svg holds no drawing"
        symbols.append(f'<symbol id="{name}" viewBox="0 0 24 24">{found[1]}</symbol>')
    return f'<svg xmlns="http://www.w3.org/2000/svg"><!-- {LICENCE} -->\n' + "\n".join(symbols) + "\n</svg>\n"


def main() -> None:
    TARGET.write_text(sprite(source()))
    sys.stdout.write(f"{TARGET.name}: {len(set(ICONS))} icons, {TARGET.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
