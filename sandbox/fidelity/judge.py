"""Which facets tell a sandbox from the recorded machine, how much, and what mends each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from sandbox.fidelity.observe import Value

REFERENCE = Path(__file__).parent / "reference" / "machine.json"
Effort = Literal["cheap", "costly", "kept"]


class Profile(BaseModel):
    """Facets of a machine that somebody works on. `stated` are those that only a person's use gives, with the reason."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    how: str
    recorded_at: str
    facets: dict[str, Value]
    stated: dict[str, tuple[Value, str]] = {}

    def expected(self, name: str) -> Value | None:
        return self.stated[name][0] if name in self.stated else self.facets.get(name)


@dataclass(frozen=True, slots=True)
class Rule:
    """How a facet is compared. Numbers may differ by `factor`; of a list at least `share` must be there."""

    title: str
    weight: int
    effort: Effort
    remedy: str
    factor: float = 2.5
    share: float = 0.75


class Tell(BaseModel):
    """One difference that an agent could notice."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    facet: str
    title: str
    seen: str
    expected: str
    weight: int
    effort: Effort
    remedy: str


class Verdict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    score: float
    """Weighted share of facets that look like the recorded machine's, 0 to 100."""
    tells: tuple[Tell, ...]
    facets: int


MACHINE = "sandbox/backends/machine.py"
SYSTEM = "sandbox/backends/namespaces/kernel/system.py"
KERNEL = "run the workers on a distribution's own kernel: what /proc says of it is the host's"
IMAGE = "the Docker backend with a full image (OPENCOMPOSER_DOCKER_IMAGE)"
KEPT = "the isolation needs it"

RULES: dict[str, Rule] = {
    "users": Rule("system accounts in /etc/passwd", 2, "cheap", f"add what the distribution has to {SYSTEM}"),
    "groups": Rule("groups in /etc/group", 1, "cheap", f"add what the distribution has to {SYSTEM}"),
    "groups_of_user": Rule("groups that the user is in", 1, "costly", "map more group ids into the user namespace"),
    "files_of_nobody": Rule(
        "system files belong to nobody", 3, "costly", f"map a second id to 0 in the user namespace, or {IMAGE}"
    ),
    "variables": Rule("environment variables of a login", 1, "cheap", f"Machine.variables in {MACHINE}"),
    "language": Rule(
        "a language is set",
        1,
        "costly",
        f"install a locale on the workers' host, then LANG in Machine.variables ({MACHINE})",
    ),
    "home_entries": Rule("entries of the home directory", 2, "cheap", f"Machine.files in {MACHINE}"),
    "home_files": Rule("files that every home has", 2, "cheap", f"Machine.files in {MACHINE}"),
    "home_age_days": Rule("age of the oldest file at home", 2, "cheap", f"Machine.home_age_days in {MACHINE}"),
    "history_lines": Rule("lines of shell history", 2, "cheap", f"Machine.history_lines in {MACHINE}"),
    "email_domain": Rule("mail address with a domain", 1, "cheap", f"Machine.email in {MACHINE}"),
    "commits": Rule("length of the git history", 3, "kept", "an older state of a file would give the answer away"),
    "root_entries": Rule("entries of /", 1, "cheap", f"FOLDERS in {SYSTEM}"),
    "processes": Rule(
        "processes", 2, "costly", "start idle look-alikes, or share the host's view: neither is worth its price"
    ),
    "daemons": Rule("common daemons in the process list", 2, "costly", f"{IMAGE} with its init"),
    "init_padded": Rule(
        "blanks after the command line of process 1",
        2,
        "cheap",
        "_set_title in sandbox/backends/namespaces/kernel/confine.py",
    ),
    "init_since_boot": Rule(
        "process 1 is as old as the machine", 1, "costly", "a time namespace with an offset of the boot clock"
    ),
    "kernel_of_distribution": Rule("kernel built by a distribution", 3, "costly", KERNEL),
    "boot_names_root": Rule("kernel command line names a root disk", 2, "costly", KERNEL),
    "seccomp": Rule("a seccomp filter", 2, "kept", KEPT),
    "no_new_privileges": Rule("the flag no_new_privs", 1, "kept", KEPT),
    "capabilities_bounded": Rule("an empty capability bounding set", 1, "kept", KEPT),
    "session_scope": Rule("cgroup of a login session", 1, "costly", "a cgroup namespace below a scope of that name"),
    "mounts": Rule("number of mounts", 1, "costly", "bind fewer files one by one"),
    "root_on_disk": Rule("/ lies on a disk", 2, "costly", "an overlay over a full system instead of a small root"),
    "home_on_disk": Rule("the home lies on a disk", 2, "kept", "the overlay makes a start take milliseconds"),
    "devices": Rule("entries of /dev", 1, "kept", KEPT),
    "sys_entries": Rule("entries of /sys", 1, "kept", KEPT),
    "run_entries": Rule("entries of /run", 1, "costly", IMAGE),
    "log_entries": Rule("entries of /var/log", 1, "costly", IMAGE),
    "boot_entries": Rule("entries of /boot", 1, "costly", IMAGE),
    "network_interface": Rule("a network interface", 2, "kept", "no network"),
    "route": Rule("a route to elsewhere", 1, "kept", "no network"),
    "resolves_names": Rule("names resolve", 2, "kept", "no network"),
    "packages": Rule("installed packages", 1, "costly", f"the host's list is not shown; {IMAGE}"),
    "tools": Rule("common programs", 2, "cheap", "install them on the workers' host, or in the image"),
    "python_of_root": Rule("python3 lies below /root", 3, "cheap", "start the workers with a Python outside /root"),
    "memory_gib": Rule("memory", 1, "costly", "what /proc/meminfo says is the host's", factor=16.0),
    "disk_gib": Rule("size of the disk below the home", 1, "kept", "the disk limit of the sandbox", factor=16.0),
}


