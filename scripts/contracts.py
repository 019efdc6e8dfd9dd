"""Contracts of the import linter that it does not bring itself (pyproject.toml, `[tool.importlinter]`)."""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class FolderLayers(Contract):
    """Folders in layers, the highest first: a folder imports only from lower layers, never from its own.

    A folder is the modules right in it. Its sub-packages are folders of their own, so that an app may have its pages
    above other apps and its models below them. Every folder must stand in a layer, `apart` excepted: the last parts
    of names of folders that nobody imports (`migrations`).
    """

    type_name = "folder_layers"

    root = fields.StringField()
    layers = fields.ListField(subfield=fields.StringField())
    apart = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        root, apart = str(self.root), set(self.apart)  # type: ignore[call-overload]
        layers: list[str] = list(self.layers)  # type: ignore[call-overload]
        depth = {f"{root}.{name}".rstrip("."): n for n, line in enumerate(layers) for name in line.split()}
        depth |= {root: -1}  # the files right in the root put everything together
        modules = sorted(name for name in graph.modules if name == root or name.startswith(f"{root}."))
        wrong: list[str] = []
        for module in modules:
            here = self._folder(graph, module)
            if here.rpartition(".")[2] in apart:
                continue
            if here not in depth:
                wrong.append(f"{here} stands in no layer")
                continue
            for other in sorted(graph.find_modules_directly_imported_by(module)):
                if not other.startswith(f"{root}.") or (there := self._folder(graph, other)) == here:
                    continue
                if there.rpartition(".")[2] in apart:
                    wrong.append(f"{module} imports {other}, which nobody may import")
                elif there in depth and depth[there] <= depth[here]:
                    wrong.append(f"{module} imports {other}: {there} is not below {here}")
        return ContractCheck(kept=not wrong, metadata={"wrong": sorted(set(wrong))})

    @staticmethod
    def _folder(graph: ImportGraph, module: str) -> str:
        return module if graph.find_children(module) else module.rpartition(".")[0]

    def render_broken_contract(self, check: ContractCheck) -> None:
        wrong: list[Any] = check.metadata["wrong"]
        for line in wrong:
            output.print_error(line)
