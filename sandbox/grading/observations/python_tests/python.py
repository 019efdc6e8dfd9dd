"""Python tests whose assertions report instead of decide (pytest and unittest)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sandbox.grading.observations.python_tests.blanking import (
    DIRECT,
    FORBIDDEN,
    blank,
    drop_ids,
    drop_labels,
    holds,
    names_in_body,
    strip,
)
from sandbox.grading.observations.python_tests.demands import (
    contrasts_within,
    decides_inside,
    inputs,
    is_closed,
    is_of_made,
)
from sandbox.grading.observations.python_tests.lifting import (
    DEEP,
    RESIDUAL,
    SHALLOW,
    Lifted,
    is_class_expression,
    method_condition,
)
from sandbox.grading.observations.python_tests.origins import Origin, Origins
from sandbox.grading.observations.python_tests.parameters import tables
from sandbox.grading.observations.python_tests.purity import Function, Local, Module, Names, called, names_in
from sandbox.grading.observations.python_tests.scopes import Scope
from sandbox.grading.observations.python_tests.trees import cloned, walk
from sandbox.grading.observations.reports.base import Site
from sandbox.grading.observations.reports.operations import is_tame

SEE, SEE_NOW, RAISES, NOTE, BLANK = "_oc_see", "_oc_now", "_oc_raises", "_oc_note", "_oc_blank"
"""What the rewritten tests call; `runners/observing.py` provides them."""
RAISING = frozenset({"raises", "assertRaises", "assertRaisesRegex", "assertRaisesRegexp"})
LOOPS = (ast.For, ast.While, ast.AsyncFor)
MAX_SITES = 2000
UNJUDGED = -1
"""Number of a block whose exception is not judged."""
CHECKS = re.compile(r"_*(assert|check|expect|verify|ensure|compare)", re.IGNORECASE)
STRIDE = 100_000
"""Numbers of sites of one file; the next file's begin one further."""


Form = Literal["record", "real", "blank"]
"""`record`: withheld parts are reported too. `real`: what a grading delivers. `blank`: the same without any decision."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A test file in which some assertions report."""

    text: str
    sites: tuple[Site, ...]
    notes: frozenset[int] = frozenset()
    """Numbers of assertions that are decided inside and whose operands are noted."""
    shows: frozenset[tuple[str, ...]] = frozenset()
    """Functions (classes, then their own name) that hold an expectation which cannot be taken away."""
    providers: frozenset[str] = frozenset()
    """Where these expectations come from: names of helpers and fixtures, and `.name` for attributes of a class."""


def rewrite(
    path: str, source: str, *, levels: Mapping[int, int], form: Form, first: int = 0,
    others: Mapping[str, str] | None = None,
) -> Rewritten:  # fmt: skip
    """`source` with each assertion as its level says (default DEEP).

    What only withheld parts used is blanked, except in a record. `others` are the other Python files of the tests (path → text),
    which may import from this one. Raises SyntaxError, ValueError, RecursionError for a file that cannot be read.
    """
    tree = ast.parse(source)
    module = Module(tree)
    drop_labels(tree)
    origins = Origins(cloned(tree), others)
    writer = _Writer(path, module, tree, levels, form, first, origins)
    tree = writer.visit(tree)
    if form != "record":
        strip(tree)
        blank(tree, module, writer.scopes, origins if form == "blank" else None, list((others or {}).values()))
        writer.mark_beside()
    ast.fix_missing_locations(tree)
    return Rewritten(
        ast.unparse(tree) + "\n", tuple(writer.sites), frozenset(writer.notes), frozenset(writer.shows),
        frozenset(writer.providers),
    )  # fmt: skip