def reference(path: Path = REFERENCE) -> Profile:
    """A recorded profile. Raises OSError, pydantic's ValidationError."""
    return Profile.model_validate_json(path.read_bytes())


def judge(seen: Mapping[str, Value], profile: Profile) -> Verdict:
    """Every facet against the profile; facets that it does not have are left out."""
    tells, total, lost = [], 0, 0
    for name, rule in RULES.items():
        expected = profile.expected(name)
        if expected is None or name not in seen:
            continue
        total += rule.weight
        if not alike(seen[name], expected, rule):
            lost += rule.weight
            tells.append(
                Tell(
                    facet=name,
                    title=rule.title,
                    seen=_words(seen[name], expected),
                    expected=_words(expected, seen[name]),
                    weight=rule.weight,
                    effort=rule.effort,
                    remedy=rule.remedy,
                )
            )
    score = 100.0 * (total - lost) / total if total else 0.0
    tells.sort(key=lambda tell: -tell.weight)
    return Verdict(score=round(score, 1), tells=tuple(tells), facets=sum(n in RULES for n in seen))


def alike(seen: Value, expected: Value, rule: Rule) -> bool:
    if isinstance(expected, list):
        assert isinstance(seen, list), "a facet keeps its type"
        return not expected or len(set(expected) & set(seen)) >= rule.share * len(set(expected))
    if isinstance(expected, bool | str):
        return seen == expected
    assert not isinstance(seen, str | list), "a facet keeps its type"
    low, high = sorted((float(seen), float(expected)))
    return high <= rule.factor * low if low > 0 else high == low


def _words(value: Value, other: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        own = sorted(set(value) - set(other if isinstance(other, list) else ()))
        return f"{len(value)}; only here: {', '.join(own[:12])}" if own else str(len(value))
    return f"{value:g}" if isinstance(value, float) else str(value)
