"""Go tests read by their grammar."""

from __future__ import annotations

import re
from collections.abc import Collection

from tree_sitter import Node as Read

from sandbox.grading.observations.literals.languages.golang import SUPPORT
from sandbox.grading.observations.literals.nodes import File, Import, Node, Reader, names, parsed, text_of
from sandbox.grading.observations.literals.program import bare

STANDARD = names("go_standard")
TEST_LIBRARIES = (
    "github.com/stretchr/testify", "github.com/google/go-cmp", "gotest.tools", "github.com/onsi",
    "github.com/matryer/is", "github.com/frankban/quicktest", "gopkg.in/check.v1", "github.com/golang/mock",
    "go.uber.org/mock", "go.uber.org/goleak", "github.com/davecgh/go-spew", "github.com/pmezard/go-difflib",
    "github.com/shoenig/test", "github.com/smartystreets", "github.com/jarcoal/httpmock", "github.com/h2non/gock",
    "github.com/DATA-DOG", "github.com/spf13/afero", "golang.org/x", "github.com/google/uuid", "gopkg.in/yaml",
    "github.com/sergi/go-diff", "github.com/kylelemons/godebug", "github.com/go-test/deep",
)  # fmt: skip
COMPARES = frozenset({"==", "!=", "<", ">", "<=", ">="})


def read(path: str, source: bytes, paths: Collection[str]) -> File | None:
    root = parsed("go", source)
    if root is None:
        return None
    reader = _Reader(root)
    tree = reader.node("file", root, reader.below(root))
    return File(path, tree, reader.imports, open=True)


def is_library(path: str) -> bool:
    return path.split("/")[0] in STANDARD or path.startswith(TEST_LIBRARIES)


