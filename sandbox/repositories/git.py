"""A checkout from a git repository, without running any of its code.

The host's git fetches one commit into a separate bare repository and outputs raw objects. Nothing is checked out, so
no filter, hook, submodule or attribute of the repository takes effect, and none of its configuration is read.
git gets the token in its environment and sends it only to the repository's own host: redirects are refused.
"""

from __future__ import annotations

import base64
import datetime
import os
import re
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from sandbox.errors import PackageError, PackageUnavailable
from sandbox.network.guard import Guard, Refused, Unknown
from sandbox.repositories.archives import MAX_FILE_BYTES, MAX_MEMBERS, MAX_TOTAL_BYTES
from sandbox.repositories.artefacts import CACHES
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.files import check_relative_path
from sandbox.repositories.history import TreeFile

SECONDS = 600.0
MAX_PACK_BYTES = 512 << 20
LFS = b"version https://git-lfs.github.com/spec/v1"
SETTINGS = {
    "core.hooksPath": "/dev/null", "core.fsmonitor": "false", "core.attributesFile": "/dev/null", "core.protectNTFS": "true",
    "transfer.fsckObjects": "true", "fetch.recurseSubmodules": "no", "submodule.recurse": "false", "gc.auto": "0",
    "maintenance.auto": "false", "credential.helper": "", "http.followRedirects": "false", "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "60", "protocol.allow": "never", "protocol.version": "2", "advice.detachedHead": "false",
}  # fmt: skip
OLDEST_GIT = (2, 37)
"""The first that can be told at which addresses a host is."""
PLACE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A checkout and the commit that it is."""

    checkout: Checkout
    commit: str


def check_url(url: str, *, guard: Guard | None = None) -> str:
    """The address of a repository as it may be typed. Where hosts that the guard names are, is for the machine to find
    that fetches: this one need not know them. Raises PackageError, PackageUnavailable."""
    guard = guard or Guard()
    host, port = _place(url, guard)
    if not guard.names(host, port):
        _judged(host, port, guard)
    return url.strip()


def _place(url: str, guard: Guard) -> tuple[str, int]:
    """Host and port. Raises PackageError."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise PackageError(
            f"address {_shown(url)!r} cannot be read: {error}", remedy="Give https://host/owner/name"
        ) from error
    if parts.username is not None or parts.password is not None:
        raise PackageError("the address carries a user or password", remedy="Give the token in its own field")
    named = guard.names(parts.hostname or "", port)
    if parts.scheme != "https" and not (parts.scheme == "http" and named):
        raise PackageError(f"address {_shown(url)!r} is not an https address", remedy="Give https://host/owner/name")
    if not parts.hostname or parts.query or parts.fragment:
        raise PackageError(f"address {_shown(url)!r} names no repository", remedy="Give https://host/owner/name")
    if not PLACE.fullmatch(parts.netloc):
        # git reads the host with another parser than we do: what the two may read otherwise is no host at all.
        raise PackageError(
            f"the host of {_shown(url)!r} is not plain", remedy="Write it with a-z, 0-9, dots and dashes"
        )
    return parts.hostname, port


def _judged(host: str, port: int, guard: Guard) -> tuple[str, ...]:
    """The addresses where git may look for a host. Raises PackageError, PackageUnavailable."""
    try:
        return guard.addresses(host, port)
    except Refused as error:
        raise PackageError(str(error), remedy="Give a repository that is reached from everywhere") from error
    except Unknown as error:
        raise PackageUnavailable(str(error), remedy="Check the address") from error


def check_path(path: str, *, roots: tuple[Path, ...]) -> Path:
    """A repository on this machine below one of `roots`. Raises PackageError."""
    found = Path(path).resolve()
    if not any(found.is_relative_to(root.resolve()) for root in roots):
        allowed = ", ".join(map(str, roots)) or "none"
        raise PackageError(f"{path} is not below a folder that may be read", remedy=f"Allowed are: {allowed}")
    if not (found / ".git").exists() and not (found / "objects").is_dir():
        raise PackageError(f"{path} is no git repository", remedy="Give its folder, or upload an archive")
    return found