class _Writer(ast.NodeTransformer):
    """Replaces assertions inside functions, in text order."""

    def __init__(
        self, path: str, module: Module, tree: ast.Module, levels: Mapping[int, int], form: Form, first: int,
        origins: Origins,
    ) -> None:  # fmt: skip
        self.path, self.module, self.tree, self.levels, self.form = path, module, tree, levels, form
        self.origins = origins
        self.shows: set[tuple[str, ...]] = set()
        self.providers: set[str] = set()
        self.withheld: dict[int, tuple[Function, Scope, set[str]]] = {}
        """Site → its outermost function with its names, and those in what it withholds."""
        self.record = form == "record"
        self.notes: set[int] = set()
        self.next = first
        self.sites: list[Site] = []
        self.scopes: list[tuple[Function, Local, Scope]] = []
        """Each outermost function that holds a site, with its names."""
        self._where: list[str] = []
        self._function: Function | None = None
        self._names: Names = module
        self._scope: Scope = origins.module
        self._class: ast.ClassDef | None = None
        self._repeats = 0

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self._class = self._class, cloned(node)
        self._where.append(node.name)
        self.generic_visit(node)
        self._where.pop()
        self._class = outer
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._visit_function(node)

    def _visit_function(self, node: Function) -> ast.AST:
        if self._function is not None:  # within a test: its names are those of the test
            self._repeats += 1
            node.body = self._visit_body(node.body)
            self._repeats -= 1
            return node
        drop_ids(node)
        local = Local(node, self.module, tables(node, self.module, self.tree))
        self._function, self._names, self._scope = node, local, self.origins.scope(node, self._class)
        self.scopes.append((node, local, self._scope))
        self._where.append(node.name)
        helper = not node.name.startswith("test") or any(called(d) == "given" for d in node.decorator_list)
        self._repeats += helper
        node.body = self._visit_body(node.body)
        self._repeats -= helper
        self._where.pop()
        self._function, self._names, self._scope = None, self.module, self.origins.module
        return node

    def _visit_body(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in body:
            new = self.visit(statement)
            made += new if isinstance(new, list) else [new]
        return made or [ast.Pass()]

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._visit_loop(node, repeats=not self._names.is_pure_expression(node.iter))

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self._visit_loop(node, repeats=True)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._visit_loop(node, repeats=True)

    def _visit_loop(self, node: ast.For | ast.AsyncFor | ast.While, *, repeats: bool) -> ast.AST:
        self._repeats += repeats
        self.generic_visit(node)
        self._repeats -= repeats
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST | list[ast.stmt]:
        parts = _conjuncts(node.test)
        made: list[ast.stmt] = []
        for part in parts:
            number, report = self._value(part)
            made += [report] if report is not None else self._noted(number, part, ast.Assert(part, node.msg))
        return made

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        call = node.value
        if not isinstance(call, ast.Call):
            return node
        if isinstance(call.func, ast.Attribute) and called(call) not in RAISING:
            return self._checked(node, call)
        if called(call) in ("raises", "assertRaises") and len(call.args) >= 2 and self._function is not None:
            run = ast.Call(call.args[1], call.args[2:], call.keywords)
            return self._raises(call.args[0], "", run) or node
        return self._checked(node, call)

    def _checked(self, node: ast.Expr, call: ast.Call) -> ast.AST | list[ast.stmt]:
        """A call that stands for an assertion: one that is known, or a helper whose name says that it checks."""
        condition = method_condition(call)
        if condition is not None:
            number, report = self._value(condition)
            return report if report is not None else self._noted(number, ast.Tuple([*call.args]), node)
        if CHECKS.match(called(call)) and self._function is not None:
            return self._noted(self._number()[0], ast.Tuple([*call.args]), node)
        return node

    def _noted(self, number: int, judged: ast.expr, statement: ast.stmt) -> list[ast.stmt]:
        """An assertion that stays inside, its operands noted; in the blank form the operands alone."""
        if self.form == "record" or self._function is None or holds(judged, FORBIDDEN):
            return [statement]
        lifted = Lifted(names=self._names, level=SHALLOW)
        for part in judged.elts if isinstance(judged, ast.Tuple) else [judged]:
            lifted.lift(part.value if isinstance(part, ast.Starred) else part)
        leaves = [node for leaf, node in zip(lifted.leaves, lifted.originals, strict=True) if leaf.observed]
        self.notes.add(number)
        leaves = self._without_expectations(leaves)
        if self.form == "blank":
            if any(holds(leaf, DIRECT) for leaf in leaves):
                return [ast.Expr(_note(number, leaf)) for leaf in leaves] or [ast.Pass()]
            return [ast.Expr(ast.Call(ast.Name(BLANK, ast.Load()), [ast.Constant(number), *map(_later, leaves)], []))]
        return [_Noting(number, leaves).visit(statement)]

    def _without_expectations(self, leaves: list[ast.expr]) -> list[ast.expr]:
        """Operands that the product computes, beside those that the test expects of it."""
        origins = [self.origins.of(leaf, self._scope) for leaf in leaves]
        if Origin.COMPUTED not in origins:
            return leaves
        expected = [leaf for leaf, origin in zip(leaves, origins, strict=True) if origin < Origin.COMPUTED]
        computed = [leaf for leaf, origin in zip(leaves, origins, strict=True) if origin is Origin.COMPUTED]
        if not expected and len(computed) > 1 and is_closed(self.origins, computed[-1], self._scope):
            if any(name in self._scope.sources for name in names_in(computed[-1])) or any(
                is_closed(self.origins, leaf, self._scope) for leaf in computed[:-1]
            ):
                self.shows.add(tuple(self._where))  # nothing tells which of them is expected, or its name keeps it
            computed = computed[:-1]
        behind = {name for leaf in expected for name in self.origins.behind(leaf, self._scope)}
        if behind:
            self._show(behind)
        return computed

    def _show(self, providers: set[str]) -> None:
        self.shows.add(tuple(self._where))
        self.providers |= providers

    def _look(self, lifted: Lifted, condition: ast.expr) -> None:
        """Note a function that has to hold an expectation beside what it reports."""
        observed = [node for leaf, node in zip(lifted.leaves, lifted.originals, strict=True) if leaf.observed]
        origins = [self.origins.of(node, self._scope) for node in observed]
        if Origin.COMPUTED in origins and min(origins) < Origin.COMPUTED:
            expected = [node for node, origin in zip(observed, origins, strict=True) if origin < Origin.COMPUTED]
            self._show({name for node in expected for name in self.origins.behind(node, self._scope)})
        elif len(observed) > 1 and is_of_made(self.origins, observed[-1], self._scope):
            self.shows.add(tuple(self._where))
        if any(contrasts_within(self.origins, node, self._scope) for node in observed):
            self.shows.add(tuple(self._where))
        if len(observed) > 1 and any(isinstance(leaf, ast.Name) for leaf in _asked_for_parts(condition, lifted)):
            self.shows.add(tuple(self._where))  # `f(case) == case["want"]`
        truth = isinstance(condition, ast.Name | ast.UnaryOp) and len(observed) == 1
        if truth and decides_inside(self.origins, observed[0], self._scope):
            self.shows.add(tuple(self._where))

    def mark_beside(self) -> None:
        """Mark sites whose expectation has a name that the delivered function still loads: its frame holds the value. Where that
        is no input of the product either, the function shows an expectation."""
        loaded: dict[int, set[str]] = {}
        product: dict[int, set[str]] = {}
        for index, site in enumerate(self.sites):
            if site.number not in self.withheld:
                continue
            function, scope, names = self.withheld[site.number]
            if id(function) not in loaded:
                loaded[id(function)] = set(names_in_body(function))
                product[id(function)] = inputs(self.origins, function, scope)
            held = names & loaded[id(function)]
            if held:
                self.sites[index] = site.model_copy(update={"beside": True})
            if held - product[id(function)]:
                self.shows.add(site.test)

    def visit_With(self, node: ast.With) -> ast.AST:
        made = self._raises_block(node)
        if made is not None:
            return made
        self.generic_visit(node)
        return node

    def _number(self) -> tuple[int, int]:
        number = self.next
        self.next += 1
        return number, self.levels.get(number, DEEP)

    def _value(self, test: ast.expr) -> tuple[int, ast.stmt | None]:
        """The number of an assertion, and a report in place of it; None where it stays an assertion."""
        number, level = self._number()
        if self._function is None or level == RESIDUAL or len(self.sites) >= MAX_SITES or holds(test, FORBIDDEN):
            return number, None
        lifted = Lifted(names=self._names, level=level)
        condition = lifted.lift(test)
        if not any(leaf.observed for leaf in lifted.leaves):  # a file that the product wrote, say
            lifted = Lifted(names=self._names, level=level, withholds="constant")
            condition = lifted.lift(test)
        if not any(leaf.observed for leaf in lifted.leaves):
            return number, None
        site = Site(
            number=number, path=self.path, test=tuple(self._where), condition=ast.unparse(condition),
            leaves=tuple(lifted.leaves), repeats=self._repeats > 0,
        )  # fmt: skip
        self.sites.append(site)
        self._look(lifted, condition)
        kept_back = [node for leaf, node in zip(lifted.leaves, lifted.nodes, strict=True) if not leaf.observed]
        names = {name for node in kept_back for name in names_in(node) if self._names.binding_of(name) is not None}
        self.withheld[number] = (self._function, self._scope, names)
        given = [node for leaf, node in zip(lifted.leaves, lifted.asked(), strict=True) if leaf.observed or self.record]
        return number, _report(number, given)

    def _raises(self, wanted: ast.expr, pattern: str, run: ast.expr) -> ast.stmt | None:
        """A report of an expression that must raise."""
        if not is_class_expression(wanted) or holds(run, (*DIRECT, *FORBIDDEN)):
            return None
        number = self._raising_site(wanted, pattern, run)
        return None if number is None else _report(number, [*([wanted] if self.record else []), run])

    def _raising_site(self, wanted: ast.expr, pattern: str, run: ast.expr | None) -> int | None:
        number, level = self._number()
        if level == RESIDUAL or (pattern and not is_tame(pattern)):
            return None
        lifted = Lifted(names=self._names)
        lifted.leaf(wanted, observed=False)
        if run is not None:
            lifted.leaf(run, observed=True)
        self.sites.append(
            Site(
                number=number, path=self.path, test=tuple(self._where), kind="raises", condition=pattern,
                leaves=tuple(lifted.leaves), repeats=self._repeats > 0,
            )
        )  # fmt: skip
        return number

    def _raises_block(self, node: ast.With) -> ast.AST | None:
        if self._function is None or len(node.items) != 1:
            return None
        call, name = node.items[0].context_expr, node.items[0].optional_vars
        if called(call) not in RAISING or not isinstance(call, ast.Call):
            return None
        pattern = _pattern(call)
        if pattern is None or not call.args or not is_class_expression(call.args[0]):
            return self._open_block(node, name) if self.form == "blank" else None
        (only, *more) = node.body
        if not more and isinstance(only, ast.Expr) and name is None and not holds(only, (*DIRECT, *FORBIDDEN)):
            made = self._raises(call.args[0], pattern, only.value)
            return self._open_block(node, name) if made is None and self.form == "blank" else made
        number = self._raising_site(call.args[0], pattern, None)
        if number is None:
            return None if self.form != "blank" else self._open_block(node, name)
        return self._open_block(node, name, number, [_later(call.args[0])] if self.record else [])

    def _open_block(
        self, node: ast.With, name: ast.expr | None, number: int = UNJUDGED, later: Sequence[ast.expr] = ()
    ) -> ast.With:
        """A block that swallows and reports what is raised in it."""
        arguments: list[ast.expr] = [ast.Constant(number), *later]
        node.items = [ast.withitem(ast.Call(ast.Name(RAISES, ast.Load()), arguments, []), name)]
        self._repeats += 1  # what stands inside runs as far as the exception lets it
        node.body = self._visit_body(node.body)
        self._repeats -= 1
        return node


def _pattern(call: ast.Call) -> str | None:
    """The pattern that a message must match, "" for none; None when it is not written out."""
    words = {word.arg: word.value for word in call.keywords}
    if called(call) == "raises":
        if set(words) - {"match"} or len(call.args) != 1:
            return None
        given = words.get("match")
    elif called(call) == "assertRaises":
        return "" if len(call.args) == 1 and not set(words) - {"msg"} else None
    else:
        given = call.args[1] if len(call.args) == 2 and not words else ast.Name("unknown")
    if given is None:
        return ""
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else None


def _report(number: int, parts: list[ast.expr]) -> ast.stmt:
    name = SEE_NOW if any(holds(part, DIRECT) for part in parts) else SEE
    given = parts if name == SEE_NOW else [_later(part) for part in parts]
    return ast.Expr(ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), *given], []))


