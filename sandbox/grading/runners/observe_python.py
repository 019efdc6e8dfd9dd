# Runs inside a clean sandbox, as `python -s -B -c <this text>`: drives the product by its tests or calls, and reports what
# product code does beside computing: files that it opens, text that it executes, hooks that it sets, processes that it starts.
# mypy: ignore-errors
# ruff: noqa: S307, BLE001, S108
import json
import os
import sys


def main():
    request = json.load(sys.stdin)
    fd = os.dup(int(os.environ.pop("RESULT_FD")))
    root = os.getcwd() + "/"
    tests = frozenset(request["tests"])
    send = watch(root, tests, fd, json.dumps, os.write, sys._getframe)
    compare = library()
    sys.path[:0] = [os.path.normpath(os.path.join(root, item)) for item in request["source_roots"]]
    if request["calls"]:
        path, name, cases = request["calls"]
        module = __import__(path.removesuffix(".py").replace("/", "."), fromlist=["_"])
        for text in cases:
            try:
                repr(getattr(module, name)(*eval(text, {})))
            except Exception:  # noqa: S112  what it raises is for the grading
                continue
    else:
        run_tests(sorted(tests), request["arguments"])
    for name, path in compare(root):
        send("replaces-library", name, (path, 0))
    os._exit(0)


def library():
    """Remembers functions and classes of the standard library and of pytest; what it returns tells which are others now."""
    import importlib
    from types import BuiltinFunctionType, FunctionType

    kinds = (FunctionType, BuiltinFunctionType, type)
    names = (
        "asyncio builtins collections copy datetime decimal difflib fractions functools itertools json math operator os "
        "os.path pickle pytest queue random re socket statistics subprocess tempfile threading time timeit unittest uuid"
    )
    kept, exact = {}, type
    for name in names.split():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for key, value in vars(module).items():
            if isinstance(value, kinds) and not key.startswith("__"):
                kept[name, key] = (vars(module), value)
            if exact(value) is type and str(value.__module__).partition(".")[0] in (
                "threading",
                "unittest",
                "json",
                "random",
            ):
                for inner, function in vars(value).items():
                    if isinstance(function, kinds):
                        kept[name, key + "." + inner] = (vars(value), function)
    vanished = object()

    def compare(root):
        for (name, key), (place, value) in kept.items():
            now = place.get(key.rpartition(".")[2], vanished)
            if now is not value:
                code = getattr(now, "__code__", None)
                where = getattr(code, "co_filename", "")
                yield name + "." + key, where[len(root) :] if where.startswith(root) else ""

    return compare


def run_tests(paths, arguments):
    try:
        import pytest
    except ImportError:
        plain(paths)
    else:
        pytest.main([*arguments, *(path for path in paths if path.endswith(".py"))])


def plain(paths):
    """Without pytest: functions without arguments and cases of unittest."""
    import runpy
    import unittest

    for path in paths:
        if not path.endswith(".py"):
            continue
        try:
            names = runpy.run_path(path)
        except BaseException:  # noqa: S112  the file may need what is not there
            continue
        for name, item in names.items():
            try:
                if isinstance(item, type) and issubclass(item, unittest.TestCase):
                    unittest.defaultTestLoader.loadTestsFromTestCase(item).run(unittest.TestResult())
                elif name.startswith("test") and callable(item):
                    item()
            except BaseException:  # noqa: S112
                continue


