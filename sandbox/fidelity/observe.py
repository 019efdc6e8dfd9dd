"""What the output of probe.sh says, as facets: counts, names of common things, and yes or no.

Texts that could name a person, a host or a project are reduced to counts and properties here, so that a recorded
profile of somebody's machine holds none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

Value = bool | int | float | str | list[str]
Sections = dict[str, str]

SCRIPTS = Path(__file__).parent
DISKS = {"ext4", "xfs", "btrfs", "ext3", "f2fs", "zfs", "apfs"}
DISTRIBUTIONS = re.compile(r"debian|ubuntu|fedora|redhat|opensuse|archlinux|gentoo|nixos|microsoft", re.IGNORECASE)
COMMON_DAEMONS = ("systemd", "systemd-journal", "systemd-logind", "dbus-daemon", "cron", "sshd", "login", "agetty")
DAY = 86_400


def script(name: str) -> str:
    """Text of `probe`, `early` or `curious`: what is run by bash in a checkout."""
    return (SCRIPTS / f"{name}.sh").read_text()


def sections(text: str) -> Sections:
    """The parts of a script's output, by the titles after `@@`. A part that occurs twice keeps its first text."""
    found: Sections = {}
    for part in re.split(r"(?m)^@@ ", text)[1:]:
        title, _, body = part.partition("\n")
        found.setdefault(title.strip(), body.strip("\n"))
    return found


def facets(text: str) -> dict[str, Value]:
    """All facets of one run of probe.sh. Raises ValueError when it is not the output of that script."""
    parts = sections(text)
    if missing := {"who", "processes", "mounts"} - parts.keys():
        raise ValueError(f"this is not the output of probe.sh: section {sorted(missing)[0]!r} is missing")
    return {name: read(parts) for name, read in FACETS.items()}


def _lines(parts: Sections, name: str) -> list[str]:
    return [line for line in parts.get(name, "").splitlines() if line.strip()]


def _number(parts: Sections, name: str, line: int = 0) -> int:
    lines = _lines(parts, name)
    return int(float(lines[line])) if len(lines) > line and re.fullmatch(r"-?[\d.]+", lines[line].strip()) else 0


def _groups_of_user(parts: Sections) -> int:
    return len(re.findall(r"\(", parts["who"].partition("groups=")[2]))


def _processes(parts: Sections) -> list[str]:
    return [line.split(None, 2)[2] for line in _lines(parts, "processes") if len(line.split(None, 2)) == 3]


def _status(parts: Sections, name: str) -> str:
    found = re.search(rf"^{name}:\s*(\S*)", parts.get("status", ""), re.MULTILINE)
    return found[1] if found else ""


def _mount_kind(parts: Sections, place: str) -> str:
    """File system of the deepest mount that holds `place`."""
    mounts = [line.split()[:2] for line in _lines(parts, "mounts") if len(line.split()) >= 2]
    holding = [(len(where), kind) for kind, where in mounts if (place + "/").startswith(where.rstrip("/") + "/")]
    return max(holding, default=(0, ""))[1]


def _home(parts: Sections) -> str:
    return "/home/" + re.sub(r"^uid=\d+\(([^)]*)\).*", r"\1", parts["who"], flags=re.DOTALL)


def _email_domain(parts: Sections) -> bool:
    lines = _lines(parts, "git_identity")
    return bool(lines) and "." in lines[-1].rpartition("@")[2]


def _age_days(parts: Sections, name: str) -> float:
    oldest = _number(parts, name)
    return round((_number(parts, "now") - oldest) / DAY, 1) if oldest else 0.0


def _init_since_boot(parts: Sections) -> bool:
    """Whether process 1 is about as old as the machine says it runs."""
    return abs(_number(parts, "init_age", 1) - _number(parts, "init_age")) < 120


FACETS: dict[str, Callable[[Sections], Value]] = {
    "users": lambda p: len(_lines(p, "users")),
    "groups": lambda p: len(_lines(p, "groups")),
    "groups_of_user": _groups_of_user,
    "files_of_nobody": lambda p: any(line.startswith("nobody ") for line in _lines(p, "home_owner")),
    "variables": lambda p: _lines(p, "environment"),
    "language": lambda p: p.get("locale", "").partition(".")[0].strip() not in ("", "C", "POSIX"),
    "home_entries": lambda p: len(_lines(p, "home")),
    "home_files": lambda p: [name for name in _lines(p, "home") if name.startswith(".")],
    "home_age_days": lambda p: _age_days(p, "home_times"),
    "history_lines": lambda p: _number(p, "history"),
    "email_domain": _email_domain,
    "commits": lambda p: _number(p, "git_commits"),
    "root_entries": lambda p: _lines(p, "root"),
    "processes": lambda p: len(_processes(p)),
    "daemons": lambda p: sorted({name for name in _processes(p) if name in COMMON_DAEMONS}),
    "init_padded": lambda p: bool(re.search(r"\S {3,}", p.get("init", "") + "|")),
    "init_since_boot": _init_since_boot,
    "kernel_of_distribution": lambda p: bool(DISTRIBUTIONS.search(p.get("kernel", ""))),
    "boot_names_root": lambda p: "root=" in p.get("boot", ""),
    "seccomp": lambda p: _status(p, "Seccomp") not in ("", "0"),
    "no_new_privileges": lambda p: _status(p, "NoNewPrivs") == "1",
    "capabilities_bounded": lambda p: set(_status(p, "CapBnd")) <= {"0"},
    "session_scope": lambda p: "user.slice" in p.get("cgroup", ""),
    "mounts": lambda p: len(_lines(p, "mounts")),
    "root_on_disk": lambda p: _mount_kind(p, "/") in DISKS,
    "home_on_disk": lambda p: _mount_kind(p, _home(p)) in DISKS,
    "devices": lambda p: len(_lines(p, "devices")),
    "sys_entries": lambda p: _number(p, "sys"),
    "run_entries": lambda p: _number(p, "run"),
    "log_entries": lambda p: _number(p, "logs"),
    "boot_entries": lambda p: _number(p, "boot_files"),
    "network_interface": lambda p: any(name.strip() not in ("", "lo") for name in _lines(p, "interfaces")),
    "route": lambda p: _number(p, "routes") > 0,
    "resolves_names": lambda p: p.get("resolves", "").strip() == "yes",
    "packages": lambda p: _number(p, "packages"),
    "tools": lambda p: _lines(p, "tools"),
    "python_of_root": lambda p: p.get("python", "").startswith("/root"),
    "memory_gib": lambda p: _number(p, "memory"),
    "disk_gib": lambda p: int((p.get("disk", "").split() or ["0"])[-1]) if p.get("disk", "").strip() else 0,
}
