"""The files of a suite as one program: names with what they are bound to and where they are used."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from sandbox.grading.observations.literals.nodes import File, Import, Node

SCOPES = ("file", "function", "block", "each")


class Grammar(Protocol):
    """What a language says of its names."""

    plain: frozenset[str]
    """Methods of plain values: what they get is no input of an object of the product."""
    grows: frozenset[str]
    """Methods that put what they get into their object."""
    keeps: frozenset[str]
    """Functions and methods whose result has the items of what they get."""
    steps: frozenset[str]
    """Methods that hand each item of their object to a function."""
    writes: frozenset[str]
    """Functions that put what they get into the file or place that their first argument names."""
    settings: frozenset[str]
    """Names of options and of functions that set up the test."""
    complains: frozenset[str]
    """Methods of a test that say why it fails: what they say leaves the delivered tests."""
    sets_environment: frozenset[str]
    """Functions, or an object, that change the environment of the product."""
    reads_environment: frozenset[str]
    """What the tests may look there with."""
    keys_tell: bool
    """Whether the keys of a container are values, and no declared fields."""
    holes: re.Pattern[str]
    """Where a text takes in a value, and how."""
    words: frozenset[str]
    """Literals that mean a mode, an encoding or the like."""

    def package(self, path: str) -> str | None:
        """What files share their names with; None where each has its own."""
        ...

    def is_product(self, name: str, file: File) -> bool:
        """Whether a name that nothing declares is the product's."""
        ...

    def is_library(self, name: str, file: File) -> bool:
        """Whether a name that nothing declares is the language's own or a runner's."""
        ...

    def is_constructor(self, call: Node) -> bool:
        """Whether a call of the product makes an object."""
        ...

    def report(self, call: Node) -> int | None:
        """How many arguments of a call that reports belong to the report; None for any other call."""
        ...

    def is_table(self, call: Node) -> bool:
        """Whether a call gets the rows that a test is run with."""
        ...

    def is_title(self, call: Node) -> bool:
        """Whether the first argument of a call names a test or part of one."""
        ...

    def runs_product(self, call: Node) -> bool:
        """Whether a call starts a program of the product."""
        ...


@dataclass(eq=False, slots=True)
class Name:
    """A name of a scope, or a field of a type (its name begins with a dot)."""

    name: str
    loads: list[Node] = field(default_factory=list)
    sources: list[Node] = field(default_factory=list)
    fills: list[Node] = field(default_factory=list)
    """What is put into the object that it stands for."""
    code: Node | None = None
    """The function or class that it names."""
    types: list[Node] = field(default_factory=list)
    """Classes of this name: in Go and Rust the methods of a type stand apart from each other."""
    owner: Node | None = None
    """The function that it is a parameter of."""
    origin: Import | None = None


