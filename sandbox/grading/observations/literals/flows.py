"""Where a value of a test goes: into a call of the product, into names, or nowhere that is known.

As `python_tests/flows.py`: a place in a container is followed with its path, and what is not known goes nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.grading.observations.literals.nodes import Node
from sandbox.grading.observations.literals.product import Product
from sandbox.grading.observations.literals.program import Name, Program, bare, call_name, is_target

ANY = "*"
Step = tuple[str, str | int]
"""A step into a container: ("item", place), ("value", key), ("key", key), or MADE."""
Path = tuple[Step, ...]
MADE: Step = ("made", "")
"""Into an object of the product. What an object is made of goes into the product only if something is done with the object:
it may as well be what a test expects."""
State = tuple[Name | Node | None, Path]
"""A name, or what a function returns, with a place in it; None is a call of the product."""
PRODUCT: State = (None, ())
TITLE: State = (Name("the name of a test"), ())
MAX_DEPTH = 6


class Flows:
    """Of one program."""

    def __init__(self, program: Program) -> None:
        self.program, self.grammar = program, program.grammar
        self.product = Product(program)
        self._open: dict[int, bool] = {}

    def onward(self, place: Name | Node | None, path: Path) -> Iterator[State]:
        """Where a value goes from a name, or from what a function returns."""
        if isinstance(place, Node):
            yield from self._from_function(place, path)
        elif place is not None:
            for load in place.loads:
                yield from self.climb(load, path)

    def climb(self, node: Node, path: Path) -> Iterator[State]:
        """Where a value goes from an expression. With `path` it is a place in the value of this expression."""
        above = node.above
        if above is None or len(path) > MAX_DEPTH:
            return
        match above.kind:
            case "call":
                yield from self._into_call(node, above, path)
            case "list":
                yield from self.climb(above, (("item", ANY if self._is_open(above) else node.place), *path))
            case "spread":
                outer = above.above
                if outer is not None and outer.kind == "list":
                    yield from self.climb(above, path[1:])
                elif outer is not None and outer.kind in ("table", "record"):
                    yield from self.climb(outer, path)
                elif outer is not None:
                    yield from self._into_call(above, outer, path[1:])
            case "entry":
                yield from self._into_entry(node, above, path)
            case "record" if node is above.parts[0]:
                yield from self.climb(above, path)  # an object of a type of the tests
            case "record":
                step: Path = (("item", node.place - 1), *path)
                yield from self.climb(above, (MADE, *step) if self.product.is_product(above) else step)
            case "same" if node.kind != "test":
                yield from self.climb(above, path)
            case "join":
                yield from self.climb(above, (MADE,) if MADE in path else ())
            case "index" if node is above.parts[0]:
                yield from self._of_index(above, path)
            case "index":
                yield from self._as_index(above, path)
            case "slice" if node is above.parts[0]:
                yield from self.climb(above, path)
            case "slice":
                yield from self.climb(above, ())
            case "member":
                yield from self._of_member(above, path)
            case "bind" | "default" if len(above.parts) > 1 and node is above.parts[1]:
                yield from self._bind(above.parts[0], path)
                if above.name == "set":
                    yield from self.climb(above, path)
            case "each" if node is above.parts[1]:
                yield from self._each(above, path)
            case "return":
                function = self.program.within(above, "function")
                if function is not None:
                    yield function, path
            case "function" if node is above.parts[-1]:
                yield above, path
            case "statement" if path == (MADE,):
                yield PRODUCT
            case "class":  # what the fields of a type are called elsewhere
                for name in self.program.names_of(above):
                    yield name, ()

    def _is_open(self, list_: Node) -> bool:
        """Whether another list is inserted, so that places of items are not known."""
        if id(list_) not in self._open:
            self._open[id(list_)] = any(part.kind == "spread" for part in list_.parts)
        return self._open[id(list_)]

    def _into_entry(self, node: Node, entry: Node, path: Path) -> Iterator[State]:
        table = entry.above
        if table is None:
            return
        key, value = entry.parts
        fixed = key.name if key.kind in ("key", "literal") else ANY
        step: Path = (("value", fixed), *path) if node is value else (("key", fixed), *path)
        made = table.kind == "record" and self.product.is_product(table)
        yield from self.climb(table, (MADE, *step) if made else step)

    def _each(self, each: Node, path: Path) -> Iterator[State]:
        target, kind, rest = each.parts[0], path[:1], path[1:]
        if path == (MADE,):
            yield PRODUCT
        elif each.name == "":
            if not kind or kind[0][0] == "item":
                yield from self._bind(target, rest)
            elif kind[0][0] in ("key", "value"):
                yield from self._bind(target, (("item", int(kind[0][0] == "value")), *rest))
        elif each.name == "keys":
            if kind and kind[0][0] == "key":
                yield from self._bind(target, rest)
        elif kind and kind[0][0] in ("item", "value", "key"):  # a key and a value
            place = int(kind[0][0] != "key")
            yield from self._bind(target, (("item", place), *rest))
        elif not kind:
            yield from self._bind(target, (("item", 1),))

    def _bind(self, target: Node, path: Path) -> Iterator[State]:
        kind, place = path[0] if path else ("item", ANY)
        match target.kind:
            case "name":
                found = self.program.resolve(target)
                if found is not None:
                    yield found, path
            case "same" | "default":
                yield from self._bind(target.parts[0], path)
            case "list" if kind == "made":  # one of several results
                for one in target.parts:
                    yield from self._bind(one, path)
            case "list":
                for index, one in enumerate(target.parts):
                    if one.kind == "spread":
                        yield from self._bind(one.parts[0], (("item", ANY), *path[1:]))
                    elif kind == "item" and place in (ANY, index):
                        yield from self._bind(one, path[1:])
            case "table" | "record":
                for one in target.parts:
                    if one.kind == "entry" and (kind == "value" and place in (ANY, one.parts[0].name)):
                        yield from self._bind(one.parts[1], path[1:])
                    elif one.kind == "spread":
                        yield from self._bind(one.parts[0], path)
            case "member":
                own = self.program.field(target)
                if self._is_environment(target.parts[0]):
                    yield PRODUCT
                if own is not None:
                    yield own, path
                yield from self._into_holder(target.parts[0], (("value", target.name), *path), own is None)
            case "index":
                key = target.parts[1].name if target.parts[1].kind == "literal" else ANY
                yield from self._into_holder(target.parts[0], (("value", key), *path))

    def _is_environment(self, node: Node) -> bool:
        """Whether it is `process.env`, and the tests themselves do not look there."""
        names = self.grammar.sets_environment
        if node.kind != "member" or node.name not in names:
            return False
        return all(
            one.above is not None and is_target(one.above) for name in names for one in self.program.members[name]
        )

    def _into_holder(self, value: Node, path: Path, also_product: bool = True) -> Iterator[State]:
        """Into the object that an expression names: what it is made of holds it, too."""
        if also_product and self.product.is_product(value):
            yield PRODUCT
        waiting: list[tuple[Node, Path]] = [(value, path)]
        seen = set[int]()
        while waiting:
            holder, place = waiting.pop()
            whole = bare(holder)
            for part in holder.walk():
                found = self.program.resolve(part) if part.kind == "name" else None
                if part.kind == "member":
                    found = self.program.field(part)
                if found is None or id(found) in seen or found.code is not None:
                    continue
                seen.add(id(found))
                yield found, place if part is whole else ()
                if part is not whole or not place:
                    waiting += [(source, ()) for source in found.sources]

    def _of_index(self, above: Node, path: Path) -> Iterator[State]:
        if not path:
            yield from self.climb(above, ())
            return
        (kind, place), wanted = path[0], above.parts[1]
        key = wanted.name if wanted.kind == "literal" else ANY
        if kind == "made":
            yield PRODUCT
        elif kind == "key" and place == key != ANY and self.product.is_own(above.parts[0]):
            yield PRODUCT  # the tests look up a key of a table of their own, which tells nothing
        elif kind in ("item", "value") and (ANY in (place, key) or str(place) == key):
            yield from self.climb(above, path[1:])

    def _as_index(self, above: Node, path: Path) -> Iterator[State]:
        if above.above is not None and above.above.kind == "bind" and above is above.above.parts[0]:
            yield from self._into_holder(above.parts[0], (("key", ""), *path))
        elif self.product.is_product(above.parts[0]) or self.product.is_own(above.parts[0]):
            yield PRODUCT

    def _of_member(self, above: Node, path: Path) -> Iterator[State]:
        call = above.above
        while call is not None and call.kind == "same":
            call = call.above
        is_called = call is not None and call.kind == "call" and bare(call.parts[0]) is above
        if path == (MADE,) or (is_called and path[:1] == (MADE,)):
            yield PRODUCT  # what it does, or holds, is looked at
            return
        path = path[1:] if path[:1] == (MADE,) else path
        if is_called and call is not None:
            yield from self._of_method(above, call, path)
        elif not path:
            yield from self.climb(above, ())
        elif path[0] == ("value", above.name) or path[0] == ("item", int(above.name) if above.name.isdigit() else -1):
            yield from self.climb(above, path[1:])
        elif path[0] == ("key", above.name) and self.product.is_own(above.parts[0]):
            yield PRODUCT

    def _of_method(self, above: Node, call: Node, path: Path) -> Iterator[State]:
        """From an object into what a method of it gives, or the function that gets its items."""
        if above.name in self.grammar.steps and path:
            given = bare(call.parts[1]) if len(call.parts) > 1 else call
            if self.product.takes_code(call):
                yield PRODUCT
            kind, _ = path[0]
            function = given if given.kind == "function" else None
            if given.kind == "name" and (found := self.program.resolve(given)) is not None:
                function = found.code
            if function is not None and function.parameters() and kind in ("item", "value"):
                yield from self._bind(function.parameters()[0], path[1:])
        elif above.name in ("entries", "enumerate", "iter_mut", "into_entries") and path and path[0][0] == "item":
            yield from self.climb(call, (("item", ANY), ("item", 1), *path[1:]))
        elif above.name in self.grammar.keeps:
            yield from self.climb(call, path)
        elif not path and all(self.product.is_own(one) for one in call.parts[1:]):
            yield from self.climb(call, ())

    # --- calls ----------------------------------------------------------------------------------------------------------

    def _into_call(self, node: Node, call: Node, path: Path) -> Iterator[State]:
        if node is call.parts[0]:
            return  # what a call of it gives: `_from_function`
        name, index = call_name(call), node.place - 1
        own_arguments = self.grammar.report(call)
        if own_arguments is not None:
            if index >= own_arguments and path[-1:] == (MADE,):
                yield PRODUCT
            return
        if index == 0 and self.grammar.is_title(call):
            yield TITLE
            return
        if self.grammar.is_table(call):
            yield from self._rows(call, path)
            return
        own = self.program.callee(call)
        if self.product.takes(call):
            if self.grammar.is_constructor(call):
                yield from self.climb(call, (MADE,))
            else:
                yield PRODUCT
        elif own is not None and own.kind == "function":
            yield from self._into_parameter(own, call, index, path)
        elif own is not None:
            yield from self._into_constructor(own, call, index, path)
        elif self.product.takes_code(call):
            yield PRODUCT
        elif name in self.grammar.settings and self.product.is_own(call.parts[0]):
            yield PRODUCT  # how long the tests wait, and the like
        elif name in self.grammar.writes:
            yield from self._into_holder(call.parts[1], ())
        elif (table := self._entries(call)) is not None and path:
            (kind, _), rest = path[0], path[1:]
            if kind in ("key", "value"):
                pair: Path = () if table != "entries" else (("item", int(kind == "value")),)
                if table == "entries" or table.startswith(kind):
                    yield from self.climb(call, (("item", ANY), *pair, *rest))
        else:
            yield from self._into_other(node, call, name, path)

    def _into_other(self, node: Node, call: Node, name: str, path: Path) -> Iterator[State]:
        callee = bare(call.parts[0])
        if callee.kind == "member" and name in self.grammar.grows:
            place: Path = (("item", ANY), *path) if name in ("push", "append", "add", "unshift", "push_back") else path
            if name in ("insert", "set") and len(call.parts) == 3:
                place = (("value" if node is call.parts[2] else "key", ANY), *path)
            yield from self._into_holder(callee.parts[0], place)
            yield from self.climb(call, path)
        elif name in self.grammar.keeps:
            grows = name == "append" and node is not call.parts[1]
            yield from self.climb(call, (("item", ANY), *path) if grows else path)
        elif MADE not in path or path == (MADE,):
            others = [part for part in call.parts if part is not node or path != (MADE,)]
            if all(map(self.product.is_own, others)):
                yield from self.climb(call, path if path == (MADE,) else ())

    def _entries(self, call: Node) -> str | None:
        callee = bare(call.parts[0])
        if callee.kind != "member" or callee.parts[0].name != "Object":
            return None
        return callee.name if callee.name in ("entries", "keys", "values") else None

    def _rows(self, call: Node, path: Path) -> Iterator[State]:
        """From a table into the parameters of the test that is run with each row."""
        outer = call.above
        test = bare(outer.parts[-1]) if outer is not None and outer.kind == "call" else None
        if test is None or test.kind != "function" or path[:1] == ():
            return
        row = path[1:]
        for place, parameter in enumerate(test.parameters()):
            if row and row[0][0] == "item":
                if row[0][1] in (ANY, place):
                    yield from self._bind(parameter, row[1:])
            elif place == 0:
                yield from self._bind(parameter, row)

    def _into_parameter(self, function: Node, call: Node, index: int, path: Path) -> Iterator[State]:
        if any(part.kind == "spread" for part in call.parts[1 : index + 1]):
            return
        for place, parameter in enumerate(function.parameters()):
            if place == index:
                yield from self._bind(parameter, path) if parameter.kind != "spread" else self._rest(parameter, path)
            elif parameter.kind == "spread" and place < index:
                yield from self._rest(parameter, path)

    def _rest(self, parameter: Node, path: Path) -> Iterator[State]:
        yield from self._bind(parameter.parts[0], (("item", ANY), *path))

    def _into_constructor(self, class_: Node, call: Node, index: int, path: Path) -> Iterator[State]:
        made = next((one for one in class_.parts if one.kind == "function" and one.name == "constructor"), None)
        if made is not None:
            yield from self._into_parameter(made, call, index, path)

    def _from_function(self, function: Node, path: Path) -> Iterator[State]:
        """To those who call a function of the tests, or are given it to call."""
        holder = function.above
        if holder is not None and holder.kind == "class":
            yield from self._from_method(function, holder, path)
            return
        looks = decides(function)
        if not function.name:
            parent = function.above
            while parent is not None and parent.kind == "same":
                parent = parent.above
            if parent is not None and parent.kind == "call" and bare(parent.parts[0]) is function:
                yield from self.climb(parent, path)
            elif not looks or path == (MADE,):
                yield from self.climb(function, path if path == (MADE,) else ())
        for name in self.program.names_of(function):
            yield from self._calls(name, path, given=not looks)

    def _from_method(self, function: Node, holder: Node, path: Path) -> Iterator[State]:
        for load in self.program.members[function.name]:
            call = load.above
            if call is not None and call.kind == "call" and call.parts[0] is load:
                yield from self.climb(call, path)
        if any(map(decides, self.program.types(holder))):
            return
        for name in self.program.names_of(holder):  # an object of the tests that the product gets
            for load in name.loads:
                call = load.above
                if call is not None and call.kind == "call" and call.parts[0] is load:
                    yield from self.climb(call, ())
                else:
                    yield from self.climb(load, ())
        if any(self.product.is_product(base) for base in holder.parts if base.kind != "function"):
            yield PRODUCT

    def _calls(self, name: Name, path: Path, *, given: bool) -> Iterator[State]:
        for load in name.loads:
            call = load.above
            if call is not None and call.kind == "call" and call.parts[0] is load:
                yield from self.climb(call, path)
            elif given:
                yield from self.climb(load, ())


def decides(node: Node) -> bool:
    """Whether code that the product may be given looks at what it gets."""
    return any(part.kind in ("compare", "test", "index", "mention") or part.name == "either" for part in node.walk())
