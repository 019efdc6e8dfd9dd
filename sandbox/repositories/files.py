"""Files of a repository as texts: plain relative paths, and bounds on what one may hold."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator

MAX_FILE_BYTES = 1 << 20
MAX_FILES = 5000
MAX_BUNDLE_BYTES = 32 << 20
MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255


def check_relative_path(path: str) -> str:
    """A normalised POSIX path below the checkout, of plain characters; raises ValueError that names the path."""
    pure = PurePosixPath(path)
    parts = [part.lower() for part in pure.parts]
    if (
        not path
        or path != str(pure)
        or pure.is_absolute()
        or ".." in parts
        or ".git" in parts
        or not path.isprintable()
        or "\\" in path
        or len(path.encode()) > MAX_PATH_BYTES
        or any(len(part.encode()) > MAX_NAME_BYTES for part in parts)
    ):
        raise ValueError(f"path {path!r} is not a plain relative path inside the repository")
    return path


def check_files(files: dict[str, str]) -> dict[str, str]:
    """Plain paths, none of which lies inside another, and texts within bounds. Raises ValueError that names the path."""
    if len(files) > MAX_FILES:
        raise ValueError(f"{len(files)} files; at most {MAX_FILES}")
    total = 0
    for path, text in files.items():
        check_relative_path(path)
        if inside := next((str(p) for p in PurePosixPath(path).parents if str(p) in files), None):
            raise ValueError(f"path {path!r} lies inside the file {inside!r}")
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise ValueError(f"file {path!r} holds a lone surrogate, which no file can hold") from None
        if size > MAX_FILE_BYTES:
            raise ValueError(f"file {path!r} is larger than {MAX_FILE_BYTES} bytes; use a built environment")
        total += size
    if total > MAX_BUNDLE_BYTES:
        raise ValueError(f"the files hold {total} bytes; at most {MAX_BUNDLE_BYTES}: use a built environment")
    return files


RelativePath = Annotated[str, AfterValidator(check_relative_path)]
Files = Annotated[dict[str, str], AfterValidator(check_files)]
"""Path below the checkout → text."""
