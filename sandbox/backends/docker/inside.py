"""What runs in the containers: the agent of a sandbox, the keeper of its writable layer, and copies of layers.

The sources arrive over standard input (`bundle.py`); afterwards that stream and standard output are the channel.
"""

from __future__ import annotations

import os
import signal
import socket
import time

from sandbox.backends.namespaces import layers
from sandbox.backends.namespaces.guard import Guard
from sandbox.backends.namespaces.inside import agent, processes, protocol
from sandbox.backends.namespaces.kernel import identity, mounts, syscalls
from sandbox.backends.namespaces.kernel.base_root import READONLY
from sandbox.backends.namespaces.kernel.confine import confine
from sandbox.backends.namespaces.kernel.users import User
from sandbox.backends.namespaces.storage import Storage, failure

STORE = "/w"
"""Where the keeper sees the volume that holds everything writable."""
LAYERS = "/l"
"""Where the keeper sees the environment's layers, by number, uppermost first."""
SOURCES, TARGET = "/from", "/to"
"""Where a copier sees what it copies, by number, lowest first, and where to."""
KEEPER_GRACE_SECONDS = 120
BACKLOG = 64
READING_CAPABILITIES = 1 << 0 | 1 << 1 | 1 << 3  # chown, dac_override, fowner


class Untranslatable(Exception):
    """The file system of a layer, or the kernel, cannot show its files as another owner's."""

    def __init__(self, number: int, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.number = number


class Pipes:
    """Standard input and output as the agent's stream to the host."""

    def __init__(self) -> None:
        self._reader, self.writer = os.dup(0), os.dup(1)

    def recv(self, size: int) -> bytes:
        return os.read(self._reader, size)

    def send(self, data: bytearray) -> int:
        return os.write(self.writer, data)

    def answer(self, header: dict, blob: bytes = b"") -> None:
        """Send a whole frame, or that it is too large."""
        frame = memoryview(protocol.answer(header, blob))
        while frame:
            frame = frame[os.write(self.writer, frame) :]

    def fileno(self) -> int:
        return self._reader

    def setblocking(self, flag: bool) -> None:
        os.set_blocking(self._reader, flag)
        os.set_blocking(self.writer, flag)


def main(request: dict) -> None:
    """Do what `request["role"]` says; what goes wrong is told as a frame."""
    pipes = Pipes()
    try:
        {"agent": _agent, "keep": _keep, "copy": _copy, "help": _help}[request["role"]](request, pipes)
    except Exception as error:  # noqa: BLE001 - the host is told, whatever it is
        os.set_blocking(pipes.writer, True)
        told: dict = {"op": "fail", "id": 0, "kind": "large" if isinstance(error, layers.TooLarge) else None}
        if isinstance(error, Untranslatable):
            told |= {"kind": "layer", "layer": error.number}
        pipes.answer(told | {"text": str(error) or type(error).__name__})
        os._exit(1)


def _end_after(seconds: float) -> None:
    """This process ends by itself then, also without a host; an alarm from anybody else means nothing."""
    end = time.monotonic() + seconds

    def alarm(*_: object) -> None:
        if time.monotonic() >= end:
            os._exit(0)

    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds + 0.001, 1.0)


def _agent(request: dict, pipes: Pipes) -> None:
    _end_after(request["life"])
    if request["port"]:
        _hand_out_listener(request["port"], request["way"])
    if request["user"] is not None:
        _become(request["user"])
    # neighbours may have our uid on this kernel, so the control group of the container bounds processes
    confine(request["limits"], {pipes.fileno(), pipes.writer}, watchdog=request["watchdog"], count_processes=False)
    agent.main(pipes, request, watchdog=request["watchdog"], writer=pipes.writer)


def _become(user: int) -> None:
    """Enter user and time namespaces of our own, in which `user`, whose process this is, is the user of every sandbox."""
    syscalls.unshare(syscalls.NEWUSER | syscalls.NEWTIME, "namespaces")
    mounts.map_ids(identity.INNER_UID, identity.INNER_GID, user, user)
    time_namespace = os.open("/proc/self/ns/time_for_children", os.O_RDONLY | os.O_CLOEXEC)
    syscalls.check(syscalls.libc.setns(time_namespace, syscalls.NEWTIME), "namespaces", "enter a time namespace")
    os.close(time_namespace)


