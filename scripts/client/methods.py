"""`oc/api/`: a method for each operation, a class for each noun."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import indent

from scripts.client.annotations import Annotations
from scripts.client.answers import HEAD, ROOT, tidy
from scripts.client.description import Description, Operation, Parameter

TARGET = ROOT / "oc" / "api"
IMPORTS = {
    "collections.abc": ("Iterator", "Mapping", "Sequence"),
    "datetime": ("date", "datetime"),
    "typing": ("Any", "Literal"),
    "oc.transport": ("OMIT", "Json", "Noun", "Omit", "Sink", "Upload", "given", "part"),
}
PAGING = ("limit", "before")


def write(description: Description) -> None:
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()
    for name, text in rendered(description).items():
        (TARGET / name).write_text(text)


def rendered(description: Description) -> dict[str, str]:
    """File name → its text, in the house's own form."""
    nouns: dict[str, list[Operation]] = defaultdict(list)
    for operation in description.operations:
        nouns[operation.noun].append(operation)
    annotations = Annotations(description)
    with tempfile.TemporaryDirectory(dir=ROOT / "oc", prefix=".made") as scratch:  # the house's settings hold there
        folder = Path(scratch)
        (folder / "__init__.py").write_text(_index(nouns))
        for noun, operations in nouns.items():
            (folder / f"{noun}.py").write_text(_module(noun, operations, annotations))
        tidy(folder)
        return {file.name: file.read_text() for file in sorted(folder.glob("*.py"))}


def _index(nouns: Iterable[str]) -> str:
    imports = "".join(f"from oc.api.{noun} import {noun.capitalize()}\n" for noun in nouns)
    made = "".join(f"        self.{noun} = {noun.capitalize()}(transport)\n" for noun in nouns)
    return f'''{HEAD}from __future__ import annotations

{imports}from oc.transport import Transport


class Api:
    """Every operation of the API, by noun and verb."""

    def __init__(self, transport: Transport) -> None:
{made}'''


def _module(noun: str, operations: list[Operation], annotations: Annotations) -> str:
    methods = "\n".join(indent(_method(one, annotations), "    ") for one in operations)
    words = {*re.findall(r"\w+", methods), "Noun"}
    used = {module: [name for name in names if name in words] for module, names in IMPORTS.items()}
    imports = "".join(f"from {module} import {', '.join(names)}\n" for module, names in used.items() if names)
    builtins = "import builtins\n" if "builtins." in methods else ""
    models = "from oc import models\n" if "models." in methods else ""
    head = f"{HEAD}from __future__ import annotations\n\n{builtins}{imports}{models}"
    return f'{head}\n\nclass {noun.capitalize()}(Noun):\n    """`client.{noun}`"""\n\n{methods}'


def _method(operation: Operation, annotations: Annotations) -> str:
    path = re.sub(r"{(\w+)}", r"{part(\1)}", operation.path)
    address = f'f"{path}"' if "{" in path else f'"{path}"'
    returned, call = _call(operation, address, annotations)
    words = operation.words.replace("\\", "\\\\")
    more = "\n" if "\n" in words else ""
    lines = [f"def {operation.verb}({', '.join(['self', *_arguments(operation, annotations)])}) -> {returned}:"]
    lines += [indent(f'"""{words}{more}"""', "    "), *indent(call, "    ").splitlines(), ""]
    return "\n".join(lines)


def _arguments(operation: Operation, annotations: Annotations) -> Iterator[str]:
    """The path's parts and what goes in whole by their place, everything else by its name, what must be said first."""
    for one in _of(operation, "path"):
        yield f"{one.name}: {annotations.taken(one.schema)}"
    if operation.body is not None:
        yield f"body: {annotations.taken(operation.body)}"
    if operation.file:
        yield "to: Sink"
    named = [one for one in operation.parameters if one.place != "path"]
    if named:
        yield "*"
    for one in sorted(named, key=lambda one: not one.required):
        kind = annotations.taken(one.schema)
        if one.required:
            yield f"{one.name}: {kind}"
        elif one.place == "body":
            yield f"{one.name}: Omit | {kind} = OMIT"
        else:
            yield f"{one.name}: {kind if kind.endswith('| None') else f'{kind} | None'} = None"


def _call(operation: Operation, address: str, annotations: Annotations) -> tuple[str, str]:
    """What the method returns, and its body."""
    extra = [f"query={{{_pairs(query)}}}"] if (query := list(_asked(operation))) else []
    if operation.file:
        return "None", f"self._api.fetch({', '.join([address, 'to', *extra])})"
    if item := operation.item:
        extra = extra or ["query={}"]
        call = ", ".join([f"models.{item}", address, *extra, "limit=limit", "before=before"])
        return f"Iterator[models.{item}]", f"return self._api.pages({call})"
    files = [one for one in _of(operation, "body") if one.schema.get("format") == "binary"]
    fields = [one for one in _of(operation, "body") if one not in files]
    if operation.body is not None:
        extra.append("body=body")
    elif fields:
        extra.append(f"body=given({', '.join(f'{one.name}={one.name}' for one in fields)})")
    if files:
        extra.append(f"files={{{_pairs(files)}}}")
    asked = [f'"{operation.method}"', address, *extra]
    if operation.answer is None:
        return "None", f"self._api.send({', '.join(asked)})"
    kind = annotations.returned(operation.answer)
    if kind.endswith(" | None"):
        return kind, f"return self._api.ask_if({', '.join([kind.removesuffix(' | None'), *asked])})"
    return kind, f"return self._api.ask({', '.join([kind, *asked])})"


def _of(operation: Operation, place: str) -> list[Parameter]:
    return [one for one in operation.parameters if one.place == place]


def _asked(operation: Operation) -> Iterator[Parameter]:
    return (one for one in _of(operation, "query") if not (operation.item and one.name in PAGING))


def _pairs(parameters: Iterable[Parameter]) -> str:
    return ", ".join(f'"{one.name}": {one.name}' for one in parameters)
