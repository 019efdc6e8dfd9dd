"""Control groups for sandboxes: cgroup v2 where a subtree is ours, else v1, else none (with the reasons).

Runs in the zygote. All groups of one zygote live below one parent named after it, which is removed with them;
parents of zygotes that are gone are swept when the next one starts.
"""

from __future__ import annotations

import errno
import os
import time

PARENT = "opencomposer-"
SPARE_PROCESSES = 8
"""Processes of ours in each group (supervisor, agent, search helpers), on top of the sandbox's own."""
PERIOD_US = 100_000


def _write(path: str, value: object) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)


def _read(path: str) -> str:
    return _read_bytes(path).decode()


def _read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


class Group:
    """The control groups of one sandbox: a directory a controller (v1), or a single one (v2)."""

    def __init__(self, folders: dict[str, str], cpu: bool) -> None:
        self._folders, self._cpu = folders, cpu
        for folder in set(folders.values()):
            os.makedirs(folder, exist_ok=True)
        events = (
            f"{folders['unified']}/memory.events" if "unified" in folders else f"{folders['memory']}/memory.oom_control"
        )
        self.events = os.open(events, os.O_RDONLY | os.O_CLOEXEC)
        """Descriptor of the file that counts out-of-memory kills as a line `oom_kill N`."""

    def join(self) -> None:
        for folder in set(self._folders.values()):
            _write(f"{folder}/cgroup.procs", 0)

    def limit(self, *, memory: int, processes: int, cpus: float) -> None:
        """Set the limits. Raises OSError."""
        quota = max(1000, int(cpus * PERIOD_US))
        tasks = processes + SPARE_PROCESSES
        if folder := self._folders.get("unified"):
            _write(f"{folder}/memory.max", memory)
            _optional(f"{folder}/memory.swap.max", 0)
            _write(f"{folder}/pids.max", tasks)
            if self._cpu:
                _write(f"{folder}/cpu.max", f"{quota} {PERIOD_US}")
            return
        _write(f"{self._folders['memory']}/memory.limit_in_bytes", memory)
        _optional(f"{self._folders['memory']}/memory.memsw.limit_in_bytes", memory)
        _write(f"{self._folders['pids']}/pids.max", tasks)
        if self._cpu:
            _write(f"{self._folders['cpu']}/cpu.cfs_quota_us", quota)

    def remove(self) -> bool:
        """True once every directory is gone; the kernel refuses while a process is still ending."""
        done = True
        for folder in set(self._folders.values()):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                done = False
        return done

    def forget(self) -> None:
        os.close(self.events)


class Cgroups:
    """What this process may use. `kind` is v2, v1 or none; `reasons` say what is missing and the remedy."""

    def __init__(self, cgroup_text: str | None = None, mountinfo_text: str | None = None) -> None:
        self.kind = "none"
        self.cpu = False
        self.reasons: list[str] = []
        self._parents: dict[str, str] = {}
        self._name = f"{PARENT}{os.getpid()}"
        mounts = _mounts(mountinfo_text or _read("/proc/self/mountinfo"))
        own = dict(_own_groups(cgroup_text or _read("/proc/self/cgroup")))
        if self._try_v2(mounts, own) or self._try_v1(mounts, own):
            self.reasons = []  # why a better place was not to be had concerns nobody
            self._weigh(os.getpriority(os.PRIO_PROCESS, 0))
        else:
            self.reasons.append(
                "no control group is ours to divide: memory is held by a watchdog and cpu shares are not enforced; "
                "run as root, or under `systemd-run --user --scope -p Delegate=yes`"
            )

    def create(self, name: str) -> Group:
        """Empty groups without limits. Raises OSError."""
        return Group({controller: f"{parent}/{name}" for controller, parent in self._parents.items()}, self.cpu)

    def _weigh(self, niceness: int) -> None:
        """Niceness counts among the processes of a group only; the groups themselves get the share that it stands for."""
        if not self.cpu or niceness <= 0:
            return
        share = 1.25**-niceness  # as the kernel's own table has it
        if folder := self._parents.get("unified"):
            _optional(f"{folder}/cpu.weight", max(1, round(100 * share)))
        else:
            _optional(f"{self._parents['cpu']}/cpu.shares", max(2, round(1024 * share)))

    def close(self, deadline: float = 2.0) -> None:
        """Remove the parents; waits a moment for groups that are still emptying."""
        end = time.monotonic() + deadline
        for parent in set(self._parents.values()):
            while not _rmdir_tree(parent) and time.monotonic() < end:
                time.sleep(0.01)

    def _try_v1(self, mounts: dict[str, tuple[str, str]], own: dict[str, str]) -> bool:
        parents: dict[str, str] = {}
        for controller in ("memory", "pids", "cpu"):
            if controller not in mounts:
                continue
            folder = _inside(mounts[controller], own.get(controller, "/"))
            try:
                _sweep(folder)
                os.makedirs(f"{folder}/{self._name}", exist_ok=True)
                parents[controller] = f"{folder}/{self._name}"
            except OSError as error:
                self.reasons.append(f"cgroup v1 {controller}: cannot create a group in {folder} ({error.strerror})")
        if not {"memory", "pids"} <= parents.keys():
            for parent in parents.values():
                os.rmdir(parent)
            return False
        self.kind, self.cpu, self._parents = "v1", "cpu" in parents, parents
        if not self._joinable():
            self.reasons.append("cgroup v1: processes cannot be moved into groups of ours")
            self._give_up()
        return self.kind == "v1"

    def _try_v2(self, mounts: dict[str, tuple[str, str]], own: dict[str, str]) -> bool:
        if "unified" not in mounts:
            return False
        here = _inside(mounts["unified"], own.get("unified", "/"))
        if not {"memory", "pids"} <= set(_read(f"{mounts['unified'][1]}/cgroup.controllers").split()):
            self.reasons.append("cgroup v2 carries no memory and pids controllers here")
            return False
        # a group with processes cannot hand controllers to children, so the usual place is beside ours
        for folder in (here, os.path.dirname(here)):
            if not folder.startswith(mounts["unified"][1]):
                continue
            try:
                _sweep(folder)
                controllers = _enable(folder)
                if not {"memory", "pids"} <= controllers:
                    self.reasons.append(f"cgroup v2: {folder} hands down only {sorted(controllers)}")
                    continue
                parent = f"{folder}/{self._name}"
                os.makedirs(parent, exist_ok=True)
                _enable(parent)
            except OSError as error:
                self.reasons.append(f"cgroup v2: {folder} is not delegated to us ({error.strerror})")
                continue
            self.kind, self.cpu, self._parents = "v2", "cpu" in controllers, {"unified": parent}
            if self._joinable():
                return True
            self.reasons.append(f"cgroup v2: processes cannot be moved from {here} to {parent}")
            self._give_up()
        return False

    def _joinable(self) -> bool:
        """Whether a process of ours may enter a group made here (v2 wants rights over the common ancestor too)."""
        try:
            group = self.create("trial")
        except OSError:  # gVisor's groups do not count kills for memory
            return False
        pid = os.fork()
        if pid == 0:
            try:
                group.join()
            except OSError:
                os._exit(1)
            os._exit(0)
        joined = os.waitpid(pid, 0)[1] == 0
        group.forget()
        return joined and group.remove()

    def _give_up(self) -> None:
        self.close(0.0)
        self.kind, self.cpu, self._parents = "none", False, {}


