"""What the names of Go say of values."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from sandbox.grading.observations.literals.nodes import File, Node, names
from sandbox.grading.observations.literals.program import bare, call_name

PREDECLARED = names("go_predeclared")
SUPPORT = re.compile(r"ocDiffers\d+")


class Go:
    plain = names("go_methods")
    grows = frozenset(
        {"Write", "WriteString", "WriteByte", "WriteRune", "Add", "Set", "Append", "Push", "PushBack", "Store",
         "WriteField"}
    )  # fmt: skip
    keeps = frozenset({"append", "Clone", "Join", "Concat", "Sort", "Reverse", "string", "byte", "rune", "Repeat"})
    steps = frozenset[str]()
    writes = frozenset(
        {"WriteFile", "Mkdir", "MkdirAll", "Create", "Symlink", "Rename", "Fprintf", "Fprint", "Fprintln",
         "WriteString", "copy", "Copy"}
    )  # fmt: skip
    complains = frozenset({"Fatal", "Fatalf", "Error", "Errorf", "Log", "Logf", "Skip", "Skipf"})
    settings = frozenset(
        {"Sleep", "After", "Tick", "WithTimeout", "MkdirTemp", "CreateTemp", "Seed", "AllocsPerRun", "NewSource",
         "LookPath", "make", "WithDeadline", "Chmod"}
    )  # fmt: skip
    sets_environment, reads_environment = (
        frozenset({"Setenv", "Unsetenv"}),
        frozenset({"Getenv", "LookupEnv", "Environ"}),
    )
    keys_tell = False
    holes = re.compile(r"%[-+# 0-9.*\[\]]*[a-zA-Z]")
    words = frozenset({"linux", "windows", "darwin", "amd64", "arm64"})

    def package(self, path: str) -> str | None:
        return str(PurePosixPath(path).parent)

    def is_product(self, name: str, file: File) -> bool:
        return name not in PREDECLARED and not name.startswith("oc")

    def is_library(self, name: str, file: File) -> bool:
        return not self.is_product(name, file)

    def is_constructor(self, call: Node) -> bool:
        return call_name(call).startswith(("New", "new", "Must", "Open"))

    def report(self, call: Node) -> int | None:
        return 2 if SUPPORT.fullmatch(call_name(call)) else None

    def is_table(self, call: Node) -> bool:
        return False

    def is_title(self, call: Node) -> bool:
        return call_name(call) == "Run" and bare(call.parts[0]).kind == "member" and len(call.parts) == 3

    def runs_product(self, call: Node) -> bool:
        return False
