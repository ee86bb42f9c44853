"""The type of a topic's values as it is stored: a name, and the fields as a JSON schema.

The schema is what another process needs to compare types and to check values without the class. It
has the fields, their types and which of them have a default; it has no constraints, no default
values and no documentation. Classes of all kinds that encode to the same JSON have the same schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

SCALARS: Final[dict[type[inspect.Type], dict[str, Any]]] = {
    inspect.NoneType: {"type": "null"},
    inspect.BoolType: {"type": "boolean"},
    inspect.IntType: {"type": "integer"},
    inspect.FloatType: {"type": "number"},
    inspect.StrType: {"type": "string"},
    inspect.BytesType: {"type": "string", "contentEncoding": "base64"},
    inspect.ByteArrayType: {"type": "string", "contentEncoding": "base64"},
    inspect.MemoryViewType: {"type": "string", "contentEncoding": "base64"},
    inspect.DateTimeType: {"type": "string", "format": "date-time"},
    inspect.DateType: {"type": "string", "format": "date"},
    inspect.TimeType: {"type": "string", "format": "time"},
    inspect.TimeDeltaType: {"type": "string", "format": "duration"},
    inspect.UUIDType: {"type": "string", "format": "uuid"},
    inspect.DecimalType: {"type": "string", "format": "decimal"},
}
"""The schemas of types without parts."""

_DEFINITIONS: Final = "#/$defs/"
_KEPT: Final = (
    "$ref", "type", "format", "contentEncoding", "enum", "required", "minItems", "maxItems",
    "discriminator",
)  # fmt: skip
_PARTS: Final = ("items", "additionalProperties")


class ValueType(msgspec.Struct, frozen=True):
    """The name of a type, and its schema: an object of JSON Schema that refers to nothing else."""

    name: str
    schema: dict[str, Any]

    @classmethod
    def of(cls, kind: Any) -> ValueType | None:
        """Return the stored form of a type.

        None for no type, and for a type whose schema cannot be made: such a type is not checked.
        """
        if kind is None or kind is Any or kind is object:
            return None
        try:
            return _value_type(kind)
        except TypeError:  # not hashable, as an annotation with a list in it
            return _value_type.__wrapped__(kind)

    @property
    def node(self) -> Mapping[str, Any]:
        """The root of the schema, after references."""
        return resolved(self.schema, self.schema)

    @property
    def text(self) -> str:
        """The type in one line: ``Order(id: int, note?: str)``, with a ? at fields with a
        default."""
        node = self.node
        if "properties" not in node:
            return self.name
        return f"{self.name}({fields_text(self.schema, node)})"


def resolved(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a node of a schema, or the definition that it refers to."""
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].removeprefix(_DEFINITIONS)]
    return node