def _enable(folder: str) -> set[str]:
    """Hand memory, pids and cpu down to children of `folder`; what is handed down afterwards."""
    handed = set(_read(f"{folder}/cgroup.subtree_control").split())
    offered = set(_read(f"{folder}/cgroup.controllers").split())
    for controller in ("memory", "pids", "cpu"):
        if controller in offered and controller not in handed:
            _write(f"{folder}/cgroup.subtree_control", f"+{controller}")
            handed.add(controller)
    return handed


def _optional(path: str, value: object) -> None:
    """Write a setting that some kernels do not have (swap accounting)."""
    if os.path.exists(path):
        _write(path, value)


def _mounts(text: str) -> dict[str, tuple[str, str]]:
    """Controller (or `unified`) → (root of the mount, mount point)."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        place = (fields[3], fields[4])
        if kind[0] == "cgroup2":
            found.setdefault("unified", place)
        elif kind[0] == "cgroup":
            for controller in kind[2].split(","):
                if controller in ("memory", "pids", "cpu"):
                    found.setdefault(controller, place)
    return found


def _own_groups(text: str) -> list[tuple[str, str]]:
    groups = []
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        names = ["unified"] if number == "0" else controllers.split(",")
        groups += [(name, path) for name in names]
    return groups


def _inside(place: tuple[str, str], path: str) -> str:
    """Directory of the group `path` under a mount that shows the hierarchy from `root` on."""
    root, mount_point = place
    if root != "/" and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    if path.startswith("/.."):  # our own group lies outside what is mounted
        path = "/"
    return (mount_point + path).rstrip("/")


def sweep() -> int:
    """Remove the groups of zygotes that are gone, wherever one started from here would look; how many."""
    mounts, own = _mounts(_read("/proc/self/mountinfo")), dict(_own_groups(_read("/proc/self/cgroup")))
    swept = 0
    for name, place in mounts.items():
        here = _inside(place, own.get(name, "/"))
        for folder in {here, os.path.dirname(here)}:
            if folder.startswith(place[1]):
                try:
                    swept += _sweep(folder)
                except PermissionError:  # not ours to divide, so nothing of ours is there
                    continue
    return swept


def _sweep(folder: str) -> int:
    swept = 0
    for entry in os.listdir(folder):
        number = entry.removeprefix(PARENT)
        if entry.startswith(PARENT) and number.isdigit() and not _zygote_lives(number):
            swept += _rmdir_tree(f"{folder}/{entry}")
    return swept


def _zygote_lives(number: str) -> bool:
    try:
        return b"namespaces.zygote" in _read_bytes(f"/proc/{number}/cmdline")  # empty for one that nobody collected
    except OSError:
        return False


def _rmdir_tree(folder: str) -> bool:
    """Remove a group with its children; False while something in it is still alive."""
    try:
        for entry in os.listdir(folder):
            if os.path.isdir(f"{folder}/{entry}"):
                os.rmdir(f"{folder}/{entry}")
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
