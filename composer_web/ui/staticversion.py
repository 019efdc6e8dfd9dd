"""A name for what the static files contain. It is part of their addresses, so that a browser may keep them for good.

One name for all of them rather than one each: modules and style sheets name each other by relative addresses, which stay
as they are written.
"""

from __future__ import annotations

import hashlib
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("django", "django-allauth", "django-htmx", "django-ninja")
"""That bring static files."""
LENGTH = 12
VERSIONED = re.compile(rf"^/static/[0-9a-f]{{{LENGTH}}}/")
"""The beginning of an address with a name, of these files or of others."""


def static_version(folder: Path) -> str:
    """Hash of the files in `folder` and of the packages that ship static files."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    for package in PACKAGES:
        try:
            digest.update(f"{package} {version(package)}".encode())
        except PackageNotFoundError:
            continue
    return digest.hexdigest()[:LENGTH]
