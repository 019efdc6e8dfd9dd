"""Container specifications for the engine's API: permissions, restrictions and mounts of each kind."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from sandbox.backends.base import HOME, Limits
from sandbox.backends.docker import bundle
from sandbox.backends.docker.image import LOCAL_BIN, Image
from sandbox.backends.docker.inside import LAYERS, SOURCES, STORE, TARGET
from sandbox.backends.namespaces.kernel import identity, mounts
from sandbox.backends.namespaces.kernel.confine import OWN_PROCESSES

PERIOD_US = 100_000
TRUSTED_MEMORY_BYTES = 768 << 20
MASK_BYTES = 4096
HOST_KERNEL_RUNTIMES = ("", "runc", "crun", "io.containerd.runc.v2")
"""Runtimes known to use the host's kernel; of others (gVisor, Kata) no more is assumed than a trial shows."""
NAMESERVER = "127.0.0.53"
RUNTIME_PROCESSES = 1000
"""Processes that a runtime with its own kernel may start for itself; protects the host, not the sandbox."""
MAX_OPTION_BYTES = 3800
"""Longest option string of an overlay mount; the kernel accepts one page."""
READING = ("CHOWN", "DAC_OVERRIDE", "FOWNER")
"""Capabilities of trusted code that reads and copies files of any owner."""
TRANSLATING = ("SYS_ADMIN", "SETUID", "SETGID")
"""Capabilities that idmapped mounts are made with. The keeper gives them up before it reads a file."""
MASKED = (
    *("acpi", "asound", "kcore", "latency_stats", "sched_debug", "scsi", "timer_stats"),  # as engines do
    *mounts.MASKED,
)
"""Below /proc: what a box finds empty."""


@dataclass(frozen=True)
class Kind:
    """Settings that all containers of one backend share."""

    image: Image
    runtime: str
    """Runtime of boxes; empty: the engine's default."""
    trusted_runtime: str
    security: tuple[str, ...]
    """Security options of boxes."""
    controls: frozenset[str]
    """Subset of {"memory", "processes", "cpu"} that the engine can limit here."""
    labels: dict[str, str]
    own_users: bool = False
    """Whether each sandbox is a kernel user of its own (`users.py`)."""

    @property
    def on_host_kernel(self) -> bool:
        """Whether a box's processes run on this machine's kernel."""
        return self.runtime in HOST_KERNEL_RUNTIMES


def keeper(kind: Kind, layers: list[str], limits: Limits) -> dict[str, Any]:
    """Trusted code with the writable layer: a tmpfs volume that ends with this container."""
    options = f"size={limits.disk_bytes},nr_inodes={limits.inodes},mode=0755,nosuid,nodev"
    places = [_volume(STORE, "tmpfs", options, kind.labels)]
    places += [_bind(path, f"{LAYERS}/{number}", read_only=True) for number, path in enumerate(layers)]
    return _trusted(kind, [*READING, *(TRANSLATING if kind.own_users else ())], places)


def copier(kind: Kind, sources: list[str], target: dict[str, Any], keeper_id: str | None = None) -> dict[str, Any]:
    """Trusted code that lays folders over each other into the mount `target`."""
    places = [_bind(path, f"{SOURCES}/{number}", read_only=True) for number, path in enumerate(sources)]
    return _trusted(kind, [*READING], [*places, target])


def helper(kind: Kind, box_id: str) -> dict[str, Any]:
    """Trusted code among the processes of a box, which it may end and which cannot reach it."""
    config = _trusted(kind, ["KILL"], [])
    config["HostConfig"]["PidMode"] = f"container:{box_id}"
    return config


def folder(path: str) -> dict[str, Any]:
    """A folder of this machine as a copier's target."""
    return _bind(path, TARGET, read_only=False)


def named_volume(name: str) -> dict[str, Any]:
    """A volume as a copier's target."""
    return {"Type": "volume", "Source": name, "Target": TARGET, "VolumeOptions": {"NoCopy": True}}


