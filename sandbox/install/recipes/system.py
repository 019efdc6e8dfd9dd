"""Missing system packages of a build, unpacked below a prefix in the environment; nothing is installed on the host.

The machine's own apt resolves and downloads packages, and verifies signatures and digests as usual. No maintainer
script runs, nothing outside the sandbox changes, and environment variables locate programs and libraries.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from sandbox.backends.base import HOME, ExecResult, Sandbox
from sandbox.install.recipes import diagnosis
from sandbox.install.recipes.base import Log

PREFIX = f"{HOME}/.system"
DOWNLOAD_SECONDS = 180.0
LAY_SECONDS = 120.0
MAX_PACKAGES = 60
MAX_BYTES = 256 << 20
"""Packed, of all that one build misses."""
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{1,80}")
TRIPLET = os.uname().machine + "-linux-gnu"
LEFT_OUT = re.compile(r"usr/share/(?:doc|man|locale|lintian|bug)/|etc/|var/|(?:usr/)?lib/systemd/")

RELINK = f"""find {PREFIX} -xtype l | while read -r link; do
  there=$(readlink "$link"); case $there in /*) ;; *) there=$(dirname "$link")/$there ;; esac
  there=${{there#{PREFIX}}}; [ ! -e "$there" ] || ln -sf "$there" "$link"
done"""
"""A library's link in a -dev package leads to a file of another package: where the machine has that one, to its own."""


class AttemptSandbox(Protocol):
    """Where packages are needed: an attempt's sandbox with its variables."""

    box: Sandbox
    log: Log
    env: dict[str, str]

    async def run(self, command: str, seconds: float) -> ExecResult: ...

    async def export(self) -> None:
        """Tell the sandbox's shell the variables."""


class SystemPackages:
    """What one attempt was given; asked for once each."""

    def __init__(self) -> None:
        self.provided: list[str] = []
        """`name_version`, for the record."""
        self._asked: set[str] = set()

    async def provide(self, attempt: AttemptSandbox, names: Sequence[str]) -> bool:
        """Lay the packages into the sandbox; whether anything new is there. What apt cannot give is told in the log."""
        wanted = [name for name in names if name not in self._asked and NAME.fullmatch(name)]
        self._asked |= set(wanted)
        if not wanted:
            return False
        attempt.log(f"system packages, by the words of the error: {', '.join(wanted)}")
        with tempfile.TemporaryDirectory(prefix="system-") as folder:
            try:
                async with asyncio.timeout(DOWNLOAD_SECONDS):
                    archives = await download_archives(Path(folder), wanted)
            except (OSError, TimeoutError, AptFailed) as error:
                attempt.log(f"this machine's apt does not give them ({error}): {diagnosis.remedy(wanted[0])}")
                return False
            for archive in archives:
                packed = await _plain_tar(archive)
                await attempt.box.write("/tmp/system.tar", packed)  # noqa: S108 (inside the sandbox)
                await attempt.run(
                    f"mkdir -p {PREFIX} && tar -xf /tmp/system.tar -C {PREFIX} && rm /tmp/system.tar", LAY_SECONDS
                )
                self.provided.append(archive.name.rpartition("_")[0].replace("%3a", ":"))
        attempt.env |= variables(attempt.env)
        await attempt.export()
        # Files of pkg-config and *-config programs name /usr; they are told where they lie now.
        await attempt.run(
            f"find {PREFIX} \\( -name '*.pc' -o -path '*/bin/*-config' \\) -type f "
            f"-exec sed -i 's#=/usr#={PREFIX}/usr#g; s#-I/usr#-I{PREFIX}/usr#g; s#-L/usr#-L{PREFIX}/usr#g' {{}} +",
            LAY_SECONDS,
        )
        await attempt.run(RELINK, LAY_SECONDS)
        attempt.log(f"laid below {PREFIX}: {', '.join(self.provided)}")
        return bool(archives)


def variables(env: dict[str, str]) -> dict[str, str]:
    """By which compilers, linkers, loaders, pkg-config and shells find what lies below the prefix."""
    include, libraries = [f"{PREFIX}/usr/include", f"{PREFIX}/usr/include/{TRIPLET}"], [
        f"{PREFIX}/usr/lib/{TRIPLET}", f"{PREFIX}/usr/lib", f"{PREFIX}/lib/{TRIPLET}",
    ]  # fmt: skip
    programs = f"{PREFIX}/usr/bin"
    path = env.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {
        "PATH": path if programs in path.split(":") else f"{path}:{programs}",
        "CPATH": ":".join(include),
        "LIBRARY_PATH": ":".join(libraries),
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PKG_CONFIG_PATH": ":".join(
            f"{PREFIX}/usr/{place}/pkgconfig" for place in (f"lib/{TRIPLET}", "lib", "share")
        ),
        "CMAKE_PREFIX_PATH": f"{PREFIX}/usr",
    }  # fmt: skip


class AptFailed(Exception):
    """apt is not there, knows no such package, or could not download it."""


async def download_archives(folder: Path, names: Sequence[str]) -> list[Path]:
    """The archives of packages and of what they need that this machine lacks. Raises AptFailed."""
    listed = await _apt(
        folder, "install", "--print-uris", "-qq", "-y", "--no-install-recommends", "--no-remove", *names
    )
    rows = re.findall(r"(?m)^'[^']+' (\S+?)_(\S+?)_\S+\.deb (\d+)", listed)
    here = await _installed([name for name, _, _ in rows])
    rows = [row for row in rows if row[0] not in here or row[0].startswith("lib")]
    if not rows or len(rows) > MAX_PACKAGES or sum(int(size) for _, _, size in rows) > MAX_BYTES:
        raise AptFailed(f"{len(rows)} packages, {sum(int(size) for _, _, size in rows)} bytes")
    await _apt(folder, "download", "-qq", *(name for name, _, _ in rows))
    return sorted(folder.glob("*.deb"))


async def _apt(folder: Path, *arguments: str) -> str:
    return await _said(folder, "apt-get", *arguments)


async def _installed(names: Sequence[str]) -> set[str]:
    said = await _said(Path("/"), "dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n", check=False)
    return {line.split()[1] for line in said.splitlines() if line.startswith("installed ")} & set(names)


async def _said(folder: Path, *command: str, check: bool = True) -> str:
    if shutil.which(command[0]) is None:
        raise AptFailed(f"there is no {command[0]}")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
    )  # fmt: skip
    try:
        out, said = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if check and process.returncode:
        raise AptFailed(f"{command[0]}: {said.decode('utf-8', 'replace').strip()[-200:]}")
    return out.decode("utf-8", "replace")


async def _plain_tar(archive: Path) -> bytes:
    """The files of a package without documentation, settings, devices and links that leave. Raises AptFailed."""
    process = await asyncio.create_subprocess_exec(
        "dpkg-deb", "--fsys-tarfile", str(archive), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, said = await process.communicate()
    if process.returncode:
        raise AptFailed(f"dpkg-deb: {said.decode('utf-8', 'replace').strip()[-200:]}")
    made = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(out)) as source, tarfile.open(fileobj=made, mode="w") as target:
        for member in source:
            path = member.name.removeprefix("./")
            if not path or path.startswith("/") or ".." in path.split("/") or LEFT_OUT.match(path):
                continue
            if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
                continue
            if member.issym() and member.linkname.startswith("/"):
                member.linkname = f"{PREFIX}{member.linkname}"
            member.name, member.mode = path, member.mode & 0o777
            target.addfile(member, source.extractfile(member) if member.isreg() else None)
    return made.getvalue()
