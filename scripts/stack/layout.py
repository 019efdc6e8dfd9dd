"""Where the embedded stack keeps its data, its sockets and its logs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .errors import StackError

REPOSITORY = Path(__file__).resolve().parents[2]

# The kernel refuses Unix socket paths over 107 bytes; the longest name put into the folder is 23 bytes
# (".s.PGSQL.5432.lock.<pid>" style names are files, only ".s.PGSQL.5432" and "supervisor.sock.<pid>" are sockets).
MAX_SOCKET_FOLDER = 80


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of one stack. Two stacks with different data folders never meet."""

    data: Path
    sockets: Path

    @classmethod
    def open(cls, data: Path) -> Layout:
        """Create the folders (private to the user who starts the stack) and choose one for the sockets."""
        data = data.resolve()
        for folder in (data, data / "run", data / "logs"):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StackError(
                    f"cannot create {folder}: {error.strerror}. Set OPENCOMPOSER_DATA to a folder "
                    "that you may write to."
                ) from error
        (data / "run").chmod(0o700)
        return cls(data=data, sockets=_socket_folder(data / "run"))

    @classmethod
    def from_environment(cls) -> Layout:
        """The stack that OPENCOMPOSER_DATA names (default: `.data` in the repository)."""
        return cls.open(Path(os.environ.get("OPENCOMPOSER_DATA") or REPOSITORY / ".data"))

    @property
    def run(self) -> Path:
        """Ports, pids, secrets and generated configuration: all that a later command needs to find this stack."""
        return self.data / "run"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def postgres(self) -> Path:
        return self.data / "postgres"

    @property
    def postgres_socket(self) -> Path:
        """The folder of Postgres's socket: the cluster's own, which only its account may enter."""
        return self.postgres if self.sockets == self.run else self.sockets

    @property
    def valkey(self) -> Path:
        return self.data / "valkey"


def package_folder(name: str) -> Path:
    """Where an installed package lies, found without running any of its code."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise StackError(f"the package {name} is not installed: run `make install`")
    return Path(spec.origin).parent


def _socket_folder(run: Path) -> Path:
    """`run` itself, or, where its path is too long for a socket, a private short folder whose name is kept in it."""
    if len(os.fsencode(run)) <= MAX_SOCKET_FOLDER:
        return run
    record = run / "sockets"
    with contextlib.suppress(OSError):
        folder = Path(record.read_text().strip())
        status = folder.lstat()
        # Somebody else's folder of that name, or one that others may enter, is not ours to trust.
        if folder.is_dir() and not folder.is_symlink() and status.st_uid == os.geteuid() and not status.st_mode & 0o077:
            return folder
    folder = Path(tempfile.mkdtemp(prefix="opencomposer-", dir="/tmp"))
    record.write_text(f"{folder}\n")
    return folder