def box(kind: Kind, layers: list[str], store: str, limits: Limits, way: str | None, user: int | None) -> dict[str, Any]:
    """Where hostile code runs.

    `store` is the keeper's volume, `way` a folder with the socket for its listener, `user` the id of its own if any.
    """
    places = [
        _volume(HOME, "overlay", overlay_options(layers, store), kind.labels),
        _bind(f"{store}/tmp", "/tmp", read_only=False),
        _bind(f"{store}/shm", "/dev/shm", read_only=False),
        *(_shown(kind, path, store) for path in kind.image.folders),
        *(_masked(place) for place in kind.image.volumes if place.rstrip("/") not in (HOME, "/tmp", "/dev/shm")),
    ]
    if kind.image.programs:
        places.append(_bind(f"{store}/bin", LOCAL_BIN, read_only=True))
    if way:
        places.append(_bind(way, "/mnt", read_only=True))
    if kind.on_host_kernel:
        options = f"newinstance,ptmxmode=0666,mode=620,gid=5,max={mounts.TERMINALS},nosuid,noexec"
        places.append(_volume("/dev/pts", "devpts", options, kind.labels))
    host = _host(kind, places) | {
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", *kind.security],
        "CgroupnsMode": "private",
        "Dns": [NAMESERVER],
        "ExtraHosts": [f"{identity.HOSTNAME}:127.0.1.1"],
        "Ulimits": [_ulimit("nofile", limits.open_files), _ulimit("core", 0)],
    }
    if "memory" in kind.controls:
        memory = limits.memory_bytes + limits.disk_bytes  # the writable layer lives in memory too
        host |= {"Memory": memory, "MemorySwap": memory}
    if "processes" in kind.controls:
        host |= {"PidsLimit": limits.processes + (OWN_PROCESSES if kind.on_host_kernel else RUNTIME_PROCESSES)}
    if "cpu" in kind.controls:
        host |= {"CpuPeriod": PERIOD_US, "CpuQuota": max(1000, int(limits.cpus * PERIOD_US))}
    if kind.on_host_kernel:
        host |= {"Sysctls": {"net.ipv4.ping_group_range": "1 0"}}  # engines open raw echo sockets to everybody
        host |= {"MaskedPaths": [*(f"/proc/{name}" for name in MASKED), "/sys/firmware"]}
    if user is not None:
        # no process of a box ever has it: its user is not root and new privileges are barred. But where it is named, the
        # engine's filter lets pid 1 make a user namespace, which our own filter refuses to everything after.
        host |= {"CapAdd": ["SYS_ADMIN"]}
    if kind.runtime:
        host["Runtime"] = kind.runtime
    ids = (identity.INNER_UID, identity.INNER_GID) if user is None else (user, user)
    return _container(kind, host) | {"User": "{}:{}".format(*ids), "Hostname": identity.HOSTNAME}


def overlay_options(layers: list[str], store: str) -> str:
    """Options of a box's home."""
    lower = ":".join(layers) or f"{store}/empty"
    places = f"lowerdir={lower},upperdir={store}/upper,workdir={store}/work"
    return f"{places},userxattr,volatile,nosuid,nodev"


def _shown(kind: Kind, path: str, store: str) -> dict[str, Any]:
    """A folder of this machine for reading, as files of this box alone: locks and watches on them meet no neighbour's."""
    if not kind.on_host_kernel:
        return _bind(path, path, read_only=True)
    escaped = re.sub(r"([\\:,])", r"\\\1", path)
    options = f"lowerdir={store}/empty:{escaped},ro,nosuid,nodev"  # without an upper layer there must be two
    return _volume(path, "overlay", options, kind.labels)


def _trusted(kind: Kind, capabilities: list[str], places: list[dict[str, Any]]) -> dict[str, Any]:
    host = _host(kind, places + [_bind(path, path, read_only=True) for path in kind.image.folders]) | {
        "CapDrop": ["ALL"],
        "CapAdd": capabilities,
        "SecurityOpt": ["no-new-privileges"],
        "Ulimits": [_ulimit("nofile", 1024)],
    }
    if "memory" in kind.controls:
        host |= {"Memory": TRUSTED_MEMORY_BYTES}
    if kind.trusted_runtime:
        host["Runtime"] = kind.trusted_runtime
    return _container(kind, host) | {"User": "0:0"}


def _container(kind: Kind, host: dict[str, Any]) -> dict[str, Any]:
    return {
        "Image": kind.image.name,
        "Entrypoint": bundle.command(kind.image.python),
        "Cmd": [],
        "Env": [],
        "WorkingDir": "/",
        "Labels": kind.labels,
        "Healthcheck": {"Test": ["NONE"]},
        "OpenStdin": True,
        "StdinOnce": True,  # the end of the stream is the end of the container's input
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": host,
    }


def _host(kind: Kind, places: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "AutoRemove": True,
        "NetworkMode": "none",
        "IpcMode": "private",
        "ReadonlyRootfs": True,
        "LogConfig": {"Type": "none"},
        "Mounts": places,
    }


def _volume(target: str, kind: str, options: str, labels: dict[str, str]) -> dict[str, Any]:
    """A mount of a file system of this kind as a volume without a name: the engine removes it with its container."""
    driver = {"Name": "local", "Options": {"type": kind, "device": kind, "o": options}}
    volume = {"NoCopy": True, "Labels": labels, "DriverConfig": driver}
    return {"Type": "volume", "Target": target, "VolumeOptions": volume}


def _bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": os.path.abspath(source), "Target": target, "ReadOnly": read_only}


def _masked(target: str) -> dict[str, Any]:
    """In place of a volume that the image declares, which nothing would bound."""
    return {"Type": "tmpfs", "Target": target, "ReadOnly": True, "TmpfsOptions": {"SizeBytes": MASK_BYTES}}


def _ulimit(name: str, value: int) -> dict[str, Any]:
    return {"Name": name, "Soft": value, "Hard": value}
