"""JSON Schema as annotations of Python: what a method takes, and what it returns."""

from __future__ import annotations

from scripts.client.description import Description, Schema, target

PLAIN = {"integer": "int", "number": "float", "boolean": "bool", "null": "None"}
TEXT = {"date-time": "datetime", "date": "date", "binary": "Upload"}
LAST = "Json None"
"""Where these stand in a union; models and plain types before them."""


class Annotations:
    """Of one description."""

    def __init__(self, description: Description) -> None:
        self._description = description

    def taken(self, schema: Schema) -> str:
        """Of an argument. An object is its model, or the same as plain JSON."""
        return self._of(schema, sent=True)

    def returned(self, schema: Schema) -> str:
        return self._of(schema, sent=False)

    def _of(self, schema: Schema, *, sent: bool) -> str:
        schema = self._description.choices(schema)
        if name := target(schema):
            return f"models.{name} | Json" if sent else f"models.{name}"
        if members := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            kinds = [kind for member in members for kind in self._of(member, sent=sent).split(" | ")]
            return " | ".join(sorted(dict.fromkeys(kinds), key=LAST.find))
        if "enum" in schema or "const" in schema:
            return f"Literal[{', '.join(map(repr, schema.get('enum', [schema.get('const')])))}]"
        match schema.get("type"):
            case "string":
                return TEXT.get(schema.get("format", ""), "str")
            case "array":
                inner = self._of(schema.get("items", {}), sent=sent)
                return f"Sequence[{inner}]" if sent else f"builtins.list[{inner}]"
            case "object":
                values = schema.get("additionalProperties")
                held = self._of(values, sent=sent) if isinstance(values, dict) else "Any"
                return ("Json" if held == "Any" else f"Mapping[str, {held}]") if sent else f"dict[str, {held}]"
            case kind:
                return PLAIN.get(str(kind), "Any")
