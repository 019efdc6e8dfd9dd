"""Where a value of a Python test goes: into a call of the product, into names, or nowhere that is known.

A place in a container is followed with its path, so that the second column of a table is not taken for its first one. What is not
known goes nowhere: the analysis is for literals that may stay in delivered tests (`literals.py`), and a literal that goes into no
call of the product may be an expectation.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator

from sandbox.grading.observations.python_tests.demands import SEEKS, TAKES_OUT
from sandbox.grading.observations.python_tests.product_calls import COMPARING, ProductCalls
from sandbox.grading.observations.python_tests.program import (
    Key,
    Program,
    is_fixture,
    rows_of,
)
from sandbox.grading.observations.python_tests.purity import Function, called
from sandbox.grading.observations.python_tests.trees import walk

Selector = tuple[str, Hashable]
"""A step into a container: ("item", place), ("value", key), ("key", key), ("field", name). ANY stands for any place or key."""
Path_ = tuple[Selector, ...]
State = tuple[Key, Path_]
ANY = "*"
RETURNED = "()"
"""Stands for what a function returns."""
PRODUCT: State = ((0, "product"), ())
"""Reached by what a call of the product gets."""
MAX_DEPTH = 6
MAX_STEPS = 4000
GROWS = frozenset(
    {"append", "extend", "insert", "add", "update", "setdefault", "write", "write_text", "write_bytes", "writelines", "writestr",
     "appendleft", "put", "joinpath", "mkdir", "touch", "writerow", "writerows", "writeheader", "seek", "set", "union"}
)  # fmt: skip
"""Methods that put what they get into their object."""
KEEPS = frozenset(
    {"list", "tuple", "sorted", "reversed", "set", "frozenset", "iter", "deepcopy", "copy", "cast", "cycle", "deque"}
)
"""Functions whose result has the items of what they get."""
GROUPS = frozenset({"zip", "product", "zip_longest"})


class Flows:
    """Of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.calls = ProductCalls(program)
        self._reached: dict[State, bool] = {}
        self._functions: dict[int, Function | ast.Lambda] = {}

    def reaches(self, node: ast.expr) -> bool:
        """Whether the value of an expression goes into a call of the product."""
        return any(self._arrives(state) for state in self.climb(node, ()))

    def _arrives(self, first: State) -> bool:
        if first not in self._reached:
            waiting, seen = [first], set[State]()
            while waiting and len(seen) < MAX_STEPS:
                state = waiting.pop()
                if state == PRODUCT or self._reached.get(state):
                    self._reached[first] = True
                    break
                if state not in seen and state not in self._reached:
                    seen.add(state)
                    waiting += self._onward(state)
            else:
                self._reached.update(dict.fromkeys(seen, False))
        return self._reached[first]

    def _onward(self, state: State) -> Iterator[State]:
        key, path = state
        if key[1] == RETURNED:
            yield from self._from_function(self._functions[key[0]], path)
            return
        for load in self.program.loads[key]:
            yield from self.climb(load, path)
        function = self.program.functions.get(key)
        if isinstance(function, Function) and is_fixture(function):
            for taker in self.program.takers(function.name):
                yield (id(taker), function.name), path

    def climb(self, node: ast.expr, path: Path_) -> Iterator[State]:
        """Where a value goes from an expression. With `path` it is a place in the value of this expression."""
        above = self.program.parents.get(id(node))
        if len(path) > MAX_DEPTH:
            return
        match above:
            case ast.Call():
                yield from self._into_call(node, above, path)
            case ast.keyword(arg=arg, value=value):
                call = self.program.parents[id(above)]
                if isinstance(call, ast.Call):
                    yield from self._into_call(value, call, path, arg)
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                fixed = not isinstance(above, ast.Set) and not any(isinstance(item, ast.Starred) for item in items)
                yield from self.climb(above, (("item", items.index(node) if fixed else ANY), *path))
            case ast.Starred():
                yield from self.climb(above, path[1:])
            case ast.Dict(keys=keys, values=values):
                if node in values:
                    named = keys[values.index(node)]
                    step: Selector = ("value", named.value if isinstance(named, ast.Constant) else ANY)
                    yield from self.climb(above, path if named is None else (step, *path))
                else:
                    name = node.value if isinstance(node, ast.Constant) else ANY
                    yield from self.climb(above, (("key", name), *path))
            case ast.BinOp(op=ast.Add() | ast.Mult() | ast.BitOr()) | ast.Await() | ast.BoolOp():
                yield from self.climb(above, path)
            case ast.BinOp() | ast.UnaryOp() | ast.JoinedStr() | ast.FormattedValue():
                yield from self.climb(above, ())
            case ast.IfExp(test=test) if node is not test:
                yield from self.climb(above, path)
            case ast.Subscript(value=value):
                yield from self._into_subscript(node, above, path, value)
            case ast.Slice():
                yield from self.climb(above, ())
            case ast.Attribute():
                yield from self._of_attribute(above, path)
            case ast.Assign(targets=targets, value=value) if node is value:
                for target in targets:
                    yield from self._bind(target, path)
            case ast.AnnAssign(target=target, value=value) | ast.AugAssign(target=target, value=value) if node is value:
                yield from self._bind(target, path)
            case ast.NamedExpr(target=target, value=value) if node is value:
                yield from self._bind(target, path)
                yield from self.climb(above, path)
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value) if node is value:
                yield from self._bind(target, self._item(path))
            case ast.comprehension(target=target, iter=value) if node is value:
                yield from self._bind(target, self._item(path))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                yield from self.climb(above, (("item", ANY), *path))
            case ast.DictComp(key=key):
                yield from self.climb(above, (("key", "") if node is key else ("value", ANY), *path))
            case ast.withitem(context_expr=value, optional_vars=target) if node is value and target is not None:
                yield from self._bind(target, path)
            case ast.Return() | ast.Yield() | ast.YieldFrom() | ast.Lambda():
                yield from self._returned(above, path)
            case ast.arguments():
                yield from self._default(node, above, path)
            case ast.Expr():
                pass

    def _item(self, path: Path_) -> Path_:
        """The place in an item of what is iterated over."""
        return path[1:]

    def _bind(self, target: ast.expr, path: Path_) -> Iterator[State]:
        match target:
            case ast.Name(id=name):
                yield (id(self.program.scope(target)), name), path
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                kind, place = path[0] if path else ("item", ANY)
                starred = any(isinstance(one, ast.Starred) for one in targets)
                for index, one in enumerate(targets):
                    if kind == "item" and (starred or place in (ANY, index)):
                        yield from self._bind(one.value if isinstance(one, ast.Starred) else one, path[1:])
            case ast.Attribute(value=value, attr=attr):
                class_ = self.program.class_of(value)
                if class_ is not None:
                    yield (id(class_), "." + attr), path
                elif self.calls.is_product(value):
                    yield PRODUCT
            case ast.Subscript(value=value, slice=place):
                step: Selector = ("value", place.value if isinstance(place, ast.Constant) else ANY)
                yield from self._into_holder(value, (step, *path))

    def _into_holder(self, value: ast.expr, path: Path_) -> Iterator[State]:
        """Into the object that an expression names: what it is made of holds it, too."""
        if self.calls.is_product(value):
            yield PRODUCT
        waiting: list[tuple[ast.expr, Path_]] = [(value, path)]
        seen = set[Key]()
        while waiting:
            holder, place = waiting.pop()
            for part in walk(holder):
                key = None
                if isinstance(part, ast.Name):
                    key = self.program.resolve(part)
                elif isinstance(part, ast.Attribute):
                    key = self.program.member(part)
                if key is None or key in seen:
                    continue
                seen.add(key)
                yield key, place if part is holder else ()
                if part is not holder or not place:
                    waiting += [(source, ()) for source in self.program.sources[key]]

    def _into_subscript(self, node: ast.expr, above: ast.Subscript, path: Path_, value: ast.expr) -> Iterator[State]:
        if node is not value:
            holder = above.value
            if isinstance(above.ctx, ast.Store):
                yield from self._into_holder(holder, (("key", ""), *path))
            elif self.calls.is_product(holder) or self.calls.is_own(holder, 0, set()):
                yield PRODUCT
            return
        if isinstance(above.slice, ast.Slice) or not path:
            yield from self.climb(above, path)
            return
        kind, place = path[0]
        wanted = above.slice.value if isinstance(above.slice, ast.Constant) else ANY
        if kind == "key" and place == wanted != ANY and self.calls.is_own(above.value, 0, set()):
            yield PRODUCT  # the tests look up a key of a table of their own, which tells nothing
        if kind in ("item", "value") and (
            ANY in (place, wanted) or place == wanted or (isinstance(wanted, int) and wanted < 0)
        ):
            yield from self.climb(above, path[1:])

    def _of_attribute(self, above: ast.Attribute, path: Path_) -> Iterator[State]:
        call = self.program.parents.get(id(above))
        if isinstance(call, ast.Call) and call.func is above:
            match above.attr, path:
                case "items", ((kind, _), *rest) if kind in ("value", "key"):
                    yield from self.climb(call, (("item", ANY), ("item", int(kind == "value")), *rest))
                case "values", (("value", _), *rest):
                    yield from self.climb(call, (("item", ANY), *rest))
                case "keys", (("key", _), *rest):
                    yield from self.climb(call, (("item", ANY), *rest))
                case "copy" | "format" | "encode" | "decode", _:
                    yield from self.climb(call, path)
                case _, ():
                    if above.attr not in SEEKS:
                        yield from self.climb(call, ())
            return
        match path:
            case ():
                yield from self.climb(above, ())
            case (("field", name), *rest) if name == above.attr:
                yield from self.climb(above, tuple(rest))

    def _returned(self, above: ast.AST, path: Path_) -> Iterator[State]:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        function = above if isinstance(above, ast.Lambda) else self.program.within(above, kinds)
        if isinstance(function, Function) and isinstance(above, ast.Yield) and not is_fixture(function):
            path = (("item", ANY), *path)
        if isinstance(function, Function | ast.Lambda):
            self._functions[id(function)] = function
            yield (id(function), RETURNED), path

    def _from_function(self, function: Function | ast.Lambda, path: Path_) -> Iterator[State]:
        """To those who call a function of the tests, or are given it to call."""
        if isinstance(function, ast.Lambda):
            parent = self.program.parents.get(id(function))
            if isinstance(parent, ast.Call) and parent.func is function:
                yield from self.climb(parent, path)
            elif not decides(function):
                yield from self.climb(function, ())
                for key in self._names_of(function):
                    yield from self._calls(key, path)
            return
        holder = self.program.scope(function)
        key = (id(holder), function.name)
        if is_fixture(function):
            for taker in self.program.takers(function.name):
                yield (id(taker), function.name), path
        yield from self._calls(key, path, given=not decides(function))
        if isinstance(holder, ast.ClassDef):
            for load in self.program.attributes[function.name]:
                call = self.program.parents.get(id(load))
                if isinstance(call, ast.Call) and call.func is load and self.program.member(load) is None:
                    yield from self.climb(call, path)
            if not decides(holder):  # an object of the tests that the product gets, or a class that it is the base of
                yield from self._calls((id(self.program.scope(holder)), holder.name), ())
                if any(self.calls.is_product(base) for base in holder.bases):
                    yield PRODUCT

    def _names_of(self, function: ast.Lambda) -> Iterator[Key]:
        for key, sources in list(self.program.sources.items()):
            if any(source is function for source in sources):
                yield key

    def _calls(self, key: Key, path: Path_, *, given: bool = True) -> Iterator[State]:
        for load in self.program.loads[key]:
            call = self.program.parents.get(id(load))
            if isinstance(call, ast.Call) and call.func is load:
                yield from self.climb(call, path)
            elif given:
                yield from self.climb(load, ())

    def _default(self, node: ast.expr, above: ast.arguments, path: Path_) -> Iterator[State]:
        owner = self.program.parents[id(above)]
        given = [*above.posonlyargs, *above.args]
        pairs = [
            *zip(given[len(given) - len(above.defaults) :], above.defaults, strict=True),
            *zip(above.kwonlyargs, above.kw_defaults, strict=True),
        ]
        for argument, value in pairs:
            if value is node:
                yield (id(owner), argument.arg), path

    # --- calls ----------------------------------------------------------------------------------------------------------

    def _into_call(self, node: ast.expr, call: ast.Call, path: Path_, word: str | None = None) -> Iterator[State]:
        if node is call.func:
            return  # what a call of it gives: `_returned`
        name = called(call)
        if name.startswith("_oc_"):
            return
        if self._is_parametrize(call):
            yield from self._rows(node, call, path)
            return
        if self.calls.takes(call):
            yield PRODUCT
            return
        own = self.program.callee(call)
        if isinstance(own, ast.ClassDef) and not _has_init(own):
            yield from self.climb(call, (("field", word or _field(own, call.args.index(node))), *path))
        elif own is not None:
            yield from self._into_parameter(own, node, call, path, word)
        elif isinstance(call.func, ast.Attribute) and name in GROWS:
            place: Path_ = (("item", ANY), *path) if name in ("append", "add", "insert", "appendleft") else path
            yield from self._into_holder(call.func.value, place)
            yield from self.climb(call, path)
        elif name in KEEPS or name == "chain":
            yield from self.climb(call, path)
        elif name in GROUPS and node in call.args:
            yield from self.climb(call, (("item", ANY), ("item", call.args.index(node)), *path[1:]))
        elif name == "enumerate":
            yield from self.climb(call, (("item", ANY), ("item", 1), *path[1:]) if call.args[0] is node else ())
        elif name == "param" and node in call.args:
            yield from self.climb(call, (("item", call.args.index(node)), *path))
        elif name in ("dict", "SimpleNamespace", "Namespace") and word:
            yield from self.climb(call, (("value" if name == "dict" else "field", word), *path))
        elif name == "dict":
            yield from self.climb(call, path)
        elif (fields := self._tuple_fields(call)) is not None:
            index = None if word else call.args.index(node)
            if word or (index is not None and index < len(fields)):
                yield from self.climb(call, (("field", word or fields[index or 0]), *path))
                yield from self.climb(call, (("item", fields.index(word) if word in fields else index or 0), *path))
        elif name not in SEEKS | TAKES_OUT and not name.lower().startswith(COMPARING):
            yield from self.climb(call, ())

    def _tuple_fields(self, call: ast.Call) -> list[str] | None:
        """Fields of the namedtuple of the tests that is called."""
        if not isinstance(call.func, ast.Name) or (key := self.program.resolve(call.func)) is None:
            return None
        for source in self.program.sources[key]:
            if (
                isinstance(source, ast.Call)
                and called(source) in ("namedtuple", "NamedTuple")
                and len(source.args) == 2
            ):
                given = source.args[1]
                if isinstance(given, ast.Constant) and isinstance(given.value, str):
                    return given.value.replace(",", " ").split()
                if isinstance(given, ast.List | ast.Tuple):
                    first = [one.elts[0] if isinstance(one, ast.Tuple) and one.elts else one for one in given.elts]
                    return [str(one.value) for one in first if isinstance(one, ast.Constant)]
        return None

    def _is_parametrize(self, call: ast.Call) -> bool:
        return called(call) == "parametrize" and len(call.args) >= 2

    def _rows(self, node: ast.expr, call: ast.Call, path: Path_) -> Iterator[State]:
        function = self.program.parents.get(id(call))
        holders = [function] if isinstance(function, Function) else []
        if isinstance(function, ast.ClassDef):
            holders = [one for one in function.body if isinstance(one, Function) and one.name.startswith("test")]
        for holder in holders:
            for names, table in [
                *rows_of(holder),
                *(((names, t) for names, t in _own_rows(call)) if holder is not function else ()),
            ]:
                if table is not node:
                    continue
                for index, name in enumerate(names):
                    rest = self._item(path)
                    if len(names) > 1 and rest:
                        if rest[0] not in (("item", index), ("item", ANY)):
                            continue
                        rest = rest[1:]
                    yield (id(holder), name), rest

    def _into_parameter(
        self, own: Function | ast.ClassDef | ast.Lambda, node: ast.expr, call: ast.Call, path: Path_, word: str | None
    ) -> Iterator[State]:
        function = own
        skip = 0
        if isinstance(own, ast.ClassDef):
            function = next(one for one in own.body if isinstance(one, Function) and one.name == "__init__")
            skip = 1
        elif isinstance(own, Function) and isinstance(self.program.scope(own), ast.ClassDef):
            skip = int(not any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in own.decorator_list))
        assert isinstance(function, Function | ast.Lambda)
        if word is not None:
            yield (id(function), word), path
            return
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)][skip:]
        index = call.args.index(node)
        if any(isinstance(one, ast.Starred) for one in call.args[: index + 1]):
            return
        if index < len(names):
            yield (id(function), names[index]), path
        elif function.args.vararg is not None:
            yield (id(function), function.args.vararg.arg), (("item", ANY), *path)


def decides(node: ast.AST) -> bool:
    """Whether code that the product may be given looks at what it gets."""
    kinds = (ast.Compare, ast.If, ast.IfExp, ast.While, ast.Match, ast.BoolOp, ast.Assert, ast.Try, ast.Subscript)
    return any(
        isinstance(part, kinds) or (isinstance(part, ast.Call) and called(part) in SEEKS | TAKES_OUT)
        for part in walk(node)
    )


def _has_init(class_: ast.ClassDef) -> bool:
    return any(isinstance(one, Function) and one.name == "__init__" for one in class_.body)


def _field(class_: ast.ClassDef, index: int) -> str:
    """The field of a dataclass that an argument is for."""
    names = [
        one.target.id for one in class_.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]
    return names[index] if index < len(names) else "?"


def _own_rows(call: ast.Call) -> Iterator[tuple[list[str], ast.expr]]:
    from sandbox.grading.observations.python_tests.parameters import parameter_names

    yield parameter_names(call.args[0]) or [], call.args[1]