class Program:
    """Files of one language. The nodes must not change while it is used."""

    def __init__(self, grammar: Grammar, files: Mapping[str, File]) -> None:
        self.grammar, self.files = grammar, files
        self._scopes: dict[int, dict[str, Name]] = defaultdict(dict)
        shared: dict[str, dict[str, Name]] = defaultdict(dict)
        for path, file in files.items():
            if (package := grammar.package(path)) is not None:
                self._scopes[id(file.tree)] = shared[package]
        self._resolved: dict[int, Name | None] = {}
        self._fields: dict[tuple[int, str], Name] = {}
        self.members: dict[str, list[Node]] = defaultdict(list)
        self.picked: set[str] = set()
        """Keys that patterns take out of an object."""
        self._paths = {id(file.tree): path for path, file in files.items()}
        for file in files.values():
            table = self._scopes[id(file.tree)]
            for one in file.imports:
                table[one.name] = Name(one.name, origin=one)
        for file in files.values():
            for node in file.tree.walk():
                self._declare(node)
        for file in files.values():
            for node in file.tree.walk():
                self._relate(node)

    def _declare(self, node: Node) -> None:
        match node.kind:
            case "bind" if node.name in ("let", "var") and node.parts:
                for one in names_in(node.parts[0]):
                    self._new(self.scope(node, whole=node.name == "var"), one.name)
            case "each":
                for one in names_in(node.parts[0]):
                    self._new(node, one.name)
            case "function":
                for parameter in node.parameters():
                    for one in names_in(parameter):
                        self._new(node, one.name).owner = node
                if node.name and node.above is not None and node.above.kind != "class":
                    self._new(self.scope(node), node.name).code = node
            case "class" if node.name:
                named = self._new(self.scope(node), node.name)
                named.code = named.code or node
                named.types.append(node)

    def _new(self, scope: Node, name: str) -> Name:
        table = self._scopes[id(scope)]
        if name not in table or table[name].origin is not None:
            table[name] = Name(name)
        return table[name]

    def _relate(self, node: Node) -> None:
        match node.kind:
            case "bind" | "default" if len(node.parts) > 1:
                self._bound(node.parts[0], node.parts[1])
            case "each":
                self._bound(node.parts[0], node.parts[1])
            case "call":
                if node.parts[0].kind == "member":
                    self._fill(node.parts[0].parts[0], node.parts[1:])
                for one in node.parts[1:]:
                    if one.kind == "same" and one.name == "&":  # lent, to be filled
                        self._fill(one.parts[0], [other for other in node.parts[1:] if other is not one])
            case "entry" if is_target(node.parts[-1]):
                self.picked.add(node.parts[0].name)
            case "name" if not is_target(node):
                found = self.resolve(node)
                if found is not None:
                    found.loads.append(node)
            case "member" if not is_target(node):
                self.members[node.name].append(node)
                found = self.field(node)
                if found is not None:
                    found.loads.append(node)

    def _bound(self, target: Node, value: Node) -> None:
        for one in names_in(target):
            found = self.resolve(one)
            if found is not None:
                found.sources.append(value)
        if target.kind in ("member", "index"):
            own = self.field(target) if target.kind == "member" else None
            if own is not None:
                own.sources.append(value)
            else:
                self._fill(target.parts[0], [*target.parts[1:], value])

    def _fill(self, holder: Node, values: list[Node]) -> None:
        found = self.resolve(holder)
        if found is not None:
            found.fills += values

    def scope(self, node: Node, *, whole: bool = False) -> Node:
        """The scope that a node stands in; with `whole` the function or file."""
        above = node.above
        while above is not None:
            if above.kind in (("file", "function") if whole else SCOPES):
                return above
            node, above = above, above.above
        return node

    def file(self, node: Node) -> File:
        while node.above is not None:
            node = node.above
        return self.files[self._paths[id(node)]]

    def within(self, node: Node, kind: str) -> Node | None:
        """The nearest node of a kind around another one."""
        above = node.above
        while above is not None and above.kind != kind:
            above = above.above
        return above

    def resolve(self, node: Node) -> Name | None:
        """The name that is meant; None for what no file of the tests has."""
        if node.kind != "name":
            return None
        if id(node) not in self._resolved:
            self._resolved[id(node)] = self._found(node)
        return self._resolved[id(node)]

    def _found(self, node: Node) -> Name | None:
        scope: Node | None = self.scope(node)
        while scope is not None:
            found = self._scopes[id(scope)].get(node.name)
            if found is not None:
                return self._of_helper(found) or found
            scope = self.scope(scope) if scope.above is not None else None
        for path in self.file(node).globs:
            if path in self.files and node.name in (table := self._scopes[id(self.files[path].tree)]):
                return table[node.name]
        return None

    def _of_helper(self, found: Name) -> Name | None:
        origin = found.origin
        if origin is None or not origin.member or origin.helper not in self.files:
            return None
        return self._scopes[id(self.files[origin.helper].tree)].get(origin.member)

    def type_of(self, node: Node) -> Node | None:
        """The class of the tests that `this`, `self` or its own name stands for."""
        if node.kind == "name" and node.name in ("this", "self", "Self"):
            within = self.within(node, "class")
            return self.types(within)[0] if within is not None else None
        found = self.resolve(node)
        code = found.code if found is not None else None
        return code if code is not None and code.kind == "class" else None

    def types(self, owner: Node) -> list[Node]:
        """All that declares the same type."""
        named = self._scopes[id(self.scope(owner))].get(owner.name)
        return named.types if named is not None and owner in named.types else [owner]

    def methods(self, owner: Node) -> Iterator[Node]:
        for one in self.types(owner):
            yield from (part for part in one.parts if part.kind == "function")

    def field(self, node: Node) -> Name | None:
        """`this.name`, `helper.name` and the like as a name."""
        holder = node.parts[0]
        owner = self.type_of(holder)
        if owner is not None:
            key = (id(owner), node.name)
            if key not in self._fields:
                code = next((one for one in self.methods(owner) if one.name == node.name), None)
                self._fields[key] = Name("." + node.name, code=code)
            return self._fields[key]
        found = self.resolve(holder)
        origin = found.origin if found is not None else None
        if origin is not None and origin.helper in self.files and not origin.member:
            return self._scopes[id(self.files[origin.helper].tree)].get(node.name)
        return None

    def called(self, node: Node) -> Name | None:
        """The name of the tests that a call calls."""
        callee = bare(node.parts[0])
        if callee.kind == "member":
            return self.field(callee)
        return self.resolve(callee)

    def callee(self, call: Node) -> Node | None:
        """The function or class of the tests that is called."""
        callee = bare(call.parts[0])
        if callee.kind == "function":
            return callee
        found = self.called(call)
        if found is None:
            return None
        if found.code is None and len(found.sources) == 1 and bare(found.sources[0]).kind == "function":
            return bare(found.sources[0])
        return found.code

    def names_of(self, function: Node) -> list[Name]:
        """Names that a function or type goes by."""
        return self._names.get(id(function), [])

    @cached_property
    def _names(self) -> dict[int, list[Name]]:
        found: dict[int, list[Name]] = defaultdict(list)
        for table in self._scopes.values():
            for one in table.values():
                values = [bare(source) for source in one.sources]
                for code in {id(c): c for c in (one.code, *one.types, *values) if c is not None}:
                    found[code].append(one)
        return found


def names_in(target: Node) -> Iterator[Node]:
    """Names that a pattern binds."""
    match target.kind:
        case "name":
            yield target
        case "default":
            yield from names_in(target.parts[0])
        case "entry":
            yield from names_in(target.parts[-1])
        case "list" | "table" | "spread" | "same":
            for part in target.parts:
                yield from names_in(part)
        case "record":
            for part in target.parts[1:]:
                yield from names_in(part)


def is_target(node: Node) -> bool:
    """Whether a value is put here, and none is read."""
    below, above = node, node.above
    while above is not None:
        match above.kind:
            case "bind":
                return below is above.parts[0]
            case "each":
                return below is above.parts[0]
            case "function":
                return below.place < len(above.parts) - 1
            case "default":
                if below is not above.parts[0]:
                    return False
            case "list" | "table" | "spread" | "same" | "record":
                pass
            case "entry":
                if below is not above.parts[-1]:
                    return False
            case _:
                return False
        below, above = above, above.above
    return False


def bare(node: Node) -> Node:
    """Without what leaves a value as it is."""
    while node.kind == "same" and len(node.parts) == 1:
        node = node.parts[0]
    return node


def call_name(call: Node) -> str:
    """The last name of what is called."""
    callee = bare(call.parts[0])
    return callee.name if callee.kind in ("name", "member") else ""
