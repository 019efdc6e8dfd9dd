"""Runs inside a sandbox, alone, with the system's python3: tries what must not work and prints what did.

The one argument is JSON: what the host has that might be reached.
"""

import ctypes
import errno
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable

HOST = json.loads(sys.argv[1])
X86 = os.uname().machine == "x86_64"
NEWUSER, NEWNS, NEWNET = 0x10000000, 0x20000, 0x40000000
MAX_FILES = 30_000
libc = ctypes.CDLL(None, use_errno=True)
found: dict[str, object] = {}


def probe(name: str, action: Callable[[], object]) -> None:
    """Records True when `action` works, else the error."""
    try:
        value = action()
        found[name] = True if value is None else value
    except OSError as error:
        found[name] = errno.errorcode.get(error.errno or 0, "timeout")


def text(path: str) -> str:
    with open(path) as file:
        return file.read()


def call(x86: int, arm: int, *arguments: object) -> None:
    ctypes.set_errno(0)
    if libc.syscall(x86 if X86 else arm, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def opened(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY))


def in_child(action: Callable[[], object]) -> None:
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            action()
            os.write(writer, b"-")
        except OSError as error:
            os.write(writer, errno.errorcode[error.errno].encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 99).decode()
    os.close(reader)
    os.wait()
    if said != "-":
        raise OSError(getattr(errno, said), "")


