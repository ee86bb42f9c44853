"""The check of JSON against a stored type, without its class."""

from __future__ import annotations

from typing import Any

import msgspec
import pydantic
import pytest

from tailrace.payload.stored_check import checker, value_differences
from tests.unit.payload.kinds import KINDS, Order
from tests.unit.payload.test_agreement import MANY, Cat, Dog, Shelter, Tree, stored

GOOD: dict[str, Any] = {
    "id": 1,
    "customer": {"name": "ann", "city": None},
    "paid_at": "2026-01-31T12:00:00Z",
    "total": 9,
    "tags": ["a"],
}


def problem(kind: Any, value: Any) -> str | None:
    """Return how a value differs from a type, None if it does not."""
    found, data = stored(kind), msgspec.json.encode(value)
    try:
        checker(found)(data)
    except msgspec.MsgspecError as error:
        return value_differences(found, data, str(error))
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_of_the_type_passes_also_without_fields_that_have_a_default(kind: Any) -> None:
    assert problem(kind, GOOD) is None
    assert problem(kind, GOOD | {"customer": {"name": "ann"}}) is None
    without = {name: each for name, each in GOOD.items() if name not in ("total", "tags")}
    assert problem(kind, without) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"id": "1"}, "field 'id' is str, not int"),
        ({"id": True}, "field 'id' is bool, not int"),
        ({"id": None}, "field 'id' is None, not int"),
        ({"note": ""}, "field 'note' is added"),
        ({"tags": ["a", 1]}, "field 'tags[1]' is int, not str"),
        ({"tags": {}}, "field 'tags' is dict, not list[str]"),
        ({"customer": {}}, "field 'customer.name' is missing"),
        ({"customer": {"name": "ann", "city": 1}}, "field 'customer.city' is int, not str | None"),
        (
            {"id": "1", "note": "", "customer": {"nme": "ann"}},
            "field 'id' is str, not int; field 'customer.name' is missing;"
            " field 'customer.nme' is added; field 'note' is added",
        ),
        ({"paid_at": "soon"}, "Invalid RFC3339 encoded datetime - at `$.paid_at`"),
    ],
    ids=str,
)
def test_every_difference_of_a_value_is_named(
    kind: Any, change: dict[str, Any], expected: str
) -> None:
    assert problem(kind, GOOD | change) == expected


def test_only_the_first_differences_are_listed() -> None:
    assert problem(Order, {f"f{n}": n for n in range(9)}) == (
        "field 'id' is missing; field 'customer' is missing; field 'paid_at' is missing;"
        " field 'f0' is added; field 'f1' is added; 7 more"
    )


@pytest.mark.parametrize("kind", MANY, ids=str)
def test_a_check_can_be_made_of_every_type(kind: Any) -> None:
    with pytest.raises(msgspec.MsgspecError):
        checker(stored(kind))(b"{")


def test_a_union_with_tags_is_checked_by_its_tag() -> None:
    for kind in (Cat | Dog, Shelter):
        wrap = (lambda pet: {"pets": [pet]}) if kind is Shelter else lambda pet: pet
        assert problem(kind, wrap({"type": "Cat", "lives": 7})) is None
        assert problem(kind, wrap({"type": "Dog", "name": "rex"})) is None
        assert problem(kind, wrap({"type": "Dog", "lives": 7})) is not None
        assert problem(kind, wrap({"type": "Cow"})) is not None


def test_a_type_that_contains_itself_is_checked_at_its_first_level() -> None:
    assert problem(Tree, {"left": {"right": {}}}) is None
    assert problem(Tree, {"up": {}}) == "field 'up' is added"


def test_a_model_that_allows_other_fields_takes_them() -> None:
    class Loose(pydantic.BaseModel, extra="allow"):
        id: int

    assert problem(Loose, {"id": 1, "note": "x"}) is None
    assert problem(Loose, {"note": "x"}) == "field 'id' is missing"


def test_a_field_may_have_any_name() -> None:
    class Odd(msgspec.Struct, rename={"a": "first-name", "b": "class", "c": ""}):
        a: int
        b: int
        c: int = 0

    assert problem(Odd, {"first-name": 1, "class": 2, "": 3}) is None
    assert problem(Odd, {"first-name": 1}) == "field 'class' is missing"
