"""Atomic file writes."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Write `text` to `path`, making its folder; readers see the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