def _note(number: int, node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(NOTE, ast.Load()), [ast.Constant(number), node], [])


class _Noting(ast.NodeTransformer):
    """Wraps the given expressions of a statement."""

    def __init__(self, number: int, leaves: Sequence[ast.expr]) -> None:
        self.number, self.leaves = number, {id(leaf) for leaf in leaves}

    def visit(self, node: ast.AST) -> Any:
        return (
            _note(self.number, node) if isinstance(node, ast.expr) and id(node) in self.leaves else super().visit(node)
        )


def _later(node: ast.expr) -> ast.expr:
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(empty, cloned(node))


def _asked_for_parts(condition: ast.expr, lifted: Lifted) -> Iterator[ast.expr]:
    """Reported expressions of which the host takes a named part."""
    for part in walk(condition):
        named = isinstance(part, ast.Attribute) or (
            isinstance(part, ast.Subscript)
            and isinstance(part.slice, ast.Constant)
            and isinstance(part.slice.value, str)
        )
        holder = getattr(part, "value", None) if named else None
        if isinstance(holder, ast.Name) and holder.id[1:].isdigit() and int(holder.id[1:]) < len(lifted.originals):
            yield lifted.originals[int(holder.id[1:])]


def _conjuncts(test: ast.expr) -> list[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [part for value in test.values for part in _conjuncts(value)]
    return [test]
