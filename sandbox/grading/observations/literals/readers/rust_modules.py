"""Which modules and crates the names of a Rust test file come from."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from tree_sitter import Node as Read

from sandbox.grading.observations.literals.nodes import Import, Node, Reader, names, text_of

LIBRARIES = names("rust_libraries")
"""Crates of the compiler, and those that suites use beside their product."""


class RustModules(Reader):
    def __init__(self, path: str, paths: Collection[str]) -> None:
        super().__init__()
        self._path, self._paths = path, paths
        self._in_tests = "tests" in PurePosixPath(path).parts
        self._modules: dict[str, str] = {}
        self.imports: list[Import] = []
        self.globs: list[str] = []
        self.open = not self._in_tests
        """Unit tests stand beside the product's code."""

    # --- modules --------------------------------------------------------------------------------------------------------

    def _mod_item(self, read: Read) -> Node:
        name, body = text_of(read.child_by_field_name("name")), read.child_by_field_name("body")
        if body is not None:
            return self.node("block", read, self.below(body))
        folder, stem = posixpath.split(self._path)
        own = folder if stem in ("mod.rs", "lib.rs", "main.rs") or self._in_tests else posixpath.join(folder, stem[:-3])
        for file in (f"{own}/{name}.rs", f"{own}/{name}/mod.rs", f"{folder}/{stem[:-3]}/{name}.rs"):
            if file in self._paths:
                self._modules[name] = file
                self.imports.append(Import(name, "", False, file))
        return self.node("other", read)

    def _use_declaration(self, read: Read) -> Node:
        for path, alias in _used(read.child_by_field_name("argument"), []):
            self._import(path, alias)
        return self.node("other", read)

    def _import(self, path: list[str], alias: str) -> None:
        root = path[0] if path else ""
        inner = [part for part in path if part not in ("crate", "self", "super")]
        if root in LIBRARIES:
            self.imports.append(Import(alias or path[-1], path[-1], False))
        elif inner and inner[0] in self._modules:
            helper = self._modules[inner[0]]
            if path[-1] == "*":
                self.globs.append(helper)
            elif len(inner) > 1:
                self.imports.append(Import(alias or path[-1], path[-1], False, helper))
        elif path[-1] == "*":
            self.open = self.open or (root not in ("self", "super", "crate") or not self._in_tests)
        elif not (self._in_tests and root in ("crate", "self", "super")):
            self.imports.append(Import(alias or path[-1], path[-1], True))

    def _extern_crate_declaration(self, read: Read) -> Node:
        return self.node("other", read)

    def _is_crate(self, name: str) -> bool:
        """Whether a path begins with the name of a crate that no `use` has."""
        known = {one.name for one in self.imports} | set(self._modules)
        return self._in_tests and name not in known | LIBRARIES and name.islower()


def _used(read: Read | None, before: list[str]) -> Iterator[tuple[list[str], str]]:
    """Paths of a `use`, each with its alias."""
    if read is None:
        return
    match read.type:
        case "use_as_clause":
            alias = text_of(read.child_by_field_name("alias"))
            yield from ((path, alias) for path, _ in _used(read.child_by_field_name("path"), before))
        case "scoped_use_list":
            path = read.child_by_field_name("path")
            inner = [*before, *(text_of(path).split("::") if path is not None else [])]
            yield from _used(read.child_by_field_name("list"), inner)
        case "use_list":
            for one in read.named_children:
                yield from _used(one, before)
        case "use_wildcard":
            path = read.named_children[0] if read.named_children else None
            yield [*before, *(text_of(path).split("::") if path is not None else []), "*"], ""
        case "self" if before:
            yield before, ""
        case "line_comment" | "block_comment":
            return
        case _:
            yield [*before, *text_of(read).split("::")], ""
