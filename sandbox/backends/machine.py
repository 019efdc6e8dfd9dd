"""The person whose machine a sandbox seems to be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """What a sandbox shows of the person whose machine it seems to be: the place to mend what gives it away.

    `manage.py fidelity` compares it with a recorded machine. User, host name and /etc belong to the backends
    (`backends/namespaces/kernel/identity.py`, `mounts.py`): every sandbox of a host shares them.
    """

    person: str = "Robin Marsh"
    email: str = "robin@marsh.lan"
    """Uses a domain that cannot be registered, so the address belongs to no real person."""
    history_lines: int = 720
    home_age_days: float = 412.0
    """Age of the oldest file at home when its layer is written; the others are younger."""
    files: tuple[tuple[str, str], ...] = ()
    """More files at home, or other contents of usual ones: path → text."""
    variables: tuple[tuple[str, str], ...] = (
        ("MAIL", "/var/mail/dev"),
        ("XDG_SESSION_CLASS", "user"),
        ("XDG_SESSION_ID", "3"),
        ("XDG_SESSION_TYPE", "tty"),
    )
    """What a login sets besides the backend's plain environment; LANG too, where the host has that language."""


MACHINE = Machine()
"""Whose machine a sandbox seems to be where no profile says."""