def node_text(schema: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """Return the type of a node in the words of Python."""
    if "$ref" in node and "properties" in resolved(schema, node):
        return str(node["$ref"]).removeprefix(_DEFINITIONS)
    node = resolved(schema, node)
    if "enum" in node:
        return " | ".join(map(repr, node["enum"]))
    if "anyOf" in node:
        return " | ".join(node_text(schema, each) for each in node["anyOf"])
    if "prefixItems" in node:
        items = ", ".join(node_text(schema, each) for each in node["prefixItems"])
        return f"tuple[{items}]"
    if "items" in node:
        return f"list[{node_text(schema, node['items'])}]"
    if "properties" in node:
        return f"({fields_text(schema, node)})"
    if isinstance(node.get("additionalProperties"), dict):
        return f"dict[str, {node_text(schema, node['additionalProperties'])}]"
    return _NAMES.get((node.get("type"), node.get("format") or node.get("contentEncoding")), "Any")


def fields_text(schema: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """Return the fields of an object in one line."""
    required = node.get("required", ())
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {node_text(schema, each)}"
        for name, each in node["properties"].items()
    )


_NAMES: Final[dict[tuple[str | None, str | None], str]] = {
    ("null", None): "None",
    ("boolean", None): "bool",
    ("integer", None): "int",
    ("number", None): "float",
    ("string", None): "str",
    ("string", "base64"): "bytes",
    ("string", "binary"): "bytes",
    ("string", "date-time"): "datetime",
    ("string", "date"): "date",
    ("string", "time"): "time",
    ("string", "duration"): "timedelta",
    ("string", "uuid"): "UUID",
    ("string", "decimal"): "Decimal",
    ("array", None): "list",
    ("object", None): "dict",
}


@lru_cache(maxsize=256)
def _value_type(kind: Any) -> ValueType | None:
    name = kind.__name__ if isinstance(kind, type) else repr(kind).replace("typing.", "")
    if kind is bytes:
        return ValueType(name, {"type": "string", "format": "binary"})
    try:
        if hasattr(kind, "model_json_schema"):
            by_alias = bool(kind.model_config.get("serialize_by_alias"))
            return ValueType(name, _with_definitions(kind.model_json_schema(by_alias=by_alias)))
        return ValueType(name, _Described().schema(inspect.type_info(kind)))
    except Exception:  # Of any kind, because models run code of their own.
        return None


class _Described:
    """Describes a type that msgspec knows. Classes become definitions, so that they may recur."""

    def __init__(self) -> None:
        self._definitions: dict[str, Any] = {}
        self._names: dict[type, str] = {}

    def schema(self, info: inspect.Type) -> dict[str, Any]:
        node = self._node(info)
        return {**node, "$defs": self._definitions} if self._definitions else node

    def _node(self, info: inspect.Type) -> dict[str, Any]:
        if type(info) in SCALARS:
            return SCALARS[type(info)]
        match info:
            case inspect.Metadata(type=inner):
                return self._node(inner)
            case inspect.LiteralType(values=values):
                return {"enum": list(values)}
            case inspect.EnumType(cls=cls):
                return {"enum": [member.value for member in cls]}
            case inspect.UnionType(types=types):
                return {"anyOf": [self._node(each) for each in types], **self._tags(types)}
            case inspect.TupleType(item_types=types):
                items = [self._node(each) for each in types]
                count = len(items)
                return {
                    "type": "array", "prefixItems": items, "minItems": count, "maxItems": count
                }  # fmt: skip
            case inspect.CollectionType(item_type=item):
                return {"type": "array", **self._part("items", item)}
            case inspect.DictType(value_type=value):
                return {"type": "object", **self._part("additionalProperties", value)}
            case (
                inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType()
                | inspect.NamedTupleType()
            ):  # fmt: skip
                return {"$ref": _DEFINITIONS + self._defined(info)}
        return {}

    def _part(self, name: str, info: inspect.Type) -> dict[str, Any]:
        node = self._node(info)
        return {name: node} if node else {}

    def _defined(self, info: Any) -> str:
        """Return the name of a class's definition, which is made at its first use."""
        if info.cls in self._names:
            return self._names[info.cls]
        name: str = info.cls.__name__
        while name in self._definitions:
            name += "_"
        self._names[info.cls] = name
        self._definitions[name] = {}
        self._definitions[name] = self._fields(info)
        return name

    def _fields(self, info: Any) -> dict[str, Any]:
        fields = info.fields
        if isinstance(info, inspect.TypedDictType):  # msgspec sorts these by name
            order = {name: index for index, name in enumerate(info.cls.__annotations__)}
            fields = sorted(fields, key=lambda each: order.get(each.name, len(order)))
        nodes = {each.encode_name: self._node(each.type) for each in fields}
        required = [each.encode_name for each in fields if each.required]
        if isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False):
            return {
                "type": "array", "prefixItems": list(nodes.values()), "minItems": len(required)
            }  # fmt: skip
        if getattr(info, "tag_field", None) is not None:
            nodes = {info.tag_field: {"enum": [info.tag]}, **nodes}
            required = [info.tag_field, *required]
        return {"type": "object", "properties": nodes, "required": required}

    def _tags(self, types: tuple[inspect.Type, ...]) -> dict[str, Any]:
        tagged: list[Any] = [each for each in types if getattr(each, "tag_field", None) is not None]
        if not tagged:
            return {}
        mapping = {str(each.tag): _DEFINITIONS + self._defined(each) for each in tagged}
        return {"discriminator": {"propertyName": tagged[0].tag_field, "mapping": mapping}}


def _with_definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a pydantic model without constraints and documentation."""
    definitions = schema.get("$defs", {})
    kept = {name: _kept(each) for name, each in definitions.items()}
    return {**_kept(schema), "$defs": kept} if kept else _kept(schema)


def _kept(node: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: node[name] for name in _KEPT if name in node}
    if "const" in node:
        found["enum"] = [node["const"]]
    variants = node.get("anyOf") or node.get("oneOf")
    if variants:
        found["anyOf"] = [_kept(each) for each in variants]
    for name in _PARTS:
        if isinstance(node.get(name), Mapping):
            found[name] = _kept(node[name])
    if node.get("additionalProperties") is True:
        found["additionalProperties"] = True
    if "prefixItems" in node:
        found["prefixItems"] = [_kept(each) for each in node["prefixItems"]]
    if "properties" in node:
        found["properties"] = {name: _kept(each) for name, each in node["properties"].items()}
        found.setdefault("required", [])
    return found
