"""Source distributions and test tools from the package index, through pip, pinned by hash, kept in a cache.

The first use needs the network; whatever is in the cache is used without it. pip asks a source distribution's build
backend for its name and version, which runs code of the package: only distributions whose hash is in the lock get
that far.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sandbox.errors import PackageError, PackageUnavailable
from sandbox.repositories.archives import members
from sandbox.repositories.artefacts import CACHES, PRODUCTS
from sandbox.repositories.history import TreeFile

HERE = Path(__file__).parent
PACKAGES_LOCK = HERE / "packages.lock"
TOOLCHAIN_LOCK = HERE / "toolchain.lock"
PIP_SECONDS = 300.0
ARTEFACTS = ("PKG-INFO", "build", "dist")
ENDINGS = (".egg-info", ".dist-info", *PRODUCTS)


@dataclass(frozen=True, slots=True)
class Pin:
    """One line of the lock."""

    name: str
    version: str
    sha256: tuple[str, ...]


def read_lock(path: Path = PACKAGES_LOCK) -> dict[str, Pin]:
    """Pins by package name. Raises PackageError for a line that pins no version or no hash."""
    pins: dict[str, Pin] = {}
    text = re.sub(r"(?m)^\s*#.*$", "", path.read_text(encoding="utf-8")).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        head, *rest = line.split()
        name, _, version = head.partition("==")
        hashes = tuple(word.removeprefix("--hash=sha256:") for word in rest if word.startswith("--hash=sha256:"))
        if not version or not hashes:
            raise PackageError(f"{path.name}: {line!r} pins no version or no hash", remedy="Write name==version --hash")
        pins[name] = Pin(name, version, hashes)
    return pins


def fetch(pin: Pin, cache: Path) -> Path:
    """The source distribution of `pin` in `cache`, downloaded if it is not there. Raises PackageUnavailable."""
    cache.mkdir(parents=True, exist_ok=True)
    found = _cached(pin, cache)
    if found is None:
        with tempfile.TemporaryDirectory(dir=cache, prefix="incoming-") as folder:
            wanted = Path(folder) / "wanted.txt"
            wanted.write_text(f"{pin.name}=={pin.version} " + " ".join(f"--hash=sha256:{h}" for h in pin.sha256))
            # The build backend of this interpreter is used as it is: nothing that is not pinned is downloaded.
            _pip(
                "download",
                "--no-build-isolation",
                "--no-binary",
                ":all:",
                "-r",
                str(wanted),
                "-d",
                folder,
                what=pin.name,
            )
            for archive in Path(folder).glob("*.tar.gz"):
                archive.rename(cache / archive.name)
        found = _cached(pin, cache)
    if found is None:
        raise PackageError(f"pip brought no source distribution of {pin.name} {pin.version}")
    return found


def _cached(pin: Pin, cache: Path) -> Path | None:
    for archive in sorted(cache.glob("*.tar.gz")):
        if hashlib.sha256(archive.read_bytes()).hexdigest() in pin.sha256:
            return archive
    return None


def toolchain_folder(cache: Path, python: str) -> Path:
    """Where `toolchain` keeps its result."""
    lock = TOOLCHAIN_LOCK.read_bytes()
    return cache / f"toolchain-{hashlib.sha256(lock + python.encode()).hexdigest()[:16]}"


def toolchain(cache: Path, python: str) -> Path:
    """A directory of pytest and what it needs, byte-compiled by `python`; installed once. Raises PackageUnavailable."""
    target = toolchain_folder(cache, python)
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="incoming-") as folder:
        site = Path(folder) / "site"
        options = ("--only-binary", ":all:", "--no-compile", "--target", str(site))
        _pip("install", *options, "-r", str(TOOLCHAIN_LOCK), what="pytest")
        shutil.rmtree(site / "bin", ignore_errors=True)
        if Path(python).exists():
            # Compiled by the interpreter that will load it, and checked against sources: who edits one sees it work.
            how = ("-q", "--invalidation-mode", "checked-hash", "-s", str(site))
            command = [python, "-I", "-m", "compileall", *how, str(site)]
            subprocess.run(command, check=True, timeout=PIP_SECONDS, stdin=subprocess.DEVNULL)
        try:
            site.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    return target


def _pip(command: str, *arguments: str, what: str) -> None:
    line = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps",
            "--require-hashes", "--retries", "2", "--timeout", "20", *arguments]  # fmt: skip
    remedy = "Connect this machine to the package index once; afterwards the cache is used"
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        done = subprocess.run(line, capture_output=True, timeout=PIP_SECONDS, env=environment, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise PackageUnavailable(f"{what}: pip took longer than {PIP_SECONDS:g} s", remedy=remedy) from None
    if done.returncode:
        said = [text for text in done.stderr.decode("utf-8", "replace").splitlines() if text.startswith("ERROR:")]
        cause = (said or [f"pip ended with {done.returncode}"])[-1].removeprefix("ERROR:").strip()
        if any("HASHES" in text for text in said):
            raise PackageError(f"{what}: what the index serves does not have the pinned hash", remedy="Do not use it")
        raise PackageUnavailable(f"{what} is not in the cache and cannot be fetched: {cause}", remedy=remedy)


def unpack(archive: Path) -> dict[str, TreeFile]:
    """Regular files of a source distribution below its top directory. Raises PackageError for an unsafe archive.

    Left out are links and devices, build products, and the `PKG-INFO` and `*.egg-info` that packaging added.
    """
    files: dict[str, TreeFile] = {}
    for member in members(archive):
        parts = member.path.split("/")
        if not (parts[0] in ARTEFACTS or any(p.endswith(ENDINGS) or p == ".git" or p in CACHES for p in parts)):
            files[member.path] = TreeFile(member.content, member.executable)
    if not files:
        raise PackageError(f"{archive.name} holds no files")
    for path in files:
        if inside := next((str(p) for p in PurePosixPath(path).parents if str(p) in files), None):
            raise PackageError(f"{archive.name}: {path!r} lies inside the file {inside!r}")
    return files


def metadata(archive: Path) -> bytes:
    """The `PKG-INFO` of a source distribution; empty when it has none. Raises PackageError."""
    return next((member.content for member in members(archive) if member.path == "PKG-INFO"), b"")
