# Runs inside the grading sandbox, as `python -P -s -B -c <this text>`: pytest with one plugin that reports each test.
# Only what was asked for on standard input is run; results go to the private descriptor, each line after a secret
# word that the code under test is not given.
# mypy: ignore-errors
import json
import os
import sys


def main():
    request = json.load(sys.stdin)
    fd = os.dup(int(os.environ.pop("RESULT_FD")))
    word, chars = request["word"], request["message_chars"]
    selected = None if request["ids"] is None else set(request["ids"])
    write, dumps = os.write, json.dumps

    def send(kind, record):
        data = (word + dumps(dict(record, kind=kind)) + "\n").encode()
        while data:
            data = data[write(fd, data) :]

    class Reporter:
        def pytest_collection_modifyitems(self, items):
            if selected is not None:
                items[:] = [item for item in items if item.nodeid in selected]

        def pytest_collectreport(self, report):
            if report.failed:
                send("file", {"id": report.nodeid, "message": str(report.longrepr)[-chars:]})

        def pytest_runtest_logreport(self, report):
            if report.when is None or type(report).__name__ != "TestReport":
                return  # a part of a test (a subtest); the test itself reports as well
            outcome = "xfail" if hasattr(report, "wasxfail") else report.outcome
            message = str(report.longrepr)[-chars:] if report.failed else ""
            record = {"id": report.nodeid, "when": report.when, "outcome": outcome, "message": message}
            send("test", dict(record, seconds=round(report.duration, 4)))

        def pytest_sessionfinish(self, exitstatus):
            send("done", {"status": int(exitstatus)})

    plugins = [Reporter()]
    sys.path[:0] = [os.path.normpath(os.path.join(os.getcwd(), root)) for root in request["source_roots"]]
    import pytest

    if request["cover"]:
        plugins.append(coverage(pytest, send, os.getcwd() + "/"))
    os._exit(pytest.main(request["args"], plugins=plugins))


def coverage(pytest, send, root):
    """A plugin that reports which functions of the checkout each test enters: [path, first line] pairs."""

    class Coverage:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(self, item):
            seen = set()

            def profile(frame, event, argument):
                if event == "call":
                    seen.add(frame.f_code)

            sys.setprofile(profile)
            try:
                return (yield)
            finally:
                sys.setprofile(None)
                files = ((code.co_filename, code.co_firstlineno) for code in seen)
                calls = sorted([name[len(root) :], line] for name, line in files if name.startswith(root))
                send("calls", {"id": item.nodeid, "calls": calls})

    return Coverage()


main()