class _Reader(Reader):
    def __init__(self, root: Read) -> None:
        super().__init__()
        self.imports: list[Import] = []
        self._fields: dict[str, list[str]] = {}
        waiting = [root]
        while waiting:
            one = waiting.pop()
            waiting += one.named_children
            kind = one.child_by_field_name("type")
            if one.type == "type_spec" and kind is not None and kind.type == "struct_type":
                self._fields[text_of(one.child_by_field_name("name"))] = _fields_of(kind)

    # --- declarations ---------------------------------------------------------------------------------------------------

    def _import_spec(self, read: Read) -> Node:
        path, alias = text_of(read.child_by_field_name("path"))[1:-1], read.child_by_field_name("name")
        names = [text_of(alias)] if alias is not None else _package_names(path)
        self.imports += [Import(name, "", not is_library(path)) for name in names]
        return self.node("other", read)

    def _package_clause(self, read: Read) -> Node:
        return self.node("other", read)

    def _var_spec(self, read: Read) -> Node:
        names = [self.read(one) for one in read.children_by_field_name("name")]
        target = names[0] if len(names) == 1 else self.node("list", read, names)
        value, kind = read.child_by_field_name("value"), read.child_by_field_name("type")
        if value is not None:
            return self.node("bind", read, [target, self._values(value)], "let")
        if kind is not None and kind.type == "struct_type":
            return self.node("other", read, [self._struct_type(kind), self.node("bind", read, [target], "let")])
        if kind is not None and kind.type in (
            "type_identifier",
            "qualified_type",
        ):  # a value of a type that may be the product's
            return self.node("bind", read, [target, self.node("record", kind, [self.read(kind)])], "let")
        return self.node("bind", read, [target], "let")

    _const_spec = _var_spec

    def _values(self, read: Read) -> Node:
        """The right side of an assignment: one value for all targets, or one for each."""
        given = self.below(read)
        if len(given) == 1:
            return given[0]
        return self.node("list", read, given)

    def _short_var_declaration(self, read: Read, name: str = "let") -> Node:
        left, right = read.child_by_field_name("left"), read.child_by_field_name("right")
        if left is None or right is None:
            return self.node("other", read, self.below(read))
        targets = self.below(left)
        target = targets[0] if len(targets) == 1 else self.node("list", left, targets)
        value = self._values(right)
        return self.node("bind", read, [target, value], name)

    def _assignment_statement(self, read: Read) -> Node:
        return self._short_var_declaration(read, "set")

    _receive_statement = _short_var_declaration

    def _function(self, read: Read, name: str) -> Node:
        if SUPPORT.fullmatch(name):
            return self.node("other", read)
        given, result, body = (read.child_by_field_name(field) for field in ("parameters", "result", "body"))
        inside = [] if body is None else [self.read(body)]
        named = self._parameters(result) if result is not None and result.type == "parameter_list" else []
        results = [self.node("bind", one_read, [one], "let") for one, one_read in named]
        block = self.node("block", read if body is None else body, [*results, *inside])
        return self.node("function", read, [*(one for one, _ in self._parameters(given)), block], name)

    def _parameters(self, read: Read | None) -> list[tuple[Node, Read]]:
        found = []
        for one in [] if read is None else read.named_children:
            names = one.children_by_field_name("name")
            for name in names:
                node = self.read(name)
                found.append(
                    (self.node("spread", name, [node]) if one.type == "variadic_parameter_declaration" else node, name)
                )
            if not names and one.type.endswith("parameter_declaration"):
                found.append((self.node("other", one), one))
        return found

    def _function_declaration(self, read: Read) -> Node:
        return self._function(read, text_of(read.child_by_field_name("name")))

    def _func_literal(self, read: Read) -> Node:
        return self._function(read, "")

    def _method_declaration(self, read: Read) -> Node:
        receiver = self._parameters(read.child_by_field_name("receiver"))
        kind = re.search(r"(\w+)(?:\[[^\]]*\])?\s*\)$", text_of(read.child_by_field_name("receiver")))
        own = [
            self.node("bind", one_read, [one, self.node("unknown", one_read)], "let")
            for one, one_read in receiver
            if one.kind == "name"
        ]
        method = self._function(read, text_of(read.child_by_field_name("name")))
        return self.node("class", read, [*own, method], kind[1] if kind else "")

    def _type_spec(self, read: Read) -> Node:
        kind = read.child_by_field_name("type")
        tags = [] if kind is None or kind.type != "struct_type" else self._tags(kind)
        return self.node("class", read, tags, text_of(read.child_by_field_name("name")))

    _type_alias = _type_spec

    # --- values ---------------------------------------------------------------------------------------------------------

    def _identifier(self, read: Read) -> Node:
        return self.node("name", read, (), text_of(read))

    _type_identifier = _package_identifier = _field_identifier = _identifier

    def _qualified_type(self, read: Read) -> Node:
        return self.node("member", read, [self.at(read, "package")], text_of(read.child_by_field_name("name")))

    def _literal(self, read: Read) -> Node:
        return self.node("literal", read, (), text_of(read))

    _int_literal = _float_literal = _imaginary_literal = _true = _false = _nil = _iota = _literal

    def _quoted(self, read: Read) -> Node:
        return self.quoted(read, text_of(read)[1:-1])

    _interpreted_string_literal = _raw_string_literal = _rune_literal = _quoted

    def _selector_expression(self, read: Read) -> Node:
        return self.node("member", read, [self.at(read, "operand")], text_of(read.child_by_field_name("field")))

    def _index_expression(self, read: Read) -> Node:
        return self.node("index", read, [self.at(read, "operand"), self.at(read, "index")])

    def _slice_expression(self, read: Read) -> Node:
        return self.node("slice", read, self.below(read))

    def _call_expression(self, read: Read) -> Node:
        arguments = read.child_by_field_name("arguments")
        given = [] if arguments is None else self.below(arguments)
        made = [self.at(read, "function"), *given]
        callee = bare(made[0])
        if callee.kind == "member" and callee.name == "DeepEqual" and len(made) == 3:
            return self.node("compare", read, made[1:])
        return self.node("call", read, made)

    def _type_conversion_expression(self, read: Read) -> Node:
        return self.node("same", read, [self.at(read, "operand")])

    def _variadic_argument(self, read: Read) -> Node:
        return self.node("spread", read, self.below(read))

    def _parenthesized_expression(self, read: Read) -> Node:
        return self.same(read)

    _type_assertion_expression = _parenthesized_expression

    def _unary_expression(self, read: Read) -> Node:
        sign = text_of(read)[:1]
        return self.node("same" if sign in "&*<" else "join", read, self.below(read), sign if sign == "&" else "")

    def _binary_expression(self, read: Read) -> Node:
        operator = text_of(read.child_by_field_name("operator"))
        sides = [self.at(read, "left"), self.at(read, "right")]
        if operator in COMPARES:
            return self.node("compare", read, sides)
        return self.node("same", read, sides, "either") if operator in ("||", "&&") else self.node("join", read, sides)

    def _composite_literal(self, read: Read) -> Node:
        kind, body = read.child_by_field_name("type"), read.child_by_field_name("body")
        return self.node("other", read) if body is None else self._composite(kind, body)

    def _composite(self, kind: Read | None, body: Read) -> Node:
        """`kind` is the type that is written, or that of the items around."""
        element = kind.child_by_field_name("element") or kind.child_by_field_name("value") if kind is not None else None
        fields = self._fields_of(kind)
        parts = []
        for index, one in enumerate(child for child in body.named_children if child.type != "comment"):
            if one.type == "keyed_element":
                key, value = one.child_by_field_name("key"), one.child_by_field_name("value")
                parts.append(
                    self.node("entry", one, [self._key(key, element is not None), self._element(element, value)])
                )
            elif fields is not None:
                name = self.node("key", one, (), fields[index] if index < len(fields) else "?")
                parts.append(self.node("entry", one, [name, self._element(None, one)]))
            else:
                parts.append(self._element(element, one))
        if kind is not None and kind.type in ("type_identifier", "qualified_type", "generic_type"):
            return self.node("record", body, [self.read(kind), *parts])
        if any(part.kind == "entry" for part in parts):
            return self.node("table", body, parts)
        return self.node("list", body, parts)

    def _key(self, read: Read | None, is_value: bool) -> Node:
        if read is None:
            raise RecursionError
        inner = read.named_children[0] if read.type == "literal_element" and read.named_children else read
        if inner.type == "identifier" and not is_value:
            return self.node("key", inner, (), text_of(inner))
        return self.read(inner)

    def _element(self, kind: Read | None, read: Read | None) -> Node:
        if read is None:
            raise RecursionError
        inner = read.named_children[0] if read.type == "literal_element" and read.named_children else read
        if inner.type != "literal_value":
            return self.read(inner)
        if kind is not None and kind.type == "pointer_type" and kind.named_children:
            kind = kind.named_children[0]
        return self._composite(kind, inner)

    def _fields_of(self, kind: Read | None) -> list[str] | None:
        if kind is None:
            return None
        return _fields_of(kind) if kind.type == "struct_type" else self._fields.get(text_of(kind))

    # --- control flow ---------------------------------------------------------------------------------------------------

    def _block(self, read: Read) -> Node:
        return self.node("block", read, self.below(read))

    _communication_case = _default_case = _select_statement = _block

    def _expression_statement(self, read: Read) -> Node:
        return self.node("statement", read, self.below(read))

    def _return_statement(self, read: Read) -> Node:
        given = [
            part
            for child in read.named_children
            for part in (self.below(child) if child.type == "expression_list" else [self.read(child)])
        ]
        if not given:
            return self.node("return", read)
        return self.node("return", read, [given[0] if len(given) == 1 else self.node("list", read, given)])

    def _if_statement(self, read: Read) -> Node:
        first = read.child_by_field_name("initializer")
        rest = [
            self.at(read, name) for name in ("consequence", "alternative") if read.child_by_field_name(name) is not None
        ]
        test = self.node("test", read, [self.at(read, "condition")])
        return self.node("block", read, [*([] if first is None else [self.read(first)]), test, *rest])

    def _for_statement(self, read: Read) -> Node:
        body = self.at(read, "body")
        head = next((child for child in read.named_children if child.type in ("range_clause", "for_clause")), None)
        if head is None or head.type == "for_clause":
            parts = self.below(head) if head is not None else []
            for one in (one for part in parts for one in part.walk() if one.kind == "compare"):
                one.kind = "test"
            return self.node("block", read, [*parts, body])
        left = head.child_by_field_name("left")
        targets = [] if left is None else self.below(left)
        target = self.node("list", read if left is None else left, targets)
        return self.node("each", read, [target, self.at(head, "right"), body], "range")

    def _expression_switch_statement(self, read: Read) -> Node:
        first, value = read.child_by_field_name("initializer"), read.child_by_field_name("value")
        cases = [child for child in read.named_children if child.type in ("expression_case", "default_case")]
        values = [
            one
            for case in cases
            if (list_ := case.child_by_field_name("value")) is not None
            for one in self.below(list_)
        ]
        inside = [
            self.node("block", case, [self.read(one) for one in case.named_children if one.type == "statement_list"])
            for case in cases
        ]
        head = self.node(
            "test" if value is None else "compare", read, [*([] if value is None else [self.read(value)]), *values]
        )
        return self.node("block", read, [*([] if first is None else [self.read(first)]), head, *inside])

    def _type_switch_statement(self, read: Read) -> Node:
        alias, value = read.child_by_field_name("alias"), self.at(read, "value")
        own = [] if alias is None else [self.node("bind", alias, [self.below(alias)[0], value], "let")]
        inside = []
        for case in read.named_children:
            if case.type in ("type_case", "default_case"):
                kinds = [self._mention(one) for one in case.children_by_field_name("type")]
                inside.append(
                    self.node(
                        "block",
                        case,
                        [*kinds, *(self.read(one) for one in case.named_children if one.type == "statement_list")],
                    )
                )
        return self.node("block", read, [*(own or [value]), *inside])

    def _mention(self, read: Read) -> Node:
        kind = read
        while kind.type not in ("type_identifier", "qualified_type") and kind.named_children:
            kind = kind.named_children[0]
        return self.node("mention", read, [self.read(kind)])

    def _send_statement(self, read: Read) -> Node:
        return self.node("other", read, self.below(read))

    # --- types hold no value --------------------------------------------------------------------------------------------

    def _type(self, read: Read) -> Node:
        return self.node("other", read)

    def _struct_type(self, read: Read) -> Node:
        return self.node("other", read, self._tags(read))

    def _tags(self, struct: Read) -> list[Node]:
        """What fields are called elsewhere: ``json:"name"``."""
        fields = [one for held in struct.named_children for one in held.named_children]
        return [self.read(tag) for one in fields if (tag := one.child_by_field_name("tag")) is not None]

    _slice_type = _array_type = _map_type = _function_type = _interface_type = _channel_type = _type_arguments = _type
    _pointer_type = _generic_type = _type


def _fields_of(struct: Read) -> list[str]:
    return [
        text_of(name)
        for held in struct.named_children
        for one in held.named_children
        for name in one.children_by_field_name("name") or [one]
        if one.type == "field_declaration"
    ]


def _package_names(path: str) -> list[str]:
    """What the package of an import path may be called."""
    parts = [part for part in path.split("/") if part]
    if len(parts) > 1 and re.fullmatch(r"v\d+", parts[-1]):
        parts.pop()
    last = re.sub(r"\.v\d+$", "", parts[-1]) if parts else ""
    return sorted({last, *re.split(r"[-.]", last)})