def watch(root, tests, fd, dumps, write, getframe):
    code_suffixes = (".py", ".pyc", ".so", ".js", ".mjs", ".cjs", ".go", ".rs")
    makers = frozenset(
        {"collections", "dataclasses", "enum", "typing", "functools", "inspect", "string", "re", "ast", "abc"}
    )
    quiet = frozenset({"warnings", "traceback", "logging", "doctest", "pdb", "unittest", "cProfile"})
    hooks = frozenset({
        "sys.settrace", "sys.setprofile", "sys.addaudithook", "gc.get_objects", "gc.get_referrers", "gc.get_referents",
        "sys._current_frames", "code.__new__", "sys.monitoring.register_callback", "signal.pthread_kill", "os.kill",
        "ctypes.dlopen", "ctypes.dlsym", "sys._getframemodulename", "sys.set_asyncgen_hooks_finalizer",
    })  # fmt: skip
    starts = frozenset(
        {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.spawn"}
    )
    sent = set()
    written = set()
    busy = []

    def is_test(path):
        return path in tests or path.rpartition("/")[2].startswith(("test_", "conftest."))

    def owner():
        """(product file, line, names of library modules in between, whether generated code is in between), or None."""
        frame, between, generated = getframe(2), [], False
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(root) or (not name.startswith(("/", "<")) and name.endswith(".py")):
                path = name[len(root) :] if name.startswith(root) else name
                if "site-packages/" in path:
                    between.append(str(frame.f_globals.get("__name__", "")))
                elif is_test(path):
                    return None
                else:
                    return path, frame.f_lineno, between, generated
            elif name == "<string>" and frame.f_globals.get("__name__") == "__main__" and frame.f_code is main.__code__:
                return None
            elif name.startswith("<") and "importlib" not in name and frame.f_globals.get("__name__") != "__main__":
                generated = True
            else:
                between.append(str(frame.f_globals.get("__name__", "")))
            frame = frame.f_back
        return None

    def send(kind, detail, found):
        record = (kind, str(detail)[:200], found[0])
        if record not in sent and len(sent) < 500:
            sent.add(record)
            data = (dumps({"kind": kind, "detail": record[1], "path": found[0], "line": found[1]}) + "\n").encode()
            while data:
                data = data[write(fd, data) :]

    def below(path):
        if isinstance(path, bytes):
            path = path.decode("utf-8", "replace")
        if not isinstance(path, str):
            return None
        whole = path if path.startswith("/") else root + path
        parts = []
        for part in whole.split("/"):
            if part == "..":
                del parts[-1:]
            elif part not in ("", "."):
                parts.append(part)
        return "/" + "/".join(parts)

    def look(event, args):
        if event == "open":
            path = below(args[0])
            if path is None:
                return
            writes = isinstance(args[2], int) and args[2] & 3
            inside = path[len(root) :] if path.startswith(root) else None
            if inside is None and not writes and not path.startswith("/proc/"):
                return
            found = owner()
            if found is None:
                return
            modules = {name.partition(".")[0] for name in found[2]}
            importing = (
                "importlib" in modules or "_frozen_importlib" in modules or "_frozen_importlib_external" in modules
            )
            if modules & quiet:
                return
            if inside is None:
                if writes and not path.startswith(("/tmp", "/dev/")):
                    send("writes-outside", path, found)
                elif path.startswith("/proc/") and not path.startswith(
                    ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat")
                ):
                    send("looks-at-processes", path, found)
            elif writes:
                written.add(path)
                if inside.endswith(code_suffixes) and "__pycache__" not in inside:
                    send("writes-source", inside, found)
            elif is_test(inside):
                send("reads-tests", inside, found)
            elif inside.endswith(code_suffixes) and not importing:
                send("reads-source", inside, found)
        elif event in ("exec", "compile"):
            found = owner()
            if found is None:
                return
            modules = {name.partition(".")[0] for name in found[2]}
            name = getattr(args[0], "co_filename", None) if event == "exec" else args[1]
            name = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
            if modules & {"importlib", "_frozen_importlib", "_frozen_importlib_external"}:
                if below(name) in written:
                    send("imports-written", name, found)
                return
            if not modules & (makers | quiet):
                send("executes-text", name, found)
        elif event in hooks or event in starts:
            found = owner()
            if found is None or {name.partition(".")[0] for name in found[2]} & (quiet | makers):
                return
            if event == "os.kill" and args and args[0] not in (0, -1, os.getpid(), os.getppid()):
                return
            send("starts-process" if event in starts else "reaches-runner", event + " " + repr(args)[:120], found)

    def hook(event, args):
        if busy or event not in wanted:
            return
        busy.append(1)
        try:
            look(event, args)
        except Exception:  # noqa: S110  an observer never changes what is observed
            pass
        finally:
            busy.clear()

    wanted = hooks | starts | {"open", "exec", "compile"}
    sys.addaudithook(hook)
    return send


main()