def connected(family: int, address: object, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> None:
    with socket.socket(family, kind, protocol) as end:
        end.settimeout(1)
        if kind == socket.SOCK_DGRAM:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        end.connect(address)
        if kind == socket.SOCK_DGRAM:
            end.send(b"x")


def resolved(name: str) -> None:
    try:
        socket.getaddrinfo(name, 80)
    except socket.gaierror as error:
        raise OSError(errno.ENETUNREACH, "") from error


def agent() -> None:
    """Pid 1 and what belongs to it."""
    probe("environ of 1", lambda: opened("/proc/1/environ", os.O_RDONLY))
    probe("memory of 1", lambda: opened("/proc/1/mem", os.O_RDWR))
    probe("descriptors of 1", lambda: os.listdir("/proc/1/fd") and None)
    probe("root of 1", lambda: os.listdir("/proc/1/root") and None)
    probe("program of 1", lambda: os.readlink("/proc/1/exe") and None)
    probe("trace 1", lambda: call(101, 117, 16, 1, 0, 0))
    probe("seize 1", lambda: call(101, 117, 0x4206, 1, 0, 0))
    probe("read memory of 1", lambda: call(310, 270, 1, ctypes.create_string_buffer(16), 1, None, 0, 1))
    probe("descriptor of 1", lambda: call(438, 438, os.pidfd_open(1), 0, 0))
    probe("limits of 1", lambda: call(302, 261, 1, 7, ctypes.create_string_buffer(16), 0))


def host() -> None:
    """Files, processes and sockets of the host."""
    for path in ("/etc/shadow", "/root/.bashrc", "/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/dev/mem", "/dev/vda"):
        probe(f"read {path}", lambda path=path: opened(path, os.O_RDONLY))
    for path in ("/var/lib/dpkg/status", "/var/run/docker.sock", "/run/containerd/containerd.sock", HOST["file"]):
        probe(f"read {path}", lambda path=path: opened(path, os.O_RDONLY))
    for number in HOST["pids"]:
        probe(f"signal {number}", lambda number=number: os.kill(number, 19))
        probe(f"renice {number}", lambda number=number: os.setpriority(os.PRIO_PROCESS, number, 19))
    probe("signal a group", lambda: os.killpg(HOST["pids"][0], 19))
    probe("path socket", lambda: connected(socket.AF_UNIX, HOST["path"]))
    probe("abstract socket", lambda: connected(socket.AF_UNIX, "\0" + HOST["name"]))


def network() -> None:
    loopback, outside = "127.0.0.1", ("192.0.2.1", "169.254.169.254", "169.254.1.1", "10.0.0.1", "8.8.8.8")
    probe("tcp to the host", lambda: connected(socket.AF_INET, (loopback, HOST["tcp"])))
    for address in outside:
        probe(f"tcp to {address}", lambda address=address: connected(socket.AF_INET, (address, 80)))
    for address in (*outside, "224.0.0.251", "255.255.255.255"):
        where = (address, 53)
        probe(f"udp to {address}", lambda where=where: connected(socket.AF_INET, where, socket.SOCK_DGRAM))
    for address in (("2001:db8::1", 9), ("fe80::1", 9, 0, 1), ("ff02::fb", 5353, 0, 1)):
        probe(f"udp to {address[0]}", lambda to=address: connected(socket.AF_INET6, to, socket.SOCK_DGRAM))
        probe(f"tcp to {address[0]}", lambda to=address: connected(socket.AF_INET6, to))
    probe("multipath tcp", lambda: connected(socket.AF_INET, ("192.0.2.1", 9), socket.SOCK_STREAM, 262))
    probe("name lookup", lambda: resolved("example.com"))
    probe("local name lookup", lambda: resolved("example.local"))
    probe("ping", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1).close())
    probe("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close())
    families = {
        "vsock": (40, 1),
        "packet": (17, 3),
        "alg": (38, 5),
        "bluetooth": (31, 3),
        "xdp": (44, 3),
        "can": (29, 3),
    }
    for name, (family, kind) in families.items():
        probe(f"socket {name}", lambda family=family, kind=kind: socket.socket(family, kind).close())
    found["interfaces"] = sorted(line.split(":")[0].strip() for line in text("/proc/net/dev").splitlines()[2:])
    found["routes"] = len(text("/proc/net/route").splitlines()) - 1


def kernel() -> None:
    """Calls that no ordinary program makes."""
    probe("new user namespace", lambda: in_child(lambda: call(272, 97, NEWUSER)))
    probe("new mount namespace", lambda: in_child(lambda: call(272, 97, NEWNS)))
    probe("new network namespace", lambda: in_child(lambda: call(272, 97, NEWNET)))
    probe("clone user namespace", lambda: in_child(lambda: call(56, 220, NEWUSER | 17, 0, 0, 0, 0)))
    probe("clone3", lambda: call(435, 435, ctypes.create_string_buffer(88), 88))
    probe("mount", lambda: in_child(lambda: call(165, 40, b"x", b"/tmp", b"tmpfs", 0, None)))
    probe("new mount interface", lambda: call(430, 430, b"tmpfs", 0))
    probe("unmount", lambda: in_child(lambda: call(166, 39, b"/tmp", 2)))
    probe("chroot", lambda: in_child(lambda: call(161, 51, b"/")))
    probe("keyctl", lambda: call(250, 219, 0, -3, 0, 0, 0))
    probe("bpf", lambda: call(321, 280, 0, 0, 0))
    probe("io_uring", lambda: call(425, 425, 1, ctypes.create_string_buffer(120)))
    probe("userfaultfd", lambda: call(323, 282, 1))
    probe("perf", lambda: call(298, 241, ctypes.create_string_buffer(120), 0, -1, -1, 0))
    probe("kernel log", lambda: call(103, 116, 10, 0, 0))
    probe("handles", lambda: call(304, 265, 0, ctypes.create_string_buffer(64), 0))
    probe("join a namespace", lambda: call(308, 268, 0, 0))
    probe("hostname", lambda: socket.sethostname("x"))
    probe("clock", lambda: call(227, 112, 0, ctypes.create_string_buffer(16)))
    probe("reboot", lambda: call(169, 142, 0xFEE1DEAD, 672274793, 0, 0))
    probe("become root", lambda: os.setuid(0))
    probe("join a group", lambda: os.setgid(0))
    probe("set groups", lambda: os.setgroups([0]))
    for name, kind, number in (("block", 0o60600, os.makedev(254, 0)), ("memory", 0o20600, os.makedev(1, 1))):
        probe(f"{name} device", lambda kind=kind, number=number: os.mknod("/tmp/device", kind, number))


def setuid() -> None:
    """A program that belongs to root and says so still runs as us."""
    found["setuid programs"] = []
    for folder in ("/usr/bin", "/usr/sbin", "/bin"):
        for entry in os.scandir(folder):
            if entry.is_file() and entry.stat().st_mode & 0o6000:
                child = subprocess.Popen([entry.path], stdin=subprocess.PIPE, stdout=-3, stderr=-3)
                try:
                    status = dict(line.split(":", 1) for line in text(f"/proc/{child.pid}/status").splitlines())
                    if status["Uid"].split()[1] == "0" or int(status["CapEff"], 16):
                        found["setuid programs"].append(entry.path)
                except (OSError, KeyError):
                    pass
                child.kill()
                child.wait()


def is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False


def knobs() -> None:
    """Files of the kernel that take a write."""
    writable, seen = [], 0
    for root in ("/proc", "/sys"):
        for folder, folders, files in os.walk(root):
            if folder == "/proc":
                folders[:] = [name for name in folders if not name.isdigit() and name not in ("self", "thread-self")]
            for name in files:
                seen += 1
                path = f"{folder}/{name}"
                if seen > MAX_FILES or os.path.islink(path) or is_device(path):  # engines hide some behind /dev/null
                    continue
                try:
                    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
                except OSError:
                    continue
                try:
                    os.write(fd, b"")  # some let anybody open them, and ask then
                    writable.append(path)
                except OSError:
                    pass
                os.close(fd)
    found["knobs"] = [path for path in writable if not path.startswith("/proc/pressure/")]  # anybody may wait on those
    for path in ("/usr/bin/env", "/etc/passwd", "/usr/local/bin/python3", "/bin/sh"):
        probe(f"write {path}", lambda path=path: opened(path, os.O_WRONLY))


def standing() -> None:
    """Who we are."""
    status = dict(line.split(":", 1) for line in text("/proc/self/status").splitlines())
    found["capabilities"] = [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
    found["no_new_privs"], found["seccomp"] = int(status["NoNewPrivs"]), int(status["Seccomp"])
    found["descriptors"] = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
    found["environment"] = sorted(os.environ)
    found["processes"] = len([name for name in os.listdir("/proc") if name.isdigit()])
    found["mapped"] = text("/proc/self/uid_map").split()
    found["mounts"] = text("/proc/self/mounts")
    found["cgroups"] = text("/proc/self/cgroup")


for part in (standing, agent, host, network, kernel, setuid, knobs):
    part()
print(json.dumps(found))
