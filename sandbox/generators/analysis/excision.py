"""Remove definitions, imports and `__all__` entries from a Python file by position; the rest of its text stays unchanged."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence

from sandbox.generators.analysis.package import Definition, reads_of


class Excision:
    """Cuts in one text, made all at once."""

    def __init__(self, text: str) -> None:
        """Raises SyntaxError."""
        self.tree = ast.parse(text)
        self._data = text.encode()
        self._lines = [0]
        for line in self._data.split(b"\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self._cuts: list[tuple[int, int, bytes]] = []

    def text(self) -> str:
        data, done = self._data, len(self._data)
        for start, end, new in sorted(set(self._cuts), reverse=True):
            if end <= done:  # what lies inside another cut is gone with it
                data = data[:start] + new + data[end:]
                done = start
        return data.decode()

    def statements(self, doomed: Callable[[ast.stmt], bool]) -> None:
        """Take out the statements for which `doomed` holds, with their decorators; an emptied block keeps a `pass`."""
        for holder in ast.walk(self.tree):
            for name in ("body", "orelse", "finalbody"):
                body = getattr(holder, name, None)
                gone = [node for node in body if doomed(node)] if isinstance(body, list) else []
                for node in gone:
                    self._whole(node, keeps=not isinstance(holder, ast.Module) and len(gone) == len(body or ()))

    def _whole(self, node: ast.stmt, *, keeps: bool) -> None:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        assert node.end_lineno is not None
        # Comments right above a definition speak of it.
        while isinstance(node, Definition) and first > 1 and self._line(first - 1).lstrip().startswith(b"#"):
            first -= 1
        start, end = self._lines[first - 1], min(self._lines[node.end_lineno], len(self._data))
        before = self._data[self._lines[node.lineno - 1] :][: node.col_offset]
        after = self._data[self._lines[node.end_lineno - 1] + (node.end_col_offset or 0) : end].strip()
        if before.strip() or (after and not after.startswith(b"#")):
            raise SyntaxError(f"line {node.lineno} holds several statements")
        self._cuts.append((start, end, b" " * node.col_offset + b"pass\n" if keeps else b""))

    def _line(self, number: int) -> bytes:
        return self._data[self._lines[number - 1] : self._lines[number]]

    def items(self, items: Sequence[ast.expr] | Sequence[ast.alias], gone: Collection[int]) -> None:
        """Take some of the items of a list out of it, by their numbers, with their commas; not all of them."""
        kept = [at for at in range(len(items)) if at not in gone]
        for at in gone:
            following = next((k for k in kept if k > at), None)
            if following is not None:
                self._cuts.append((self._start(items[at]), self._start(items[at + 1]), b""))
            else:
                self._cuts.append((self._end(items[at - 1]), self._end(items[at]), b""))

    def emptied(self, node: ast.List | ast.Tuple) -> None:
        new = b"[]" if isinstance(node, ast.List) else b"()"
        self._cuts.append((self._start(node), self._end(node), new))

    def _start(self, node: ast.expr | ast.alias) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.alias) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset


def without(text: str, defined: Collection[str], imports: Collection[str]) -> str:
    """A module without the definitions of these qualified names, imports of `imports` and their entries in `__all__`.

    Raises SyntaxError, also where a statement shares its line with another.
    """
    cut = Excision(text)
    named = dict(qualified(cut.tree.body))
    doomed = {id(named[name]) for name in defined if name in named}
    for node in ast.walk(cut.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            gone = {at for at, alias in enumerate(node.names) if _imports(node, alias) in imports}
            if len(gone) == len(node.names):
                doomed.add(id(node))
            else:
                cut.items(node.names, gone)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and _is_all(node):
            for held in ast.walk(node):
                if isinstance(held, ast.List | ast.Tuple):
                    gone = {at for at, e in enumerate(held.elts) if isinstance(e, ast.Constant) and e.value in imports}
                    if gone and len(gone) == len(held.elts):
                        cut.emptied(held)
                    else:
                        cut.items(held.elts, gone)
    cut.statements(lambda node: id(node) in doomed)
    return cut.text()


def _imports(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    return alias.name if isinstance(node, ast.ImportFrom) else alias.asname or alias.name.partition(".")[0]


def _is_all(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def qualified(body: Sequence[ast.stmt], inside: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """(qualified name, node) of definitions and of what classes define; the last of several of one name."""
    for node in body:
        if isinstance(node, Definition):
            yield f"{inside}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from qualified(node.body, f"{inside}{node.name}.")


def without_users(text: str, name: str) -> str:
    """A test file without imports of `name` and all that reads it: tests, helpers, and what reads those in turn.

    Raises SyntaxError.
    """
    cut = Excision(text)
    imported = [n for n in ast.walk(cut.tree) if isinstance(n, ast.ImportFrom)]
    gone = {name, *(a.asname for n in imported for a in n.names if a.name == name and a.asname)}
    doomed: set[int] = set()
    while True:
        found = [node for node in _parts(cut.tree.body) if id(node) not in doomed and _reads(node) & gone]
        if not found:
            break
        doomed |= {id(node) for node in found}
        top = [node for node in found if node in cut.tree.body]
        gone |= {bound for node in top for bound in _bound(node) if not bound.lower().startswith("test")}
    cut.statements(lambda node: id(node) in doomed)
    return without(cut.text(), (), {name})


def _parts(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """What can be taken out by itself: statements of the file's own level, and those of classes."""
    for node in body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _parts(node.body)


def _reads(node: ast.stmt) -> set[str]:
    """Names that a part reads; of a class only what stands outside its statements, as they are parts themselves."""
    nodes: Sequence[ast.AST] = [*node.bases, *node.decorator_list] if isinstance(node, ast.ClassDef) else [node]
    return {name for one in nodes for name, _ in reads_of(one)}


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, Definition):
        return {node.name}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
