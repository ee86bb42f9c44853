"""Values that follow another one in a column, which files and databases treat in the same way."""

from __future__ import annotations

from typing import Any, Final

REFUSED: Final = object()

_CASES: Final[list[tuple[Any, Any, Any]]] = [
    (None, 5, 5),
    (5, None, None),
    (5, 7.5, 7.5),
    (5, 3.0, 3),
    (5, "7", 7),
    (5, "n/a", REFUSED),
    (5, "007", REFUSED),
    (5, " 7", REFUSED),
    (5, "7.5", REFUSED),
    (5, "", REFUSED),
    (5, True, REFUSED),
    (5, [1], REFUSED),
    (5, {"a": 1}, REFUSED),
    (5, 2**53 + 1, 2**53 + 1),
    (5, 2**63, REFUSED),
    (2**53 + 1, 0.5, REFUSED),
    ("x", 2**63, "9223372036854775808"),
    (2**53 + 1, 3.0, 3),
    (0.5, 7, 7),
    (0.5, "7.25", 7.25),
    (0.5, "1e3", 1000),
    (0.5, "Infinity", float("inf")),
    (0.5, "n/a", REFUSED),
    (0.5, True, REFUSED),
    (0.5, 2**53, 2**53),
    (0.5, 2**53 + 1, REFUSED),
    (True, False, False),
    (True, 0, False),
    (True, "false", False),
    (True, 2, REFUSED),
    (True, 0.5, REFUSED),
    (True, "n/a", REFUSED),
    ("x", 5, "5"),
    ("x", 7.5, "7.5"),
    ("x", True, "true"),
    ("x", [1, "y"], '[1,"y"]'),
    ("x", {"a": 1}, '{"a":1}'),
]

_NOT_NESTED: Final[list[tuple[Any, Any]]] = [
    *(({"a": 1}, other) for other in (5, 0.5, "x", True)),
    *(([1], other) for other in (5, 0.5, "x", True)),
    ({}, 5),
    ({}, "x"),
    ([], 5),
    ([], "x"),
]

_PARTS: Final[list[tuple[Any, Any]]] = [
    ([1], ["x"]),
    ({"a": 1}, {"a": "x"}),
    ({"a": 1}, [1]),
    ([1], {"a": 1}),
]

CASES: Final = {
    f"{first!r} then {second!r}": (first, second, kept) for first, second, kept in _CASES
}
"""By name: the first value of a column, the second one, and the second as it is stored."""

NOT_NESTED: Final = {f"{first!r} then {second!r}": (first, second) for first, second in _NOT_NESTED}
"""By name: an object or an array, and a value that its column refuses."""

PARTS: Final = {f"{first!r} then {second!r}": (first, second) for first, second in _PARTS}
"""By name: a value, and one with parts of other types, which only the types of Parquet refuse."""
