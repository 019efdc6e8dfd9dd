"""JavaScript and TypeScript tests read by their grammar."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection

from tree_sitter import Node as Read_

from sandbox.grading.observations.literals.nodes import File, Import, Node, Reader, parsed, text_of

SUFFIXES = ("", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx", "/index.js", "/index.ts")
TEST_LIBRARIES = re.compile(
    r"(?:node:.*|assert|async_hooks|buffer|child_process|cluster|console|constants|crypto|dgram|dns|domain|events|fs|http|http2|https"
    r"|inspector|module|net|os|path|perf_hooks|process|punycode|querystring|readline|repl|stream|string_decoder|sys|timers|tls|tty"
    r"|url|util|v8|vm|wasi|worker_threads|zlib|test|vitest|@?jest.*|@jest/.*|mocha|bun:.*|chai.*|sinon.*|should.*|expect.*|uvu.*"
    r"|@japa/.*|ava|tape|tap|power-assert|unexpected|supertest|nock|msw|lodash.*|ramda|fast-check|@testing-library/.*|jsdom"
    r"|fast-deep-equal|deep-equal|proxyquire|mock-fs|memfs|tmp|execa|typescript|react.*|vue|rxjs|immer)(?:/.*)?"
)
"""Modules that come with node, and those that suites use beside their product."""
EXPORTED = re.compile(r"(?:module\.)?exports\.([A-Za-z_$][\w$]*)")
SUPPORT = "{ $observe,"
"""What the head of a rewritten file declares (`runners/observe.js`)."""
COMPARES = frozenset({"==", "!=", "===", "!==", "<", ">", "<=", ">=", "instanceof", "in"})


def read(path: str, source: bytes, paths: Collection[str]) -> File | None:
    grammar = "tsx" if path.endswith(("tsx", "jsx")) else "typescript" if path.endswith("ts") else "javascript"
    root = parsed(grammar, source)
    if root is None:
        return None
    reader = _Reader(path, paths)
    tree = reader.node("file", root, reader.below(root))
    return File(path, tree, reader.imports)


class _Reader(Reader):
    def __init__(self, path: str, paths: Collection[str]) -> None:
        super().__init__()
        self._path, self._paths = path, paths
        self.imports: list[Import] = []

    # --- modules --------------------------------------------------------------------------------------------------------

    def _of_module(self, module: str) -> tuple[bool, str]:
        """Whether a module is of the product, and the file of the tests that it is."""
        if not module.startswith((".", "/")):
            return TEST_LIBRARIES.fullmatch(module) is None, ""
        base = posixpath.normpath(posixpath.join(posixpath.dirname(self._path), module))
        helper = next((base + suffix for suffix in SUFFIXES if base + suffix in self._paths), "")
        return not helper and not module.endswith(".json"), helper

    def _import_statement(self, read: Read_) -> Node:
        source = read.child_by_field_name("source")
        product, helper = self._of_module(text_of(source)[1:-1])
        for clause in (child for child in read.named_children if child.type == "import_clause"):
            for part in clause.named_children:
                if part.type == "identifier":
                    self.imports.append(Import(text_of(part), "default" if helper else "", product, helper))
                elif part.type == "namespace_import":
                    self.imports.append(Import(text_of(part.named_children[0]), "", product, helper))
                elif part.type == "named_imports":
                    for one in part.named_children:
                        member = text_of(one.child_by_field_name("name"))
                        alias = one.child_by_field_name("alias")
                        self.imports.append(Import(text_of(alias) if alias else member, member, product, helper))
        return self.node("other", read)

    def _variable_declarator(self, read: Read_, kind: str = "let") -> Node:
        value = read.child_by_field_name("value")
        name = read.child_by_field_name("name")
        if text_of(name).startswith(SUPPORT):
            return self.node("other", read)
        if value is not None and name is not None and (module := _required(value)) is not None:
            return self._required(read, name, module)
        parts = [self.at(read, "name"), *([self.read(value)] if value is not None else [])]
        made, type_ = self.node("bind", read, parts, kind), read.child_by_field_name("type")
        return made if type_ is None else self.node("other", read, [self.read(type_), made])

    def _required(self, read: Read_, name: Read_, module: str) -> Node:
        product, helper = self._of_module(module)
        if name.type == "identifier":
            self.imports.append(Import(text_of(name), "", product, helper))
        elif name.type == "object_pattern":
            for one in name.named_children:
                key, value = (one.child_by_field_name(field) for field in ("key", "value"))
                member, alias = (text_of(key), text_of(value)) if key is not None else (text_of(one), text_of(one))
                self.imports.append(Import(alias, member, product, helper))
        return self.node("other", read)

    def _lexical_declaration(self, read: Read_) -> Node:
        return self.node("other", read, self.below(read))

    def _variable_declaration(self, read: Read_) -> Node:
        return self.node(
            "other",
            read,
            [self._variable_declarator(one, "var") for one in read.named_children if one.type == "variable_declarator"],
        )

    def _export_statement(self, read: Read_) -> Node:
        return self.node(
            "other",
            read,
            [self.read(one) for one in read.named_children if one.type not in ("string", "export_clause")],
        )

    # --- names and values -----------------------------------------------------------------------------------------------

    def _identifier(self, read: Read_) -> Node:
        return self.node("name", read, (), text_of(read))

    _this = _shorthand_property_identifier_pattern = _super = _type_identifier = _identifier

    def _literal(self, read: Read_) -> Node:
        return self.node("literal", read, (), text_of(read))

    def _regex(self, read: Read_) -> Node:
        return self.quoted(read, text_of(read))

    def _string_fragment(self, read: Read_) -> Node:
        return self.quoted(read, text_of(read))

    _jsx_text = _string_fragment
    _number = _true = _false = _null = _undefined = _literal

    def _string(self, read: Read_) -> Node:
        return self.quoted(read, text_of(read)[1:-1])

    def _template_string(self, read: Read_) -> Node:
        parts = [
            self.read(one) for one in read.named_children if one.type in ("template_substitution", "string_fragment")
        ]
        return self.node("join", read, parts) if len(parts) != 1 else self.node("same", read, parts)

    def _template_substitution(self, read: Read_) -> Node:
        return self.joined(read)

    def _member_expression(self, read: Read_) -> Node:
        return self.node("member", read, [self.at(read, "object")], text_of(read.child_by_field_name("property")))

    def _subscript_expression(self, read: Read_) -> Node:
        return self.node("index", read, [self.at(read, "object"), self.at(read, "index")])

    def _call_expression(self, read: Read_, name: str = "") -> Node:
        arguments = read.child_by_field_name("arguments")
        callee = self.at(read, "constructor" if name else "function")
        if name and callee.name == "Proxy":
            name = ""
        given = (
            []
            if arguments is None
            else [self.read(arguments)]
            if arguments.type == "template_string"
            else self.below(arguments)
        )
        return self.node("call", read, [callee, *given], name)

    def _new_expression(self, read: Read_) -> Node:
        return self._call_expression(read, "new")

    def _array(self, read: Read_) -> Node:
        return self.node("list", read, self.below(read))

    _array_pattern = _array

    def _object(self, read: Read_) -> Node:
        return self.node("table", read, [self._in_object(one) for one in read.named_children if one.type != "comment"])

    _object_pattern = _object

    def _in_object(self, read: Read_) -> Node:
        if read.type in ("pair", "pair_pattern"):
            return self.node("entry", read, [self._key(read.child_by_field_name("key")), self.at(read, "value")])
        if read.type in ("shorthand_property_identifier", "shorthand_property_identifier_pattern"):
            key = self.node("key", read, (), text_of(read))
            return self.node("entry", read, [key, self.node("name", read, (), text_of(read))])
        if read.type == "object_assignment_pattern":
            left = read.child_by_field_name("left")
            key = self.node("key", read if left is None else left, (), text_of(left))
            return self.node("entry", read, [key, self._assignment_pattern(read)])
        if read.type == "method_definition":
            made = self._method_definition(read)
            key, made.name = self._key(read.child_by_field_name("name")), ""
            return self.node("entry", read, [key, made])
        return self.read(read)

    def _key(self, read: Read_ | None) -> Node:
        if read is None:
            raise RecursionError
        if read.type == "computed_property_name":
            return self.node("same", read, self.below(read))
        text = text_of(read)
        return self.quoted(read, text[1:-1]) if read.type == "string" else self.node("key", read, (), text)

    def _spread_element(self, read: Read_) -> Node:
        return self.node("spread", read, self.below(read))

    _rest_pattern = _spread_element

    def _assignment_pattern(self, read: Read_) -> Node:
        return self.node("default", read, [self.at(read, "left"), self.at(read, "right")])

    def _parenthesized_expression(self, read: Read_) -> Node:
        return self.same(read)

    _await_expression = _non_null_expression = _yield_expression = _parenthesized_expression

    def _as_expression(self, read: Read_) -> Node:
        value, *types = read.named_children
        return self.node(
            "same", read, [self.node("other", read, [self._type_annotation(one) for one in types]), self.read(value)]
        )

    _satisfies_expression = _as_expression

    def _sequence_expression(self, read: Read_) -> Node:
        *others, last = self.below(read)
        return self.node("same", read, [*(self.node("test", read, [one]) for one in others), last])

    def _binary_expression(self, read: Read_) -> Node:
        operator = text_of(read.child_by_field_name("operator"))
        sides = [self.at(read, "left"), self.at(read, "right")]
        if operator in COMPARES:
            typed = any(
                side.type == "unary_expression" and text_of(side).startswith("typeof") for side in read.named_children
            )
            return self.node("test" if typed else "compare", read, sides)
        if operator in ("||", "&&", "??"):
            return self.node("same", read, sides, "either")
        return self.node("join", read, sides)

    def _unary_expression(self, read: Read_) -> Node:
        if text_of(read.child_by_field_name("operator")) == "delete":
            return self.node("bind", read, self.below(read), "set")
        return self.joined(read)

    def _ternary_expression(self, read: Read_) -> Node:
        test = self.at(read, "condition")
        return self.node(
            "same", read, [self.node("test", read, [test]), self.at(read, "consequence"), self.at(read, "alternative")]
        )

    def _assignment_expression(self, read: Read_) -> Node:
        left = text_of(read.child_by_field_name("left"))
        if left == "module.exports":
            return self.node("bind", read, [self.node("other", read), self.at(read, "right")], "exports")
        if (named := EXPORTED.fullmatch(left)) is not None:
            return self.node("bind", read, [self.node("name", read, (), named[1]), self.at(read, "right")], "let")
        return self.node("bind", read, [self.at(read, "left"), self.at(read, "right")], "set")

    _augmented_assignment_expression = _assignment_expression

    # --- functions ------------------------------------------------------------------------------------------------------

    def _function(self, read: Read_, named: bool) -> Node:
        given = read.child_by_field_name("parameters") or read.child_by_field_name("parameter")
        parameters = (
            [] if given is None else self.below(given) if given.type == "formal_parameters" else [self.read(given)]
        )
        name = text_of(read.child_by_field_name("name")) if named else ""
        body = read.child_by_field_name("body")
        inner = self.node("block", read) if body is None else self.read(body)
        return self.node("function", read, [*parameters, inner], name)

    def _arrow_function(self, read: Read_) -> Node:
        return self._function(read, False)

    _function_expression = _generator_function = _arrow_function

    def _function_declaration(self, read: Read_) -> Node:
        return self._function(read, True)

    _generator_function_declaration = _method_definition = _function_declaration

    def _required_parameter(self, read: Read_) -> Node:
        pattern, value = self.at(read, "pattern"), read.child_by_field_name("value")
        return pattern if value is None else self.node("default", read, [pattern, self.read(value)])

    _optional_parameter = _required_parameter

    def _statement_block(self, read: Read_) -> Node:
        return self.node("block", read, self.below(read))

    def _return_statement(self, read: Read_) -> Node:
        return self.node("return", read, self.below(read))

    def _expression_statement(self, read: Read_) -> Node:
        return self.node("statement", read, self.below(read))

    def _class_declaration(self, read: Read_) -> Node:
        body = read.child_by_field_name("body")
        heritage = [
            self.read(one) for child in read.named_children if child.type == "class_heritage" for one in _bases(child)
        ]
        inside = [] if body is None else [self.read(one) for one in body.named_children]
        return self.node("class", read, [*heritage, *inside], text_of(read.child_by_field_name("name")))

    _class = _abstract_class_declaration = _class_declaration

    def _field_definition(self, read: Read_) -> Node:
        value, name = (
            read.child_by_field_name("value"),
            read.child_by_field_name("property") or read.child_by_field_name("name"),
        )
        if value is None or name is None:
            return self.node("other", read)
        owner = self.node("member", name, [self.node("name", name, (), "this")], text_of(name))
        return self.node("bind", read, [owner, self.read(value)], "field")

    _public_field_definition = _field_definition

    # --- control flow ---------------------------------------------------------------------------------------------------

    def _if_statement(self, read: Read_) -> Node:
        rest = [
            self.at(read, name) for name in ("consequence", "alternative") if read.child_by_field_name(name) is not None
        ]
        return self.node("other", read, [self.node("test", read, [self.at(read, "condition")]), *rest])

    def _while_statement(self, read: Read_) -> Node:
        return self.node("other", read, [self.node("test", read, [self.at(read, "condition")]), self.at(read, "body")])

    _do_statement = _while_statement

    def _for_statement(self, read: Read_) -> Node:
        parts = self.below(read)
        for part in parts[:-1]:
            for one in part.walk():
                if one.kind == "compare":
                    one.kind = "test"  # the head of a loop
        return self.node("block", read, parts)

    def _for_in_statement(self, read: Read_) -> Node:
        keys = text_of(read.child_by_field_name("operator")) == "in"
        parts = [self.at(read, "left"), self.at(read, "right"), self.at(read, "body")]
        return self.node("each", read, parts, "keys" if keys else "")

    def _switch_statement(self, read: Read_) -> Node:
        body = read.child_by_field_name("body")
        cases = [] if body is None else body.named_children
        values = [self.at(case, "value") for case in cases if case.type == "switch_case"]
        inside = [
            self.read(one)
            for case in cases
            for index, one in enumerate(case.named_children)
            if index or case.type != "switch_case"
        ]
        return self.node("block", read, [self.node("compare", read, [self.at(read, "value"), *values]), *inside])

    def _catch_clause(self, read: Read_) -> Node:
        parameter = read.child_by_field_name("parameter")
        caught = [] if parameter is None else [self.node("bind", parameter, [self.read(parameter)], "let")]
        return self.node("block", read, [*caught, self.at(read, "body")])

    # --- what holds no value --------------------------------------------------------------------------------------------

    def _type_annotation(self, read: Read_) -> Node:
        """A type is gone when the tests run, but not from their file."""
        return self.node("other", read, [self._string(one) for one in _strings(read)])

    _interface_declaration = _type_alias_declaration = _type_arguments = _type_parameters = _type_annotation
    _ambient_declaration = _type_annotation


def _strings(read: Read_) -> list[Read_]:
    found = [read] if read.type == "string" else []
    for child in read.named_children:
        found += _strings(child)
    return found


def _bases(heritage: Read_) -> list[Read_]:
    found = []
    for one in heritage.named_children:
        found += (
            [part for part in one.named_children if part.type != "type_arguments"]
            if one.type == "extends_clause"
            else [one]
        )
    return [one for one in found if one.type != "implements_clause"]


def _required(value: Read_) -> str | None:
    """The module of `require('…')` or `await import('…')`."""
    while value.type in ("await_expression", "parenthesized_expression") and value.named_children:
        value = value.named_children[0]
    callee, arguments = value.child_by_field_name("function"), value.child_by_field_name("arguments")
    if value.type != "call_expression" or text_of(callee) not in ("require", "import") or arguments is None:
        return None
    given = arguments.named_children
    return text_of(given[0])[1:-1] if len(given) == 1 and given[0].type == "string" else None
