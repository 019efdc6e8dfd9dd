"""What of a test is the product: which calls it gets, which objects are its own, and what it may have computed."""

from __future__ import annotations

from sandbox.grading.observations.literals.nodes import Node
from sandbox.grading.observations.literals.program import Name, Program, bare, call_name, names_in

MAX_DEPTH = 24
COMPARING = (
    "assert", "check", "verify", "expect", "compare", "ensure", "equal", "isequal", "same", "match", "should",
    "is_equal", "deepequal", "eq", "cmp", "diff",
)  # fmt: skip

FLUENT = frozenset({"add", "set", "use", "on", "once", "register", "append", "push", "insert"})
"""Methods of an object of the product that give the object itself."""


class Product:
    """Of one program."""

    def __init__(self, program: Program) -> None:
        self.program, self.grammar = program, program.grammar
        self._own: dict[int, bool] = {}

    def takes(self, call: Node) -> bool:
        """Whether a call hands its arguments to the product."""
        callee, name = bare(call.parts[0]), call_name(call)
        if name.lower().startswith(COMPARING) and any(map(self.is_computed, self._operands(call))):
            return False
        if callee.kind != "member":
            return self._is_callable(callee)
        holder = callee.parts[0]
        if self.is_product(holder):
            return True
        return name not in self.grammar.plain and self.is_computed(holder)

    def _is_callable(self, callee: Node) -> bool:
        """Whether a function or class of the product is called, or a function that it has made."""
        if callee.kind == "call":
            return self.takes(callee)
        found = self.program.resolve(callee)
        if found is None or found.origin is not None:
            return self.is_product(callee) or (found is not None and found.origin is not None and found.origin.product)
        made = [bare(source) for source in found.sources]
        if found.code is None and made and all(one.kind == "call" and self.takes(one) for one in made):
            return True
        return self.is_product(callee)

    def takes_code(self, call: Node) -> bool:
        """Whether a call that is not known is given code of the product to call, or starts a program of it."""
        name = call_name(call)
        if name.lower().startswith(COMPARING) or (name in self.grammar.plain and name not in self.grammar.steps):
            return False
        return any(map(self._is_code, call.parts[1:])) or self.grammar.runs_product(call)

    def _operands(self, call: Node) -> list[Node]:
        callee = bare(call.parts[0])
        holder = [callee.parts[0]] if callee.kind == "member" and not self._is_module(callee.parts[0]) else []
        return [*holder, *call.parts[1:]]

    def _is_module(self, node: Node) -> bool:
        found = self.program.resolve(bare(node))
        origin = found.origin if found is not None else None
        return origin is not None and not origin.member

    def _is_code(self, node: Node) -> bool:
        node = bare(node)
        if node.kind == "member" and self.program.field(node) is None:
            return self._is_module(node.parts[0]) and self._is_code(node.parts[0])
        found = self.program.resolve(node)
        if node.kind == "name" and found is None:
            return self.grammar.is_product(node.name, self.program.file(node))
        return found is not None and found.origin is not None and found.origin.product and not found.name.isupper()

    def is_product(self, node: Node, depth: int = 0) -> bool:
        """Whether an expression is a module, type or function of the product, or an object made of such a type."""
        node = bare(node)
        if depth > MAX_DEPTH:
            return False
        match node.kind:
            case "name":
                found = self.program.resolve(node)
                if found is None:
                    return self.grammar.is_product(node.name, self.program.file(node))
                if found.origin is not None:
                    return found.origin.product and not (found.origin.member and found.origin.member.isupper())
                return self._are_product(found, depth)
            case "member":
                own = self.program.field(node)
                if own is not None and self._are_product(own, depth):
                    return True
                return self.is_product(node.parts[0], depth + 1) and (
                    self._is_module(node.parts[0])
                    or bare(node.parts[0]).name[:1].isupper()
                    or node.name not in self.grammar.plain
                )
            case "list" | "same":
                values = [part for part in node.parts if part.kind != "test"]
                return bool(values) and all(self.is_product(part, depth + 1) for part in values)
            case "call":
                callee = bare(node.parts[0])
                if callee.kind == "member" and callee.name in FLUENT and self.is_product(callee.parts[0], depth + 1):
                    return True
                return self.grammar.is_constructor(node) and self._is_callable(callee)
            case "record":
                return self.is_product(node.parts[0], depth + 1)
        return False

    def _are_product(self, found: Name, depth: int) -> bool:
        if found.code is not None:
            return False
        return bool(found.sources) and all(self.is_product(source, depth + 1) for source in found.sources)

    def is_mention(self, node: Node) -> bool:
        """Whether a constant, type or variant of the product is named."""
        node = bare(node)
        if node.kind == "member" and self.program.field(node) is None:
            root = bare(node.parts[0])
            while root.kind == "member":
                root = bare(root.parts[0])
            found = self.program.resolve(root)
            origin = found.origin if found is not None else None
            if found is None:
                return root.kind == "name" and self.grammar.is_product(root.name, self.program.file(root))
            return origin is not None and origin.product
        if node.kind != "name":
            return False
        found = self.program.resolve(node)
        if found is None:
            return self.grammar.is_product(node.name, self.program.file(node))
        return found.origin is not None and found.origin.product

    # --- what the product computes --------------------------------------------------------------------------------------

    def is_computed(self, node: Node) -> bool:
        """Whether the product may have a part in an expression's value. What is not known may be of the product."""
        return not self.is_own(node)

    def is_own(self, node: Node) -> bool:
        if id(node) not in self._own:
            self._own[id(node)] = self._is_own(node, 0, set())
        return self._own[id(node)]

    def _is_own(self, node: Node, depth: int, seen: set[int]) -> bool:
        if depth > MAX_DEPTH:
            return False
        for part in node.walk():
            found = None
            if part.kind == "unknown":
                return False
            if part.kind == "name" and part.name in ("this", "self"):
                if part.above is None or part.above.kind != "member" or (own := self.program.field(part.above)) is None:
                    return False
                if not own.sources and own.code is None:
                    return False
            elif part.kind == "name":
                found = self.program.resolve(part)
                if found is None and not self.grammar.is_library(part.name, self.program.file(part)):
                    return False
            elif part.kind == "member":
                found = self.program.field(part)
            if found is not None and id(found) not in seen:
                seen.add(id(found))
                if not self._is_own_name(found, depth + 1, seen):
                    return False
        return True

    def _is_own_name(self, found: Name, depth: int, seen: set[int]) -> bool:
        if found.origin is not None:
            return not found.origin.product and not found.origin.helper
        if not all(self._is_own(one, depth, seen) for one in found.fills):
            return False
        if found.code is not None:
            return self._is_own(found.code, depth, seen)
        if found.owner is not None:
            return self._is_given_own(found.owner, depth, seen)
        return all(self._is_own(source, depth, seen) for source in found.sources)

    def _is_given_own(self, function: Node, depth: int, seen: set[int]) -> bool:
        """Whether every call of a function of the tests gives it values of their own."""
        if function.name:
            found = next(iter(self.program.names_of(function)), None)
            loads = found.loads if found is not None else []
            calls = [load.above for load in loads]
            if not calls or any(
                call is None or call.kind != "call" or bare(call.parts[0]) not in loads for call in calls
            ):
                return self._is_test(function)
            return all(self._is_own(one, depth, seen) for call in calls if call is not None for one in call.parts[1:])
        call = function.above
        while call is not None and call.kind == "same":
            call = call.above
        if call is None or call.kind != "call":
            return False
        if self.grammar.is_title(call):
            return True
        callee = bare(call.parts[0])
        if callee.kind != "member" or self.program.callee(call) is not None or self.takes(call):
            return False
        others = [one for one in call.parts[1:] if bare(one) is not function]
        return callee.kind == "member" and all(self._is_own(one, depth, seen) for one in (callee.parts[0], *others))

    def _is_test(self, function: Node) -> bool:
        """Whether a runner alone calls a function: `func TestIt(t *testing.T)`."""
        names = [one.name for parameter in function.parameters() for one in names_in(parameter)]
        return function.name.startswith("Test") and len(names) == 1