def fetch(
    location: str,
    *,
    revision: str = "",
    token: SecretStr | None = None,
    name: str = "",
    guard: Guard | None = None,
) -> Fetched:
    """One commit of a repository (an address, or a checked path). Raises PackageError, PackageUnavailable."""
    if revision and not REVISION.fullmatch(revision):
        raise PackageError(f"revision {revision!r} is not a branch, tag or commit", remedy="Give a plain name or hash")
    with tempfile.TemporaryDirectory(prefix="fetch-") as folder:
        bare = Path(folder) / "bare"
        run = Git(bare, location, token, guard)
        run("init", "-q", "--bare", str(bare), seconds=30.0)
        run(
            "fetch",
            "-q",
            "--depth=1",
            "--no-tags",
            "--no-recurse-submodules",
            "--",
            location,
            revision or "HEAD",
            seconds=SECONDS,
        )
        commit = run("rev-parse", "--verify", "FETCH_HEAD^{commit}", seconds=30.0).decode().strip()
        day = datetime.date.fromisoformat(run("show", "-s", "--format=%cs", commit, seconds=30.0).decode().strip())
        files, notes = _files(run, commit)
    name = name or re.sub(r"\.git$", "", location.rstrip("/").rsplit("/", 1)[-1])
    return Fetched(Checkout(name=name, version=commit[:12], files=files, released=day, notes=tuple(notes)), commit)


class Git:
    """git in a bare repository, with nothing configured but what is said here.

    The host of an address is looked up and judged here, and git connects to what was judged: it looks nothing up itself.
    """

    def __init__(self, bare: Path, location: str, token: SecretStr | None, guard: Guard | None = None) -> None:
        self._bare, self._token = bare, token
        scheme = urlsplit(location).scheme or "file"
        settings = {**SETTINGS, f"protocol.{scheme}.allow": "always"}
        if "://" in location:
            guard = guard or Guard()
            host, port = _place(location, guard)
            addresses = _judged(host, port, guard)
            check_version()
            settings["http.curloptResolve"] = f"{host}:{port}:{','.join(addresses)}"
        if token is not None:
            pair = base64.b64encode(f"x-access-token:{token.get_secret_value()}".encode()).decode()
            settings[f"http.{location}.extraHeader"] = f"Authorization: Basic {pair}"
        if scheme == "file":
            settings["safe.directory"] = "*"
        self._environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": "/nonexistent", "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/false",
            "GIT_SSH_COMMAND": "/bin/false", "GIT_LFS_SKIP_SMUDGE": "1", "GIT_CONFIG_COUNT": str(len(settings)),
        }  # fmt: skip
        for name in ("HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE", "GIT_SSL_CAINFO"):
            if value := os.environ.get(name):
                self._environment[name] = value
        for index, (key, value) in enumerate(settings.items()):
            self._environment |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}

    def __call__(self, command: str, *arguments: str, seconds: float, stdin: bytes = b"") -> bytes:
        git = shutil.which("git")
        if git is None:
            raise PackageUnavailable("git is not installed on this machine", remedy="Install it")
        where = [] if command == "init" else [f"--git-dir={self._bare}"]
        # The bound on file size is the kernel's: a pack that outgrows it ends the fetch.
        line = [
            "/bin/sh",
            "-c",
            f'ulimit -f {MAX_PACK_BYTES // 512}; exec "$@"',
            "sh",
            git,
            *where,
            command,
            *arguments,
        ]
        process = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )
        try:
            out, said = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise PackageUnavailable(
                f"git {command} took longer than {seconds:g} s", remedy="Try again later"
            ) from None
        if process.returncode:
            raise self._failed(command, said.decode("utf-8", "replace"))
        return out

    def _failed(self, command: str, said: str) -> PackageError:
        if self._token is not None:
            said = said.replace(self._token.get_secret_value(), "***")
        why = _shown(" ".join(said.split())[-300:])
        if re.search(r"File too large|file size limit|SIGXFSZ|died of signal 25", said, re.IGNORECASE):
            return PackageError(
                f"the repository is larger than {MAX_PACK_BYTES} bytes", remedy="Upload an archive of a part"
            )
        if re.search(r"couldn't find remote ref|not our ref|unadvertised object", said):
            return PackageError("the repository has no such revision", remedy="Check the branch, tag or commit")
        if re.search(r"Authentication failed|could not read Username|403|404|not found", said, re.IGNORECASE):
            return PackageError(f"the repository cannot be read: {why}", remedy="Check the address and the token")
        return PackageUnavailable(f"git {command} failed: {why}", remedy="Try again later")


