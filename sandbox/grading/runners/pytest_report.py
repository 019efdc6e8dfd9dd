# Runs inside the grading sandbox, as `python -I -B -c <this text>`: pytest with one plugin that reports each test.
# Only what was asked for on standard input is run; results go to the private descriptor, each line after a secret
# word that the code under test is not given.
import json
import os
import sys


def main():
    request = json.load(sys.stdin)
    fd = os.dup(int(os.environ.pop("RESULT_FD")))
    word = request["word"]
    selected = set(request["ids"]) if request["ids"] is not None else None
    write, dumps, chars = os.write, json.dumps, request["message_chars"]

    def send(kind, record):
        data = (word + kind + dumps(record) + "\n").encode("utf-8", "backslashreplace")
        while data:
            data = data[write(fd, data) :]

    class Reporter:
        def pytest_collection_modifyitems(self, items):
            if selected is not None:
                items[:] = [item for item in items if item.nodeid in selected]

        def pytest_collectreport(self, report):
            if report.failed:
                send("C", {"id": report.nodeid, "message": str(report.longrepr)[-chars:]})

        def pytest_runtest_logreport(self, report):
            outcome = "xfail" if hasattr(report, "wasxfail") else report.outcome
            message = str(report.longrepr)[-chars:] if report.failed else ""
            send("T", {"id": report.nodeid, "when": report.when, "outcome": outcome, "message": message,
                       "seconds": round(report.duration, 4)})  # fmt: skip

        def pytest_sessionfinish(self, exitstatus):
            send("D", {"status": int(exitstatus)})

    for root in reversed(request["source_roots"]):
        sys.path.insert(0, os.path.normpath(os.path.join(os.getcwd(), root)))
    import pytest

    os._exit(pytest.main(request["args"], plugins=[Reporter()]))


main()