def _hand_out_listener(port: int, way: str) -> None:
    """Give the host a socket that listens in this container's network: its only way out."""
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as host:
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
        host.connect(way)
        socket.send_fds(host, [b"x"], [listener.fileno()])


def _keep(request: dict, pipes: Pipes) -> None:
    """Prepare the writable layer, then answer `diff` and `stamp` until the host closes the stream."""
    _end_after(request["life"] + KEEPER_GRACE_SECONDS)
    for folder, mode in (
        ("upper", 0o755),
        ("work", 0o755),
        ("tmp", 0o1777),
        ("shm", 0o1777),
        ("bin", 0o755),
        ("empty", 0o755),
    ):
        os.mkdir(f"{STORE}/{folder}")
        os.chmod(f"{STORE}/{folder}", mode)
    for name, text in request["programs"].items():
        with open(f"{STORE}/bin/{name}", "w") as file:
            file.write(text)
        os.chmod(file.name, 0o755)
    upper = f"{STORE}/upper"
    user = request["user"]
    os.chown(upper, *((identity.INNER_UID, identity.INNER_GID) if user is None else (user, user)))
    places = [f"{LAYERS}/{number}" for number in range(request["layers"])]
    translated = [] if user is None else _translated(places, User(user, user))
    syscalls.set_capabilities(READING_CAPABILITIES)
    guard = _guard()
    lower = [_open(place) for place in places]
    storage = Storage(_open(upper), lower, request["snapshots"])
    decoder = protocol.Decoder()
    pipes.answer({"op": "ready", "id": 0, "layers": translated, "guarded": guard is not None})
    while data := pipes.recv(1 << 16):
        for header, _ in decoder.feed(data):
            try:
                if header["op"] == "diff":
                    answer, blob = storage.diff(header["folder"])
                elif header["op"] == "stamp":
                    answer, blob = {"stamp": storage.stamp()}, b""
                else:
                    raise OSError("unknown request")
            except Exception as error:  # noqa: BLE001 - the host is told, and the sandbox lives on
                answer, blob = failure(header.get("op"), error), b""
            pipes.answer(answer | {"id": header.get("id")}, blob)


def _translated(places: list[str], user: User) -> list[int]:
    """Descriptors of mounts of `places` that are nowhere, in which `user` owns every file. Raises Untranslatable."""
    made = []
    for number, place in enumerate(places):
        found = os.stat(place)
        namespace = user.translation((found.st_uid, found.st_gid))
        try:
            made.append(syscalls.detached_tree(place, READONLY, step="layer", user_namespace=namespace))
        except OSError as error:
            raise Untranslatable(number, error) from None
    return made


def _guard() -> Guard | None:
    """What keeps locks on the anonymous inode from telling anything; none while a foreign program has one there."""
    try:
        return Guard()
    except OSError:
        return None


def _copy(request: dict, pipes: Pipes) -> None:
    """Lay the sources over each other into the target, and give everything there one owner."""
    target = _open(TARGET)
    budget = layers.Budget(*request["budget"]) if request["budget"] else None
    try:
        for number in range(request["sources"]):
            layers.apply(_open(f"{SOURCES}/{number}"), target, budget)
        os.fchmod(target, 0o755)
    finally:
        _give(target, *request["owner"])
    pipes.answer({"op": "done", "id": 0})


def _give(folder: int, uid: int, gid: int) -> None:
    for _, folders, files, fd in os.fwalk(".", dir_fd=folder):
        for name in (*folders, *files):
            os.chown(name, uid, gid, dir_fd=fd, follow_symlinks=False)
    os.fchown(folder, uid, gid)


def _help(request: dict, pipes: Pipes) -> None:
    """From among the processes of a box: end what holds its agent up."""
    processes.release(1)
    pipes.answer({"op": "done", "id": 0})


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