def _files(run: Git, commit: str) -> tuple[dict[str, TreeFile], list[str]]:
    """Regular files of a commit, and what was left out. Raises PackageError."""
    listing = run("ls-tree", "-r", "-z", "-l", commit, seconds=60.0)
    wanted: list[tuple[str, str, bool]] = []
    links = modules = total = 0
    for entry in filter(None, listing.split(b"\0")):
        head, _, raw = entry.partition(b"\t")
        mode, kind, digest, size = head.decode().split()
        try:
            path = check_relative_path(raw.decode("utf-8"))
        except UnicodeDecodeError:
            raise PackageError(f"the name {raw!r} is not UTF-8", remedy="Rename the file in the repository") from None
        except ValueError as error:
            raise PackageError(f"{error}", remedy="Rename the file in the repository") from None
        if kind == "commit":
            modules += 1
        elif mode == "120000":
            links += 1
        elif not any(part in CACHES for part in path.split("/")):
            if int(size) > MAX_FILE_BYTES:
                raise PackageError(
                    f"{path} is larger than {MAX_FILE_BYTES} bytes", remedy="Keep large data out of the repository"
                )
            total += int(size)
            wanted.append((path, digest, mode == "100755"))
    if len(wanted) > MAX_MEMBERS or total > MAX_TOTAL_BYTES:
        raise PackageError(
            f"the commit has {len(wanted)} files and {total} bytes; at most {MAX_MEMBERS} and {MAX_TOTAL_BYTES}"
        )
    if not wanted:
        raise PackageError("the commit holds no files", remedy="Check the revision")
    contents = _blobs(
        run("cat-file", "--batch", seconds=SECONDS, stdin="".join(f"{d}\n" for _, d, _ in wanted).encode())
    )
    files = {path: TreeFile(content, run_) for (path, _, run_), content in zip(wanted, contents, strict=True)}
    pointers = sum(file.content.startswith(LFS) for file in files.values())
    notes = []
    if modules:
        notes.append(f"{modules} submodules are left out: their repositories are not fetched")
    if pointers:
        notes.append(f"{pointers} files are LFS pointers: their contents are not fetched")
    if links:
        notes.append(f"{links} symbolic links are left out")
    return files, notes


def _blobs(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        end = data.index(b"\n", at)
        size = int(data[at:end].split()[2])
        found.append(data[end + 1 : end + 1 + size])
        at = end + size + 2
    return found


@lru_cache(maxsize=1)
def check_version() -> None:
    """An older git would not heed where it has to connect to. Raises PackageUnavailable."""
    git = shutil.which("git")
    if git is None:
        raise PackageUnavailable("git is not installed on this machine", remedy="Install it")
    said = subprocess.run([git, "version"], capture_output=True, text=True, timeout=30.0, check=False).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        raise PackageUnavailable(
            f"{said.strip() or 'git'} looks names up by itself", remedy="Install git 2.37 or newer on this machine"
        )


def _shown(text: str) -> str:
    """Without what may be a secret."""
    return re.sub(r"//[^/@\s]*@", "//***@", text)
