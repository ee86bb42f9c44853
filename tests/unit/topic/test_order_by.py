"""The key of a message is a header, or a field of its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import InvalidValue
from tailrace.payload import ValueType
from tailrace.topic.order_by import OrderBy


class Address(msgspec.Struct):
    city: str
    lines: list[str]
    tags: dict[str, str]


@dataclass
class Customer:
    id: int
    address: Address
    parent: Address | None = None


class Point(NamedTuple):
    x: int


scalars = st.one_of(st.text(min_size=1), st.integers(), st.booleans(), st.floats(-1e9, 1e9))
documents = st.dictionaries(st.sampled_from(["id", "é", "x"]), st.one_of(scalars, st.none()))


@given(scalars, documents, documents)
def test_the_key_is_the_text_of_the_field_or_its_json(
    value: Any, inner: dict[str, Any], outer: dict[str, Any]
) -> None:
    data = msgspec.json.encode(outer | {"customer": inner | {"id": value}})
    expected = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    assert OrderBy("customer.id").key(data, None) == expected


def test_the_key_is_the_bytes_of_the_header() -> None:
    order = OrderBy("header:content-type")
    assert order.key(b"\xff", {"content-type": b"\xff", "other": b"1"}) == b"\xff"


def test_a_number_is_the_key_as_it_is_written() -> None:
    assert (
        OrderBy("id").key(b'{"id": 12345678901234567890123 }', None) == b"12345678901234567890123"
    )
    assert OrderBy("id").key(b'{"id": 1E3}', None) == b"1E3"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{}", "Object missing required field `customer`"),
        (b'{"customer": {"name": "x"}}', r"Object missing required field `id` - at `\$.customer`"),
        (b'{"customer": 7}', r"Expected `object`, got `int` - at `\$.customer`"),
        (b"[1]", "Expected `object`, got `array`"),
        (b"hello", "the value is not JSON: JSON is malformed"),
        (b"", "the value is not JSON"),
        (b'{"customer": {"id": null}}', "the field is null"),
        (b'{"customer": {"id": ""}}', "the field is empty"),
        (b'{"customer": {"id": {}}}', "the field is an object"),
        (b'{"customer": {"id": []}}', "the field is an array"),
        (b'{"customer": {"id": "\xff"}}', "the value is not JSON"),
        (b'{"customer": {"id": "\\ud800"}}', "the value is not JSON"),
    ],
)
def test_a_value_without_the_field_is_refused_by_its_name(data: bytes, reason: str) -> None:
    valid = "valid: a JSON object in which customer.id is text, a number, true or false"
    with pytest.raises(InvalidValue, match=f"ordered by customer.id: {reason}") as raised:
        OrderBy("customer.id").key(data, {"customer.id": b"1"})
    assert valid in str(raised.value)


@pytest.mark.parametrize("headers", [None, {}, {"Country": b"IN"}, {"country": b""}])
def test_a_message_without_the_header_is_refused_by_its_name(headers: Any) -> None:
    with pytest.raises(InvalidValue, match="ordered by header:country: the header 'country' is"):
        OrderBy("header:country").key(b'{"country": "IN"}', headers)


def test_a_path_that_looks_like_a_header_of_a_filter_is_explained() -> None:
    with pytest.raises(InvalidValue, match="for a header, header:country"):
        OrderBy("header.country").key(b"{}", {"country": b"IN"})


@pytest.mark.parametrize("text", ["", "header:", "a..b", ".a", "a.", 7, "x" * 1001])
def test_what_is_no_path_and_no_header_is_refused(text: Any) -> None:
    with pytest.raises(InvalidValue, match="valid: header:NAME, or the path of a field"):
        OrderBy(text)


def test_a_reserved_header_is_refused() -> None:
    with pytest.raises(InvalidValue, match="reserved for Tailrace"):
        OrderBy("header:tailrace.for")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Customer, "id"),
        (Customer, "address.city"),
        (Customer, "address.tags.anything"),
        (Customer, "parent.city"),
        (Customer, "header:id"),
        (dict, "id"),
        (None, "id"),
    ],
)
def test_a_field_that_values_of_the_type_may_have_is_accepted(kind: Any, text: str) -> None:
    OrderBy(text).check_type(ValueType.of(kind))


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Customer, "idd", "Customer has no field 'idd' · valid: one of id, address, parent · did"),
        (Customer, "address.town", "Customer.address has no field 'town' · valid: one of city"),
        (Customer, "id.x", "Customer.id is int, which has no fields"),
        (Customer, "address", r"address of Customer is \(city: str, lines"),
        (Customer, "address.lines", r"address.lines of Customer is list\[str\]"),
        (Customer, "address.tags", r"address.tags of Customer is dict\[str, str\]"),
        (Point, "x", "Point is tuple"),
        (str, "id", "str is str, which has no fields"),
        (bytes, "id", "bytes is bytes, which has no fields"),
    ],
)
def test_a_field_that_values_of_the_type_never_have_is_refused(
    kind: Any, text: str, message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        OrderBy(text).check_type(ValueType.of(kind))
