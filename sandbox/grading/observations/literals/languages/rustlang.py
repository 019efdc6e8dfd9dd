"""What the names of Rust say of values."""

from __future__ import annotations

import re

from sandbox.grading.observations.literals.nodes import File, Node, names
from sandbox.grading.observations.literals.program import call_name

PRELUDE = names("rust_prelude")
CONSTRUCTORS = re.compile(
    r"new|new_\w+|default|with_\w+|open|create|builder|build|connect|from_(?:str|slice|iter|path)|from"
)


class Rust:
    plain = names("rust_methods")
    grows = frozenset(
        {"push", "push_str", "insert", "extend", "append", "push_back", "push_front", "add", "write_all", "write",
         "set", "arg", "args", "env", "write_str"}
    )  # fmt: skip
    keeps = frozenset(
        {"map", "filter", "iter", "into_iter", "iter_mut", "cloned", "copied", "clone", "collect", "to_vec", "rev",
         "chain", "take", "skip", "as_slice", "as_ref", "as_str", "as_bytes", "into_bytes", "to_owned", "into",
         "unwrap", "expect", "values", "into_values", "as_deref", "from", "from_iter", "flat_map", "flatten",
         "sorted", "borrow", "deref", "by_ref", "peekable", "concat", "unwrap_or_default"}
    )  # fmt: skip
    steps = frozenset(
        {"for_each", "map", "filter", "flat_map", "filter_map", "any", "all", "find", "position", "inspect"}
    )  # fmt: skip
    writes = frozenset({"write", "create_dir_all", "create_dir", "copy", "symlink", "rename", "writeln"})
    settings = frozenset(
        {"sleep", "from_millis", "from_secs", "set_current_dir", "with_capacity", "reserve", "catch_unwind"}
    )  # fmt: skip
    complains = frozenset({"expect", "expect_err"})
    sets_environment, reads_environment = frozenset({"set_var", "remove_var"}), frozenset({"var", "var_os", "vars"})
    keys_tell = False
    holes = re.compile(r"\{[\w:<>^+#?.$*\- ]*\}")
    words = frozenset({"linux", "windows", "macos"})

    def package(self, path: str) -> str | None:
        return None

    def is_product(self, name: str, file: File) -> bool:
        return file.open and name not in PRELUDE and not name.startswith("oc_observe")

    def is_library(self, name: str, file: File) -> bool:
        return not self.is_product(name, file)

    def is_constructor(self, call: Node) -> bool:
        name = call_name(call)
        return CONSTRUCTORS.fullmatch(name) is not None or name[:1].isupper()

    def report(self, call: Node) -> int | None:
        return 2 if call_name(call) == "oc_observe" else None

    def is_table(self, call: Node) -> bool:
        return False

    def is_title(self, call: Node) -> bool:
        return False

    def runs_product(self, call: Node) -> bool:
        return call_name(call) in ("cargo_bin", "CARGO_BIN")
