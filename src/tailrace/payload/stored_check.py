"""The check of a JSON value against a stored type, without its class.

msgspec checks the fields and their types in about a microsecond. Constraints and validators of the
class are not checked: they are not stored. What msgspec cannot express, such as a union of several
objects without a tag or a type that contains itself, is not checked below that place.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from operator import or_
from typing import Any, Final, Literal

import msgspec

from tailrace.payload.value_type import ValueType, node_text, resolved

DIFFERENCES_MAX: Final = 5
"""Number of differences that an error lists."""

_SCALARS: Final[dict[tuple[str | None, str | None], Any]] = {
    ("null", None): None,
    ("boolean", None): bool,
    ("integer", None): int,
    ("number", None): float,
    ("string", None): str,
    ("string", "base64"): bytes,
    ("string", "date-time"): datetime.datetime,
    ("string", "date"): datetime.date,
    ("string", "time"): datetime.time,
    ("string", "duration"): datetime.timedelta,
    ("string", "uuid"): uuid.UUID,
    ("string", "decimal"): decimal.Decimal,
    ("array", None): list,
    ("object", None): dict,
}


def checker(kind: ValueType) -> Callable[[bytes], object]:
    """Return a function that raises `msgspec.MsgspecError` for JSON that is not of a type."""
    return msgspec.json.Decoder(_Built(kind.schema).type_of(kind.schema)).decode


def value_differences(kind: ValueType, data: bytes, reason: str) -> str:
    """Return how JSON differs from a type, in words; `reason` if no field explains it."""
    found = list(_found(kind.schema, kind.schema, msgspec.json.decode(data), ""))
    more = len(found) - DIFFERENCES_MAX
    listed = found[:DIFFERENCES_MAX] + ([f"{more:,} more"] if more > 0 else [])
    return "; ".join(listed) or reason


class _Built:
    """Builds types for msgspec from a schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._building: set[str] = set()

    def type_of(self, node: Mapping[str, Any]) -> Any:
        """Return the type of a node; `Any` if msgspec cannot express it."""
        name = node.get("$ref")
        if name is None:
            return self._supported(self._type(node))
        return self._defined(name, self._type)

    def _defined(self, name: str, build: Callable[[Mapping[str, Any]], Any]) -> Any:
        """Return the type of a definition; `Any` inside itself."""
        if name in self._building:
            return Any
        self._building.add(name)
        try:
            return self._supported(build(resolved(self._schema, {"$ref": name})))
        finally:
            self._building.discard(name)

    def _supported(self, kind: Any) -> Any:
        try:
            msgspec.json.Decoder(kind)
        except (TypeError, ValueError):
            return Any
        return kind

    def _type(self, node: Mapping[str, Any]) -> Any:
        if "enum" in node:
            return Literal[tuple(node["enum"])]
        if "anyOf" in node:
            return self._union(node)
        if "prefixItems" in node:
            items = tuple(map(self.type_of, node["prefixItems"]))
            whole: Any = tuple[items]  # type: ignore[valid-type]
            return whole if node.get("maxItems") == len(items) else list
        if "items" in node:
            return list[self.type_of(node["items"])]  # type: ignore[misc]
        if "properties" in node:
            return self._object(node)
        extra = node.get("additionalProperties")
        if isinstance(extra, Mapping):
            return dict[str, self.type_of(extra)]  # type: ignore[misc]
        kind = node.get("type"), node.get("format") or node.get("contentEncoding")
        return _SCALARS.get(kind, _SCALARS.get((kind[0], None), Any))

    def _union(self, node: Mapping[str, Any]) -> Any:
        tags = node.get("discriminator")
        if tags is not None and len(tags.get("mapping", ())) == len(node["anyOf"]):
            field = tags["propertyName"]
            variants = [
                self._defined(ref, partial(self._object, tag_field=field, tag=tag))
                for tag, ref in tags["mapping"].items()
            ]
        else:
            variants = [self.type_of(each) for each in node["anyOf"]]
        return Any if Any in variants else reduce(or_, variants)

    def _object(
        self, node: Mapping[str, Any], tag_field: str | None = None, tag: str | None = None
    ) -> Any:
        """Return a struct with the fields of an object, under names that are always valid."""
        fields: list[Any] = []
        names: dict[str, str] = {}
        for name, each in node["properties"].items():
            if name == tag_field:
                continue
            attribute = f"f{len(names)}"
            names[attribute] = name
            kind = self.type_of(each)
            required = name in node["required"]
            fields.append((attribute, kind) if required else (attribute, kind, None))
        return msgspec.defstruct(
            "Stored",
            fields,
            rename=names,
            kw_only=True,
            tag_field=tag_field,
            tag=tag,
            forbid_unknown_fields="additionalProperties" not in node,
        )


def _found(
    schema: Mapping[str, Any], node: Mapping[str, Any], value: Any, path: str
) -> Iterator[str]:
    """Yield the differences between a value and a node."""
    node = resolved(schema, node)
    if "anyOf" in node:
        if isinstance(value, dict):
            objects = [n for n in node["anyOf"] if "properties" in resolved(schema, n)]
            if len(objects) == 1:
                yield from _found(schema, objects[0], value, path)
        elif not any(_is_of(schema, each, value) for each in node["anyOf"]):
            yield _other(schema, node, value, path)
    elif not _is_of(schema, node, value):
        yield _other(schema, node, value, path)
    elif "properties" in node:
        for name in node["required"]:
            if name not in value:
                yield f"field {_at(path, name)!r} is missing"
        for name, each in value.items():
            if name in node["properties"]:
                yield from _found(schema, node["properties"][name], each, _at(path, name))
            elif "additionalProperties" not in node:
                yield f"field {_at(path, name)!r} is added"
    elif isinstance(value, list) and "items" in node:
        for index, each in enumerate(value):
            yield from _found(schema, node["items"], each, f"{path}[{index}]")


def _is_of(schema: Mapping[str, Any], node: Mapping[str, Any], value: Any) -> bool:
    """True if a value has the kind of JSON that a node asks for."""
    node = resolved(schema, node)
    if "enum" in node:
        return value in node["enum"]
    kinds = {
        "null": type(None), "boolean": bool, "integer": int, "number": (int, float),
        "string": str, "array": list, "object": dict,
    }  # fmt: skip
    wanted = node.get("type")
    if wanted is None:
        return True
    if isinstance(value, bool):
        return bool(wanted == "boolean")
    return isinstance(value, kinds[wanted])  # type: ignore[arg-type]


def _other(schema: Mapping[str, Any], node: Mapping[str, Any], value: Any, path: str) -> str:
    found = repr(value) if "enum" in node else _JSON_NAMES.get(type(value), "None")
    wanted = node_text(schema, node)
    return f"field {path!r} is {found}, not {wanted}" if path else f"it is {found}, not {wanted}"


_JSON_NAMES: Final = {
    bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "dict",
}  # fmt: skip


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
