"""Files behind the blobs of an artifact store that is a folder, for tests that damage or move them."""

from __future__ import annotations

from pathlib import Path

from composer_web.core.artifacts import artifacts


def artifact_folder() -> Path:
    place = artifacts().place
    assert isinstance(place, Path)
    return place


def blob_file(key: str) -> Path:
    return artifact_folder() / artifacts().checked(key)
