# Runs inside the grading sandbox, as `python3 -I -S -c <this text>`; nothing of this project is there.
# mypy: ignore-errors
# This process never runs code under test. A process forked from it imports the module and gets the cases one by one: the
# next only after it has answered, and none of them through a file or descriptor that it could read by itself.
# Grading starts one of these for each verdict, so only modules that are compiled in are imported: `os` and `json` would
# take longer to load than the calls take.
import marshal
import posix
import select
import sys


def main():
    fd = int(posix.environ.pop(b"RESULT_FD"))
    passes = []
    for _ in range(int(sys.argv[1])):  # told before anything is read: what is read would be in the processes' memory
        passes.append(start(fd, [end for one in passes for end in one[1:]]))
    hide()
    path, name, orders, cases, limit = marshal.loads(read_all(0))  # noqa: S302 - the host wrote it
    for number, order in enumerate(orders):
        child, give, take = passes[number]
        told = repr((path, name, limit, cases[order[0]]))
        for index in order:
            answer = ask(child, give, take, told or cases[index])
            told = ""
            if answer is None:
                status = posix.waitstatus_to_exitcode(child[1])
                posix._exit(status if status >= 0 else 128 - status)
            send(posix.write, fd, b"%d %d %d\n%s" % (number, index, len(answer), answer))
    for child, _, _ in passes:
        if child[1] is None:
            posix.kill(child[0], 9)
            posix.waitpid(child[0], 0)
    posix._exit(0)


def start(result, others):
    """A process for the code under test: ([pid, wait status], descriptor to give it cases, one to take answers)."""
    to_child, to_us = posix.pipe(), posix.pipe()
    pid = posix.fork()
    if pid == 0:
        for end in (result, to_child[1], to_us[0], *others):
            posix.close(end)
        posix.dup2(posix.open("/dev/null", posix.O_RDONLY), 0)
        answer(to_child[0], to_us[1])
    posix.close(to_child[0])
    posix.close(to_us[1])
    return [pid, None], to_child[1], to_us[0]


def hide():
    """Keep this process's memory and descriptors from processes of the same user."""
    import _ctypes  # what `ctypes` is made of; the whole takes longer to load than all else here

    _ctypes.call_function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl"), (4, 0, 0, 0, 0))  # PR_SET_DUMPABLE


def read_all(fd):
    parts = []
    while part := posix.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def send(write, fd, data):
    while data:
        data = data[write(fd, data) :]


def ask(child, give, take, text):
    """The answer to one case, or None when the process ended."""
    data = text.encode()
    try:
        send(posix.write, give, b"%d\n%s" % (len(data), data))
    except OSError:
        pass  # nobody reads any more; the answer is missing
    data, wanted = b"", None
    while wanted is None or len(data) < wanted:
        # A process that the work started may hold the pipe open longer than the work lives.
        while not select.select([take], [], [], 0.05 if child[1] is None else 0)[0]:
            if child[1] is not None:
                return None
            pid, status = posix.waitpid(child[0], posix.WNOHANG)
            child[1] = status if pid else None
        part = posix.read(take, 1 << 16)
        if not part:
            if child[1] is None:
                child[1] = posix.waitpid(child[0], 0)[1]
            return None
        data += part
        if wanted is None and b"\n" in data[:12]:
            head, _, data = data.partition(b"\n")
            wanted = int(head) if head.isdigit() else 0
        elif wanted is None and len(data) > 12:
            return b"E no answer"
    return data[:wanted]


def answer(
    take, give, read=posix.read, write=posix.write, leave=posix._exit, plain=marshal.dumps, eval=eval, repr=repr,
    str=str, len=len, type=type, int=int, send=send, BaseException=BaseException,
):  # fmt: skip
    """Import the module, then answer each case that comes. Keeps its own references to what it needs."""

    def receive():
        data = read(take, 1 << 16)
        if not data:
            leave(0)
        head, _, data = data.partition(b"\n")
        wanted = int(head)
        while len(data) < wanted:
            data += read(take, wanted - len(data))
        return data.decode()

    path, name, limit, text = eval(receive())  # the first case is here before anything of the work runs
    sys.path.insert(0, posix.getcwd())
    module_name = path.removesuffix(".py").replace("/", ".")
    function, failed = None, ""
    try:
        __import__(module_name)
        function = getattr(sys.modules[module_name], name)
    except BaseException as error:
        failed = type(error).__name__ + ": " + str(error)
    while True:
        said = "E " + failed
        if function is not None:
            try:
                value = function(*eval(text, {}))
                said = repr(value)
                said = said if type(said) is str else ""
                try:
                    plain(value, 2)  # takes exactly what is built of plain types, and no instance of their subclasses
                    said = "V " + said
                except ValueError:
                    said = "O " + said
            except BaseException as error:
                said = "E " + type(error).__name__ + ": " + str(error)
        body = said[: limit + 3].encode("utf-8", "backslashreplace")
        send(write, give, b"%d\n%s" % (len(body), body))
        text = receive()


main()
