"""Rust tests read by their grammar. What stands in a macro is read as the arguments of a call."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from tree_sitter import Node as Read

from sandbox.grading.observations.literals.languages.rustlang import PRELUDE
from sandbox.grading.observations.literals.nodes import File, Import, Node, parsed, text_of
from sandbox.grading.observations.literals.readers.rust_modules import RustModules

WRAPPERS = frozenset(
        {"Some", "Ok", "Err", "Box::new", "Rc::new", "Arc::new", "Mutex::new", "RefCell::new", "Cell::new",
         "String::from", "Cow::from", "Cow::Borrowed", "PathBuf::from", "Path::new", "Duration::from_secs", "Reverse",
         "Wrapping"}
)  # fmt: skip
"""Their result is their argument in another form."""
LISTS, TEXTS = (
    frozenset({"vec"}),
    frozenset({"format", "concat", "stringify", "println", "eprintln", "print", "write", "writeln", "dbg"}),
)
NOTHING = frozenset(
        {"panic", "unreachable", "todo", "unimplemented", "env", "include_str", "include_bytes", "line", "file", "cfg"}
)  # fmt: skip
QUIET = re.compile(
    r"#!?\[\s*(?:test|ignore|allow|warn|deny|cfg|derive|should_panic\s*\]|inline|tokio::test|doc|path|macro_use|rstest\s*\])"
)
"""Attributes in which no value of a test stands."""
COMPARES = frozenset({"==", "!=", "<", ">", "<=", ">="})
BEFORE = b"fn f(){f("


def read(path: str, source: bytes, paths: Collection[str]) -> File | None:
    root = parsed("rust", source)
    if root is None:
        return None
    reader = _Reader(path, paths)
    tree = reader.node("file", root, reader.below(root))
    return File(path, tree, reader.imports, open=reader.open, globs=reader.globs)


class _Reader(RustModules):
    # --- declarations ---------------------------------------------------------------------------------------------------

    def _const_item(self, read: Read) -> Node:
        value = read.child_by_field_name("value")
        return self.node(
            "bind", read, [self._name(read, "name"), *([] if value is None else [self.read(value)])], "let"
        )

    _static_item = _const_item

    def _name(self, read: Read, field: str) -> Node:
        found = read.child_by_field_name(field)
        return self.node("name", read if found is None else found, (), text_of(found))

    def _function_item(self, read: Read) -> Node:
        return self._function(read, text_of(read.child_by_field_name("name")))

    def _closure_expression(self, read: Read) -> Node:
        return self._function(read, "")

    def _function(self, read: Read, name: str) -> Node:
        given, body = read.child_by_field_name("parameters"), read.child_by_field_name("body")
        parameters = (
            []
            if given is None
            else [self._parameter(one) for one in given.named_children if one.type != "self_parameter"]
        )
        inner = self.node("block", read) if body is None else self.read(body)
        return self.node("function", read, [*parameters, inner], name)

    def _parameter(self, read: Read) -> Node:
        return self.at(read, "pattern") if read.type == "parameter" else self.read(read)

    def _block(self, read: Read) -> Node:
        parts = self.below(read)
        if parts and read.named_children[-1].type not in (
            "expression_statement",
            "let_declaration",
            "empty_statement",
            *DECLARED,
        ):
            parts[-1] = self.node("same", read.named_children[-1], [parts[-1]])
            above = read.parent
            if above is not None and above.type in ("function_item", "closure_expression"):
                parts[-1] = self.node("return", read.named_children[-1], [parts[-1]])
            elif above is not None and above.type != "expression_statement":
                return (
                    self.node("same", read, [self.node("test", read, parts[:-1]), parts[-1]])
                    if _plain(parts)
                    else self.node("block", read, parts)
                )
        return self.node("block", read, parts)

    def _impl_item(self, read: Read) -> Node:
        body, kind = read.child_by_field_name("body"), text_of(read.child_by_field_name("type"))
        trait = read.child_by_field_name("trait")
        base = [] if trait is None else [self.read(trait)]
        return self.node("class", read, [*base, *([] if body is None else self.below(body))], re.sub(r"<.*", "", kind))

    def _struct_item(self, read: Read) -> Node:
        return self.node("class", read, [], text_of(read.child_by_field_name("name")))

    _enum_item = _union_item = _type_item = _struct_item

    def _trait_item(self, read: Read) -> Node:
        body = read.child_by_field_name("body")
        return self.node(
            "class", read, [] if body is None else self.below(body), text_of(read.child_by_field_name("name"))
        )

    def _macro_definition(self, read: Read) -> Node:
        if text_of(read.child_by_field_name("name")) == "oc_observe":
            return self.node("other", read)
        return self.node("other", read, list(self._tokens(read)))

    def _attribute_item(self, read: Read) -> Node:
        quiet = QUIET.match(text_of(read)) is not None
        return self.node("other", read, [] if quiet else list(self._tokens(read)))

    _inner_attribute_item = _attribute_item

    def _let_declaration(self, read: Read) -> Node:
        value = read.child_by_field_name("value")
        other = read.child_by_field_name("alternative")
        bind = self.node("bind", read, [self._pattern(read), *([] if value is None else [self.read(value)])], "let")
        return bind if other is None else self.node("other", read, [bind, self.read(other)])

    def _let_condition(self, read: Read) -> Node:
        return self.node("bind", read, [self._pattern(read), self.at(read, "value")], "let")

    def _pattern(self, read: Read) -> Node:
        return self._shown(self.at(read, "pattern"))

    # --- values ---------------------------------------------------------------------------------------------------------

    def _identifier(self, read: Read) -> Node:
        return self.node("name", read, (), text_of(read))

    _self = _super = _crate = _type_identifier = _shorthand_field_identifier = _identifier

    def _literal(self, read: Read) -> Node:
        return self.node("literal", read, (), text_of(read).replace("_", ""))

    _integer_literal = _float_literal = _boolean_literal = _literal

    def _string_literal(self, read: Read) -> Node:
        return self.quoted(read, re.sub(r"\A[bc]?r?#*[\"']|[\"']#*\Z", "", text_of(read)))

    _raw_string_literal = _char_literal = _string_literal

    def _field_expression(self, read: Read) -> Node:
        return self.node("member", read, [self.at(read, "value")], text_of(read.child_by_field_name("field")))

    def _scoped_identifier(self, read: Read) -> Node:
        path, name = read.child_by_field_name("path"), text_of(read.child_by_field_name("name"))
        if path is None or text_of(path) in ("crate", "self", "super"):
            return self.node("name", read, (), name)
        first = text_of(path).split("::")[0]
        if first == "":
            return self.node("name", read, (), name)
        root = self.read(path)
        if root.kind == "name" and root.name not in PRELUDE and self._is_crate(root.name):
            self.imports.append(Import(root.name, "", True))
        return self.node("member", read, [root], name)

    _scoped_type_identifier = _scoped_identifier

    def _generic_type(self, read: Read) -> Node:
        return self.at(read, "type")

    def _generic_function(self, read: Read) -> Node:
        return self.at(read, "function")

    def _index_expression(self, read: Read) -> Node:
        first, *rest = self.below(read)
        if rest and read.named_children[-1].type == "range_expression":
            return self.node("slice", read, [first, *rest[0].parts])
        return self.node("index", read, [first, *rest])

    def _call_expression(self, read: Read) -> Node:
        callee, arguments = read.child_by_field_name("function"), read.child_by_field_name("arguments")
        given = [] if arguments is None else self.below(arguments)
        if text_of(callee).split("::<")[0] in WRAPPERS and given:
            return self.node("same", read, given[:1])
        return self.node("call", read, [self.at(read, "function"), *given])

    def _tuple_expression(self, read: Read) -> Node:
        return self.node("list", read, self.below(read))

    def _array_expression(self, read: Read) -> Node:
        length = read.child_by_field_name("length")
        if length is not None:
            return self.node(
                "list", read, [self.read(one) for one in read.named_children if one.start_byte != length.start_byte]
            )
        return self._tuple_expression(read)

    def _struct_expression(self, read: Read) -> Node:
        body = read.child_by_field_name("body")
        entries = []
        for one in [] if body is None else body.named_children:
            if one.type == "field_initializer":
                name = one.child_by_field_name("field") or one.child_by_field_name("name")
                key = self.node("key", one if name is None else name, (), text_of(name))
                entries.append(self.node("entry", one, [key, self.at(one, "value")]))
            elif one.type == "shorthand_field_initializer":
                name = one.named_children[-1]
                entries.append(
                    self.node("entry", one, [self.node("key", name, (), text_of(name)), self._identifier(name)])
                )
            elif one.type == "base_field_initializer":
                entries.append(self.node("spread", one, self.below(one)))
        return self.node("record", read, [self.at(read, "name"), *entries])

    def _parenthesized_expression(self, read: Read) -> Node:
        return self.same(read)

    _try_expression = _await_expression = _mut_pattern = _reference_pattern = _ref_pattern = _parenthesized_expression
    _async_block = _unsafe_block = _parenthesized_expression

    def _reference_expression(self, read: Read) -> Node:
        lent = any(child.type == "mutable_specifier" for child in read.named_children)
        return self.node("same", read, [self.at(read, "value")], "&" if lent else "")

    def _type_cast_expression(self, read: Read) -> Node:
        return self.node("same", read, [self.at(read, "value")])

    def _mutable_specifier(self, read: Read) -> Node:
        return self.node("other", read)

    def _unary_expression(self, read: Read) -> Node:
        return self.node("same" if text_of(read)[:1] == "*" else "join", read, self.below(read))

    def _binary_expression(self, read: Read) -> Node:
        operator = text_of(read.child_by_field_name("operator"))
        sides = [self.at(read, "left"), self.at(read, "right")]
        return self.node("compare" if operator in COMPARES else "join", read, sides)

    def _range_expression(self, read: Read) -> Node:
        return self.node("join", read, self.below(read))

    def _assignment_expression(self, read: Read) -> Node:
        return self.node("bind", read, [self.at(read, "left"), self.at(read, "right")], "set")

    _compound_assignment_expr = _assignment_expression

    # --- patterns -------------------------------------------------------------------------------------------------------

    def _tuple_pattern(self, read: Read) -> Node:
        return self.node("list", read, self.below(read))

    _slice_pattern = _tuple_pattern

    def _tuple_struct_pattern(self, read: Read) -> Node:
        kind, *parts = self.below(read)
        if kind.name in ("Some", "Ok", "Err") and len(parts) == 1:
            return self.node("same", read, parts)
        return self.node("record", read, [self.node("mention", read, [kind]), *parts])

    def _struct_pattern(self, read: Read) -> Node:
        entries = []
        for one in read.named_children[1:]:
            if one.type == "field_pattern":
                name, pattern = one.child_by_field_name("name"), one.child_by_field_name("pattern")
                key = self.node("key", one if name is None else name, (), text_of(name))
                entries.append(
                    self.node(
                        "entry",
                        one,
                        [key, self.node("name", one, (), text_of(name)) if pattern is None else self.read(pattern)],
                    )
                )
        return self.node("record", read, [self.at(read, "type"), *entries])

    def _match_pattern(self, read: Read) -> Node:
        condition = read.child_by_field_name("condition")
        patterns = [
            self.read(one) for one in read.named_children if condition is None or one.start_byte != condition.start_byte
        ]
        made = [self._shown(one) for one in patterns]
        return self.node("same", read, made[:1]) if made else self.node("other", read)

    def _shown(self, pattern: Node) -> Node:
        """A pattern that may be a constant of the product."""
        if pattern.kind == "member" or (
            pattern.kind == "name" and pattern.name[:1].isupper() and pattern.name not in PRELUDE
        ):
            made = Node("mention", pattern.start, pattern.end, "", [pattern])
            pattern.above = made
            return made
        return pattern

    # --- control flow ---------------------------------------------------------------------------------------------------

    def _expression_statement(self, read: Read) -> Node:
        return self.node("statement", read, self.below(read))

    def _return_expression(self, read: Read) -> Node:
        return self.node("return", read, self.below(read))

    def _if_expression(self, read: Read) -> Node:
        test, others = (
            self._condition(read),
            [self.at(read, n) for n in ("consequence", "alternative") if read.child_by_field_name(n)],
        )
        return (
            self.node("block", read, [test, self.node("same", read, others)])
            if test.kind == "bind"
            else self.node("same", read, [test, *others])
        )

    def _condition(self, read: Read) -> Node:
        condition = self.at(read, "condition")
        return condition if condition.kind == "bind" else self.node("test", read, [condition])

    def _else_clause(self, read: Read) -> Node:
        return self.same(read)

    def _while_expression(self, read: Read) -> Node:
        test = self._condition(read)
        for one in test.walk():
            if one.kind == "compare":
                one.kind = "test"
        return self.node("block", read, [test, self.at(read, "body")])

    def _for_expression(self, read: Read) -> Node:
        return self.node("each", read, [self._pattern(read), self.at(read, "value"), self.at(read, "body")])

    def _match_expression(self, read: Read) -> Node:
        body, value = read.child_by_field_name("body"), read.child_by_field_name("value")
        arms = []
        for arm in [] if body is None else body.named_children:
            if arm.type == "match_arm" and value is not None:
                pattern = arm.child_by_field_name("pattern")
                guard = pattern.child_by_field_name("condition") if pattern is not None else None
                test = [] if guard is None else [self.node("test", guard, [self.read(guard)])]
                bind = self.node("bind", arm, [self._pattern(arm), self.read(value)], "let")
                arms.append(self.node("block", arm, [bind, *test, self.at(arm, "value")]))
        return self.node("other", read, arms)

    # --- macros ---------------------------------------------------------------------------------------------------------

    def _macro_invocation(self, read: Read) -> Node:
        macro = read.child_by_field_name("macro")
        name = text_of(macro).rpartition("::")[2]
        tokens = next((child for child in read.named_children if child.type == "token_tree"), None)
        parts = self._arguments(tokens)
        if name in NOTHING:
            return self.node("other", read)
        if parts is None:
            return self.node("other", read, [] if tokens is None else list(self._tokens(tokens)))
        if name in LISTS:
            return self.node("list", read, parts)
        if name in TEXTS:
            return self.node("join", read, parts)
        if name == "matches":
            return self.node("compare", read, parts)
        if macro is None or name.startswith("assert") or name.startswith("debug_assert"):
            return self.node("other", read, parts)
        return self.node("call", read, [self.node("name", macro, (), name), *parts])

    def _arguments(self, tokens: Read | None) -> list[Node] | None:
        """What stands in a macro, read as arguments; None where it cannot be."""
        if tokens is None:
            return []
        inner = (tokens.text or b"")[1:-1]
        if len(inner.strip()) == 0:
            return []
        for before, after, kind in ((BEFORE, b");}", "arguments"), (b"fn f(){&[", b"];}", "array_expression")):
            root = parsed("rust", before + inner + after)
            if root is None:
                continue
            at = next((one for one in _all(root) if one.type == kind), None)
            if at is not None:
                outer, self.shift = self.shift, self.shift + tokens.start_byte + 1 - len(before)
                try:
                    return self.read(at).parts if kind == "array_expression" else self.below(at)
                finally:
                    self.shift = outer
        return None

    def _tokens(self, read: Read) -> Iterator[Node]:
        for one in _all(read):
            if one.type in ("string_literal", "raw_string_literal", "char_literal", "integer_literal", "float_literal"):
                yield self.read(one)

    # --- types hold no value --------------------------------------------------------------------------------------------

    def _type(self, read: Read) -> Node:
        return self.node("other", read)

    _primitive_type = _reference_type = _array_type = _tuple_type = _type_arguments = _type_parameters = (
        _visibility_modifier
    ) = _type
    _function_type = _where_clause = _lifetime = _dynamic_type = _type


DECLARED = ("function_item", "const_item", "static_item", "use_declaration", "struct_item", "enum_item", "impl_item", "mod_item",
            "macro_definition", "attribute_item")  # fmt: skip


def _plain(parts: list[Node]) -> bool:
    return len(parts) == 1


def _all(read: Read) -> Iterator[Read]:
    yield read
    for child in read.named_children:
        yield from _all(child)
