"""Why this machine refuses a sandbox, in words that say what to do."""

from __future__ import annotations

import errno
import os

RESTRICTED_BY_APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
DISABLED_BY_DEBIAN = "/proc/sys/kernel/unprivileged_userns_clone"
MAX_NAMESPACES = "/proc/sys/user/max_user_namespaces"


def explain(step: str, number: int | None, text: str) -> str:
    """One message for a failed step: what failed, why as far as the machine tells, and the remedy."""
    advice = _advice(step, number)
    return f"cannot start a sandbox: {text}" + (f". {advice}" if advice else "")


def _advice(step: str, number: int | None) -> str:
    if step == "layer" or step == "LayerError":
        return ""
    refused = number in (errno.EPERM, errno.EACCES)
    if step == "proc":
        return (
            "This container masks parts of /proc, so no new one can be mounted: start it with "
            "`--security-opt systempaths=unconfined` (Docker), `--security-opt unmask=ALL` (Podman) or under gVisor"
        )
    if refused and os.geteuid() != 0 and _is(RESTRICTED_BY_APPARMOR, "1"):
        return (
            "AppArmor on this system forbids user namespaces to ordinary users: run "
            "`sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or run as root"
        )
    if step in ("userns", "namespaces"):
        return _about_user_namespaces(number)
    if step == "overlay":
        return (
            "Overlay mounts in user namespaces need Linux 5.11 or later with the `overlay` module (`modprobe overlay`)"
        )
    if step == "mount" and refused:
        return (
            "This process may not mount: inside a container, run it as an ordinary user (`--user 1000`) with "
            "`--security-opt seccomp=unconfined --security-opt apparmor=unconfined "
            "--security-opt systempaths=unconfined`; as root it needs `--cap-add SYS_ADMIN` besides"
        )
    return ""


def _about_user_namespaces(number: int | None) -> str:
    if _is(DISABLED_BY_DEBIAN, "0"):
        return "User namespaces are switched off: run `sudo sysctl kernel.unprivileged_userns_clone=1`, or run as root"
    if number == errno.ENOSPC or _is(MAX_NAMESPACES, "0"):
        return "No user namespace is left: raise it with `sudo sysctl user.max_user_namespaces=15000`"
    if number == errno.EPERM:
        return (
            "User namespaces are forbidden here: not possible from a chroot; inside a container, start it with "
            "`--security-opt seccomp=unconfined`, or `--privileged`"
        )
    return ""


def _is(path: str, value: str) -> bool:
    try:
        with open(path) as file:
            return file.read().strip() == value
    except OSError:
        return False
