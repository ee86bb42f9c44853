"""Do two types agree? What differs, field by field.

Types agree if values of each decode as the other: fields that both have are of the same type, and a
field that only one has, has a default there. A general type, such as `dict`, agrees with every type
whose values it holds. `bytes` agrees with every stored type: it reads the payloads as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Final

from tailrace.payload.value_type import ValueType, node_text, resolved

_ANY: Final[dict[str, Any]] = {}
_OBJECT: Final = {"type": "object"}
_BYTES: Final = {"type": "string", "format": "binary"}
_OTHER_KIND: Final = "its values are of another kind"

_VARIANTS_MAX: Final = 6
"""Number of variants of a union up to which they are compared in every order."""


def is_open(kind: ValueType) -> bool:
    """True for a type that alone does not decide what may be pushed to a topic of another type."""
    return kind.node in (_ANY, _OBJECT, _BYTES)


def differences(stored: ValueType, offered: ValueType) -> list[str]:
    """Return how a type differs from the stored one, in words. Empty if they agree."""
    if offered.node == _BYTES or _holds(stored, offered) or _holds(offered, stored):
        return []
    comparison = _Comparison(stored.schema, offered.schema)
    return list(comparison.nodes("", stored.schema, offered.schema))


def extends(stored: ValueType, offered: ValueType) -> bool:
    """True if a type that agrees with the stored one adds fields to it and leaves out none."""
    if is_open(stored) or is_open(offered):
        return False
    comparison = _Comparison(stored.schema, offered.schema)
    return not list(comparison.nodes("", stored.schema, offered.schema)) and (
        comparison.added and not comparison.left_out
    )


def _holds(general: ValueType, kind: ValueType) -> bool:
    """True if the values of a type are values of a general one too."""
    if kind.node == _BYTES:
        return False
    return general.node == _ANY or (general.node == _OBJECT and kind.node.get("type") == "object")


@dataclass(slots=True)
class _Comparison:
    """The comparison of two schemas. It records fields with a default that only one of them has."""

    stored: Mapping[str, Any]
    offered: Mapping[str, Any]
    added: bool = False
    left_out: bool = False
    _compared: set[tuple[str, str]] = field(default_factory=set)

    def nodes(self, path: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
        """Yield the differences of two nodes at a path."""
        names = str(a.get("$ref")), str(b.get("$ref"))
        if "$ref" in a and "$ref" in b:
            if names in self._compared:
                return
            self._compared.add(names)
        given = a, b
        a, b = resolved(self.stored, a), resolved(self.offered, b)
        if "properties" in a and "properties" in b:
            yield from self._fields(path, a, b)
        elif "anyOf" in a and "anyOf" in b and len(a["anyOf"]) == len(b["anyOf"]):
            yield from self._variants(path, a, b)
        elif "prefixItems" in a and "prefixItems" in b:
            yield from self._items(path, a, b)
        elif part := next((p for p in ("items", "additionalProperties") if _has(p, a, b)), None):
            yield from self.nodes(f"{path}[]", a[part], b[part])
        elif _leaf(a) != _leaf(b):
            yield self._other(path, *given)

    def _fields(self, path: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
        mine, others = a["properties"], b["properties"]
        for name in mine:
            here = f"{path}.{name}" if path else name
            if name in others:
                yield from self.nodes(here, mine[name], others[name])
                if name in b["required"] and name not in a["required"]:
                    yield f"field {here!r} has no default, and messages may lack it"
            elif name in a["required"]:
                yield f"field {here!r} is missing"
            else:
                self.left_out = True
        for name in others:
            if name in mine:
                continue
            here = f"{path}.{name}" if path else name
            if name in b["required"]:
                yield f"field {here!r} is added without a default"
            else:
                self.added = True

    def _variants(self, path: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
        mine, others = a["anyOf"], b["anyOf"]
        if len(mine) > _VARIANTS_MAX:
            return
        fewest: list[str] | None = None
        for order in permutations(others):
            trial = _Comparison(self.stored, self.offered, _compared=set(self._compared))
            pairs = zip(mine, order, strict=True)
            found = [each for one, other in pairs for each in trial.nodes(path, one, other)]
            if fewest is None or len(found) < len(fewest):
                fewest = found
            if not found:
                self.added |= trial.added
                self.left_out |= trial.left_out
                return
        only_objects = all("properties" in resolved(self.stored, each) for each in mine)
        many = len(mine) > 2 or only_objects
        yield from [self._other(path, a, b)] if many else fewest or ()

    def _items(self, path: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
        mine, others = a["prefixItems"], b["prefixItems"]
        if len(mine) != len(others):
            yield self._other(path, a, b)
            return
        for index, (one, other) in enumerate(zip(mine, others, strict=True)):
            yield from self.nodes(f"{path}[{index}]", one, other)

    def _other(self, path: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
        found, wanted = node_text(self.offered, b), node_text(self.stored, a)
        return f"field {path!r} is {found}, not {wanted}" if path else _OTHER_KIND


def _has(part: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return isinstance(a.get(part), Mapping) and isinstance(b.get(part), Mapping)


def _leaf(node: Mapping[str, Any]) -> Any:
    """Return what two nodes without common parts are compared by."""
    if "enum" in node:
        return sorted(map(repr, node["enum"]))
    kept = {name: each for name, each in node.items() if name not in ("minItems", "maxItems")}
    return kept
