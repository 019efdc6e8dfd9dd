# Runs inside the grading sandbox, as `python -P -s -B -c <this text>`: pytest with one plugin that reports each test.
# Only what was asked for on standard input is run; results go to the private descriptor, each line after a secret
# word. `observing.py` stands before this text. The request has two lines: how to run, and the test modules that are
# handed over as text; the second is read once the modules under test are imported.
# mypy: ignore-errors
import builtins
import importlib.util
import json
import os
import sys
import time
import zlib


def main():
    import pytest

    request = json.loads(sys.stdin.readline())
    fd = os.dup(int(os.environ.pop("RESULT_FD")))
    word, chars = request["word"], request["message_chars"]
    selected = None if request["ids"] is None else set(request["ids"])
    write, dumps = os.write, json.dumps

    def send(kind, record):
        data = (word + dumps(dict(record, kind=kind)) + "\n").encode()
        while data:
            data = data[write(fd, data) :]

    current, names = [""], {}

    def name_of(item):
        """With `indexed`, parameters are named by their numbers: names made of values would tell what is expected."""
        found = item.nodeid
        spec = getattr(item, "callspec", None)
        if request["indexed"] and spec is not None and found.endswith("[" + spec.id + "]"):
            indices = "-".join(str(spec.indices[key]) for key in sorted(spec.indices))
            found = found[: -len(spec.id) - 2] + "[" + indices + "]"
        return found

    def report(site, values, raised):
        send("seen", {"id": current[0], "site": site, "values": values, "raised": raised})

    class Reporter:
        def pytest_collection_modifyitems(self, items):
            for item in items:
                names[item.nodeid] = name_of(item)
            if request["indexed"] == "tell":
                for item in items:
                    send("name", {"id": names[item.nodeid], "given": item.nodeid})
            if selected is not None:
                items[:] = [item for item in items if names[item.nodeid] in selected]

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(self, item, nextitem):
            current[0] = names[item.nodeid]

        def pytest_collectreport(self, report):
            if report.failed:
                send("file", {"id": report.nodeid, "message": str(report.longrepr)[-chars:]})

        def pytest_runtest_logreport(self, report):
            if report.when is None or type(report).__name__ != "TestReport":
                return  # a part of a test (a subtest); the test itself reports as well
            outcome = "xfail" if hasattr(report, "wasxfail") else report.outcome
            message = str(report.longrepr)[-chars:] if report.failed else ""
            test_id = names.get(report.nodeid, report.nodeid)
            record = {"id": test_id, "when": report.when, "outcome": outcome, "message": message}
            send("test", dict(record, seconds=round(report.duration, 4)))

        def pytest_sessionfinish(self, exitstatus):
            send("done", {"status": int(exitstatus)})

    sys.path[:0] = [os.path.normpath(os.path.join(os.getcwd(), root)) for root in request["source_roots"]]
    observer = make_observer(report)  # noqa: F821
    preload(request["preload"])  # noqa: F821
    if request["rewritten"]:  # test files on disk that call the observer
        vars(builtins).update(observer)
    memory = Memory(json.loads(sys.stdin.readline() or "{}"), observer)  # noqa: F821
    plugins = [Reporter()]
    if memory.codes:
        sys.meta_path.insert(0, memory)  # before the empty files on disk
        plugins.append(held(pytest, memory))
    if request["budget"]:
        plugins.append(sample(pytest, send, request["budget"]))
    if request["cover"]:
        plugins.append(coverage(pytest, send, os.getcwd() + "/"))
    os._exit(pytest.main(request["args"], plugins=plugins))


def held(pytest, memory):
    """A plugin that collects modules from memory. Their files lie on disk, empty, because pytest looks for them."""

    class Held(pytest.Module):
        def _getobj(self):
            search(os.path.dirname(str(self.path)), self.config.getoption("importmode"))
            packages(memory.paths[self.nodeid])
            return memory.load(self.nodeid)

    class Collector:
        def pytest_pycollect_makemodule(self, module_path, parent):
            module = Held.from_parent(parent, path=module_path)
            return module if module.nodeid in memory.paths else None

    return Collector()


def search(folder, mode):
    """Where tests find the modules beside them, as pytest arranges it for a file: in the folder above its packages."""
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder = os.path.dirname(folder)
    if mode == "prepend" and folder != sys.path[0]:
        sys.path.insert(0, folder)
    elif mode == "append" and folder not in sys.path:
        sys.path.append(folder)


def packages(name):
    """Import the packages around a test module, as pytest does for a file: its relative imports begin there."""
    folder, parts, own = os.getcwd(), name.split(".")[:-1], ""
    for count, part in enumerate(parts, 1):
        folder = os.path.join(folder, part)
        start = os.path.join(folder, "__init__.py")
        if not os.path.exists(start):
            own = ""  # pytest names a package from the folder above the first one
            continue
        full, own = ".".join(parts[:count]), f"{own}.{part}" if own else part
        if full in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(full, start, submodule_search_locations=[folder])
        module = sys.modules[full] = importlib.util.module_from_spec(spec)
        alias = sys.modules.setdefault(own, module)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[full]
            if alias is module:
                sys.modules.pop(own, None)
            raise


def sample(pytest, send, budget):
    """A plugin that bounds a long suite: most of the budget over, the tests that still fit are drawn from all the rest.

    Which ones is fixed by their names, and they run in the suite's own order. Reports are bounded too: of very many
    tests, so many are drawn at once. A second of the budget is one of processor time, or three of waiting.
    """
    most = 6000

    class Sample:
        left_out = 0
        upcoming = None
        drawn = False

        def spent(self):
            used = os.times()
            return max(sum(used[:4]) - self.used, (time.monotonic() - self.began) / 3)

        def draw(self, items, count):
            kept = set(
                sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode(errors="replace")))[: max(0, count)]
            )
            self.left_out += len(items) - len(kept)
            return [item for item in items if item in kept]

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items):
            items[:] = self.draw(items, most)

        def pytest_runtestloop(self, session):
            self.began, self.used, self.count = time.monotonic(), sum(os.times()[:4]), 0

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(self, item, nextitem):
            self.upcoming, self.session = nextitem, item.session

        def pytest_runtest_logfinish(self):
            self.count += 1
            spent = self.spent()
            if self.upcoming is None or spent < budget / 2 or (self.drawn and spent < budget):
                return
            items = self.session.items
            # The next test is set up for already: it stays, and those after it are drawn from.
            after = items.index(self.upcoming) + 1
            fit = (budget - spent) / (spent / self.count) if spent < budget else 0
            items[after:] = self.draw(items[after:], int(fit) - 1)
            self.drawn = True

        def pytest_sessionfinish(self):
            send("sampled", {"id": "", "left_out": self.left_out})

    return Sample()


def coverage(pytest, send, root):
    """A plugin that reports which functions of the checkout each test enters: [path, first line] pairs."""

    class Coverage:
        @pytest.hookimpl(hookwrapper=True)  # the kind that every pytest knows
        def pytest_runtest_protocol(self, item):
            seen = set()

            def profile(frame, event, argument):
                if event == "call":
                    seen.add(frame.f_code)

            sys.setprofile(profile)
            yield
            sys.setprofile(None)
            files = ((code.co_filename, code.co_firstlineno) for code in seen)
            calls = sorted([name[len(root) :], line] for name, line in files if name.startswith(root))
            send("calls", {"id": item.nodeid, "calls": calls})

    return Coverage()


main()
