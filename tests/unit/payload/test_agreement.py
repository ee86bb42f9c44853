"""Which types agree, and how the differences of others are named."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest

from tailrace.payload.agreement import differences, extends
from tailrace.payload.value_type import ValueType
from tests.unit.payload.kinds import KINDS, Customer, Order


def stored(kind: Any) -> ValueType:
    found = ValueType.of(kind)
    assert found is not None
    # As the hub stores it.
    return msgspec.json.decode(msgspec.json.encode(found), type=ValueType)


def struct(base: Any = Order, **fields: Any) -> Any:
    """Return a struct with the fields of another, and these; a field that is None is left out."""
    kept = {
        each.name: (each.type, each.default)
        if each.default is not msgspec.NODEFAULT or each.default_factory is not msgspec.NODEFAULT
        else each.type
        for each in msgspec.structs.fields(base)
    }
    chosen = {key: kind for key, kind in (kept | fields).items() if kind is not None}
    return msgspec.defstruct(
        "Other",
        [
            (key, kind[0], msgspec.UNSET if kind[1] is msgspec.NODEFAULT else kind[1])
            if isinstance(kind, tuple)
            else (key, kind)
            for key, kind in chosen.items()
        ],
        kw_only=True,
    )


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_the_same_fields_agree_in_classes_of_every_kind(first: Any, second: Any) -> None:
    assert differences(stored(first), stored(second)) == []
    assert not extends(stored(first), stored(second))


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_is_shown_with_its_fields(kind: Any) -> None:
    name = kind.__name__
    customer = name.replace("Order", "Customer")
    assert stored(kind).text == (
        f"{name}(id: int, customer: {customer}, paid_at: datetime, total?: float, tags?: list[str])"
    )


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (struct(total=None), []),
        (struct(note=(str, "")), []),
        (struct(id=str), ["field 'id' is str, not int"]),
        (struct(paid_at=str), ["field 'paid_at' is str, not datetime"]),
        (struct(total=(int, 0)), ["field 'total' is int, not float"]),
        (struct(id=None), ["field 'id' is missing"]),
        (struct(note=str), ["field 'note' is added without a default"]),
        (struct(total=float), ["field 'total' has no default, and messages may lack it"]),
        (struct(tags=(list[int], [])), ["field 'tags[]' is int, not str"]),
        (
            struct(customer=struct(Customer, name=bytes)),
            ["field 'customer.name' is bytes, not str"],
        ),
        (
            struct(customer=struct(Customer, city=(int | None, None))),
            ["field 'customer.city' is int, not str"],
        ),
        (
            struct(id=None, nr=int),
            ["field 'id' is missing", "field 'nr' is added without a default"],
        ),
        (struct(customer=str), ["field 'customer' is str, not Customer"]),
        (int, ["its values are of another kind"]),
        (str, ["its values are of another kind"]),
        (list[Order], ["its values are of another kind"]),
    ],
    ids=str,
)
def test_differences_are_named_by_their_fields(other: Any, expected: list[str]) -> None:
    assert differences(stored(Order), stored(other)) == expected


def test_only_a_type_that_adds_fields_and_leaves_out_none_extends_another() -> None:
    assert extends(stored(Order), stored(struct(note=(str, ""))))
    assert extends(stored(Order), stored(struct(customer=struct(Customer, zip=(int, 0)))))
    assert not extends(stored(Order), stored(struct(note=(str, ""), total=None)))
    assert not extends(stored(Order), stored(struct(note=str)))
    assert not extends(stored(Order), stored(struct()))


@pytest.mark.parametrize("general", [dict, dict[str, Any], bytes])
def test_a_general_type_agrees_with_every_type_that_it_holds(general: Any) -> None:
    assert differences(stored(Order), stored(general)) == []
    assert not extends(stored(Order), stored(general))


def test_a_topic_of_dicts_takes_every_object_and_one_of_bytes_only_bytes() -> None:
    assert differences(stored(dict), stored(Order)) == []
    assert differences(stored(dict), stored(list)) == ["its values are of another kind"]
    assert differences(stored(bytes), stored(Order)) == ["its values are of another kind"]
    assert differences(stored(bytes), stored(str)) == ["its values are of another kind"]
    assert differences(stored(bytes), stored(bytes)) == []


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: int = 0


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Tree(msgspec.Struct):
    left: Tree | None = None
    right: Tree | None = None


class Shelter(msgspec.Struct):
    pets: list[Cat | Dog]


class Aliased(pydantic.BaseModel, serialize_by_alias=True, populate_by_name=True):
    order_id: int = pydantic.Field(alias="orderId")


@dataclass
class Empty:
    pass


T = TypeVar("T")


class Box(msgspec.Struct, Generic[T]):
    held: T


class Boxes(msgspec.Struct):
    number: Box[int]
    text: Box[str]


MANY: list[Any] = [
    int, float, str, bytes, bool, dict, list, dict[str, int], list[float], tuple[int, str],
    set[int], int | str, int | None, Literal["a", "b"], Colour, Point, Cat | Dog, Tree, Shelter,
    date, timedelta, Decimal, UUID, Annotated[int, msgspec.Meta(gt=3)], Aliased, Empty,
    tuple[int, ...], list[dict[str, list[int | None]]], datetime, Boxes,
]  # fmt: skip


@pytest.mark.parametrize("kind", MANY, ids=str)
def test_every_type_agrees_with_itself_and_can_be_shown(kind: Any) -> None:
    assert differences(stored(kind), stored(kind)) == []
    assert stored(kind).text


def test_types_of_different_kinds_do_not_agree() -> None:
    same: set[tuple[Any, Any]] = {
        (int, Annotated[int, msgspec.Meta(gt=3)]),
        (set[int], tuple[int, ...]),
    }
    same |= {(other, kind) for kind, other in same}
    for kind in MANY:
        for other in MANY:
            agree = not differences(stored(kind), stored(other))
            if kind == other or (kind, other) in same or other is bytes:
                assert agree, (kind, other)
            elif agree:  # an object among objects, or a type whose fields all have a default
                assert "object" in (stored(kind).node.get("type"), stored(other).node.get("type"))


def test_the_parameters_of_a_generic_class_are_compared() -> None:
    assert differences(stored(Box[int]), stored(Box[int])) == []
    assert differences(stored(Box[int]), stored(Box[str])) == ["field 'held' is str, not int"]
    swapped = msgspec.defstruct("Boxes", [("number", Box[str]), ("text", Box[str])])
    assert differences(stored(Boxes), stored(swapped)) == ["field 'number.held' is str, not int"]


def test_a_field_keeps_its_name_in_json() -> None:
    assert stored(Aliased).text == "Aliased(orderId: int)"


def test_no_type_and_a_type_that_cannot_be_described_are_not_kept() -> None:
    assert ValueType.of(None) is ValueType.of(Any) is ValueType.of(object) is None

    class Odd(pydantic.BaseModel):
        @classmethod
        def model_json_schema(cls, *args: Any, **kwargs: Any) -> Any:
            raise ZeroDivisionError

    assert ValueType.of(Odd) is None
