"""What the names of JavaScript say of values."""

from __future__ import annotations

import re

from sandbox.grading.observations.literals.nodes import File, Node, names
from sandbox.grading.observations.literals.program import bare, call_name

GLOBALS = names("javascript_globals")
RUNNERS = frozenset(
        {"test", "it", "describe", "suite", "context", "specify", "xtest", "xit", "fit", "fdescribe", "xdescribe"}
)  # fmt: skip
HOOKS = frozenset({"before", "after", "beforeEach", "afterEach", "beforeAll", "afterAll"})


class JavaScript:
    plain = names("javascript_methods")
    grows = frozenset({"push", "unshift", "add", "set", "append", "write", "end", "fill", "splice", "assign"})
    keeps = frozenset(
        {"map", "filter", "flatMap", "slice", "concat", "sort", "reverse", "toSorted", "toReversed", "values",
         "entries", "flat", "from", "Set", "Map", "Array", "of", "all", "resolve", "freeze", "structuredClone",
         "assign", "fromEntries", "iterator", "each"}
    )  # fmt: skip
    steps = frozenset(
        {
            "forEach",
            "map",
            "flatMap",
            "filter",
            "some",
            "every",
            "find",
            "findIndex",
            "each",
            "sort",
            "toSorted",
            "reduce",
        }
    )
    writes = frozenset(
        {"writeFileSync", "writeFile", "appendFileSync", "appendFile", "mkdirSync", "mkdir", "outputFileSync",
         "symlinkSync", "cpSync", "copyFileSync"}
    )  # fmt: skip
    settings = frozenset(
        {"timeout", "concurrency", "skip", "todo", "only", "recursive", "force", "encoding", "flag", "mode",
         "signal", "retry", "repeats", "configurable", "enumerable", "writable", "stdio", "shell", "require",
         "import", "mkdtempSync", "mkdtemp", "setTimeout", "setEncoding", "useFakeTimers", "enable", "apis", "now",
         "toFixed", "jest"}
    )  # fmt: skip
    complains = frozenset[str]()
    sets_environment, reads_environment = frozenset({"env"}), frozenset({"env"})
    keys_tell = True
    holes = re.compile(r"%[sdifjoO]")
    words = frozenset(
        {"utf8", "utf-8", "hex", "base64", "ascii", "latin1", "buffer", "string", "pipe", "ignore", "inherit",
         "use strict", "function", "object", "number", "data", "end", "close", "error", "finish", "win32", "linux",
         "darwin"}
    )  # fmt: skip

    def package(self, path: str) -> str | None:
        return None

    def is_product(self, name: str, file: File) -> bool:
        return False

    def is_library(self, name: str, file: File) -> bool:
        return name in GLOBALS

    def is_constructor(self, call: Node) -> bool:
        return call.name == "new"

    def report(self, call: Node) -> int | None:
        return {"$observe": 2, "$raises": 1, "$rejects": 1}.get(call_name(call))

    def is_table(self, call: Node) -> bool:
        """Whether it is `test.each(rows)`, whose result gets a title and a function."""
        callee = bare(call.parts[0])
        return callee.kind == "member" and callee.name == "each" and self._is_runner(callee)

    def is_title(self, call: Node) -> bool:
        return not self.is_table(call) and self._is_runner(bare(call.parts[0]))

    def _is_runner(self, callee: Node) -> bool:
        while callee.kind in ("member", "call"):
            if callee.kind == "member" and callee.name == "test":  # `t.test('…')`
                return True
            callee = bare(callee.parts[0])
        return callee.kind == "name" and callee.name in RUNNERS | HOOKS

    def runs_product(self, call: Node) -> bool:
        if call_name(call) == "fetch":
            return True
        return any(part.kind == "member" and part.name == "execPath" for one in call.parts[1:] for part in one.walk())
