"""What the API's OpenAPI description says, in the form that the two generators need."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Schema = dict[str, Any]
BASE = "/api/v1"
CONFIGURATION = "RunConfig"
"""Its tree is a module of its own: forms, sweeps and templates of runs share it."""


@dataclass(frozen=True)
class Parameter:
    name: str
    schema: Schema
    required: bool
    place: str
    """`path`, `query`, or `body` for a field of a form."""


@dataclass(frozen=True)
class Operation:
    noun: str
    verb: str
    method: str
    path: str
    words: str
    parameters: tuple[Parameter, ...]
    body: Schema | None
    """Of what goes in whole; forms are among the parameters."""
    answer: Schema | None
    file: bool

    @property
    def item(self) -> str | None:
        """What the pages of a list hold."""
        name = target(self.answer or {})
        return name.removeprefix("Page_").removesuffix("_") if name.startswith("Page_") else None


def target(schema: Schema) -> str:
    """The component that a schema is nothing but a reference to, or ''."""
    return str(schema.get("$ref", "")).rpartition("/")[2]


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield target(node)
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


class Description:
    """One document, read."""

    def __init__(self, document: Schema) -> None:
        self.document = document
        self.schemas: dict[str, Schema] = document["components"]["schemas"]

    @classmethod
    def of_the_api(cls) -> Description:
        from composer_web.api.root import api

        return cls(json.loads(json.dumps(api.get_openapi_schema())))

    def choices(self, schema: Schema) -> Schema:
        """A reference to a set of words is these words."""
        found = self.schemas.get(target(schema), {})
        return found if "enum" in found else schema

    @cached_property
    def answered(self) -> set[str]:
        """Every component that an answer holds."""
        held = [one["responses"] for operations in self.document["paths"].values() for one in operations.values()]
        return {reached for name in set(references(held)) for reached in self._reached(name)}

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        found = [
            self._operation(path, method, operation)
            for path, operations in self.document["paths"].items()
            for method, operation in operations.items()
        ]
        return tuple(sorted(found, key=lambda one: (one.noun, one.path, one.method)))

    @cached_property
    def models(self) -> dict[str, str]:
        """Every component that a method names, and what it refers to → the module that it is in: the noun that alone
        uses it, else one of those that are shared."""
        users: dict[str, set[str]] = defaultdict(set)
        for operation in self.operations:
            for name in self._named(operation):
                for reached in self._reached(name):
                    users[reached].add(operation.noun)
        tree = set(self._reached(CONFIGURATION))
        shared = {name for name, nouns in users.items() if len(nouns) > 1}
        return {
            name: "configuration" if name in tree & shared else "shared" if name in shared else next(iter(nouns))
            for name, nouns in sorted(users.items())
            if "enum" not in self.schemas[name]
        }

    def _operation(self, path: str, method: str, operation: Schema) -> Operation:
        noun, _, verb = operation["operationId"].partition(".")
        parameters = [
            Parameter(one["name"], one["schema"], one.get("required", False), one["in"])
            for one in operation.get("parameters", [])
        ]
        bodies: Schema = operation.get("requestBody", {}).get("content", {})
        kind = next(iter(bodies), "")
        whole: Schema | None = bodies[kind]["schema"] if kind else None
        if whole is not None and (form := self._form(whole)):
            required = form.get("required", ())
            parameters += [Parameter(name, one, name in required, "body") for name, one in form["properties"].items()]
            whole = None
        contents = next(one for status, one in operation["responses"].items() if status[0] == "2").get("content", {})
        return Operation(
            noun=noun,
            verb=verb,
            method=method.upper(),
            path=path.removeprefix(BASE),
            words="\n\n".join(operation[name].strip() for name in ("summary", "description") if operation.get(name)),
            parameters=tuple(parameters),
            body=whole,
            answer=next((one["schema"] for one in contents.values()), None),
            file=any(one["schema"].get("format") == "binary" for one in contents.values()),
        )

    def _form(self, schema: Schema) -> Schema | None:
        """What only requests hold is a form, whose fields are arguments. A thing that answers or other schemas hold as
        well (a configuration, rules) goes in as one."""
        name = target(schema)
        found = self.schemas[name] if name else schema
        return None if name in self._things or "properties" not in found else found

    @cached_property
    def _things(self) -> set[str]:
        return self.answered | {name for schema in self.schemas.values() for name in references(schema)}

    def _named(self, operation: Operation) -> Iterator[str]:
        yield from [operation.item] if operation.item else references(operation.answer)
        yield from references([operation.body, [one.schema for one in operation.parameters]])

    def _reached(self, name: str) -> Iterator[str]:
        found, wanted = set(), [name]
        while wanted:
            if (one := wanted.pop()) not in found:
                found.add(one)
                wanted += references(self.schemas[one])
        yield from found
